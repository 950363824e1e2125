"""Answers: the messages that come back for one call, put together and checked by its caller."""

import asyncio
from collections import deque
from collections.abc import Callable

from callsmith.bus.flow import WINDOW
from callsmith.bus.nats.messages import PART, NatsMessage, decode, is_from, reply_bytes
from callsmith.bus.nats.replies import MOST_BYTES
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame, read_frame


class IncomingAnswer:
    """The answer to a call, while it comes in.

    `node` is who answers: known beforehand, or from the first message, if `may_answer` says that this node may. Messages that are
    not from that node are dropped: the true ones may still come.
    """

    def __init__(self, request_id: str, node: str, may_answer: Callable[[str], bool]) -> None:
        self._request_id = request_id
        self._may_answer = may_answer
        self._frames: deque[Frame] = deque()
        self._parts: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._failure: BusError | None = None
        self.node = node
        self.is_accepted = False
        self.on_late: Callable[[], None] | None = None  # called with what comes after the caller has given up

    def take(self, message: NatsMessage) -> None:
        """Take a message of it; what is no part of it is dropped."""
        if message.is_refused:
            if not self.is_accepted:
                self.fail(BusError("partition", "nobody listens for this call"))
            return
        try:
            frame = self._read(message)
        except BusError:
            return
        if frame is None:
            return
        if self.on_late is not None:
            self.on_late()
            return
        if frame.event != "accepted":
            self._frames.append(frame)
        if len(self._frames) > 2 * WINDOW:
            self.fail(BusError("internal_error", f"the provider is more than {WINDOW} frames ahead", sent=True))
        self._wake()

    def fail(self, error: BusError) -> None:
        """There is no more to come."""
        if self._failure is None:
            self._failure = error
            self._wake()

    async def wait_until_accepted(self, until: float) -> bool:
        """Whether the call was accepted by then."""
        while not self.is_accepted and await self._wait_for_news(until):
            pass
        return self.is_accepted

    async def next(self, until: float) -> Frame | None:
        """The next frame; None if there is none by then."""
        while not self._frames and await self._wait_for_news(until):
            pass
        return self._frames.popleft() if self._frames else None

    async def _wait_for_news(self, until: float) -> bool:
        """Wait until something has come, and say whether there is time left."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(until, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        return loop.time() < until

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read(self, message: NatsMessage) -> Frame | None:
        """The frame that is whole with this message."""
        part = message.headers.get(PART, "")
        if self.is_accepted:
            if not is_from(self.node, message, reply_bytes(self._request_id, part, message.data)):
                return None
            if part:
                return self._join_part(part, message.data)
            return read_frame(decode(message.data))
        entries = decode(message.data)
        node = entries.get("node")
        if not isinstance(node, str) or part or (node != self.node if self.node else not self._may_answer(node)):
            return None
        if not is_from(node, message, reply_bytes(self._request_id, "", message.data)):
            return None
        self.node, self.is_accepted = node, True
        return read_frame(entries)

    def _join_part(self, part: str, data: bytes) -> Frame | None:
        number, _, count = part.partition("/")
        if number != str(len(self._parts) + 1) or sum(map(len, self._parts)) + len(data) > MOST_BYTES:
            self.fail(BusError("partition", "a part of the answer was lost on the way", sent=True))
            return None
        self._parts.append(data)
        if number != count:
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return read_frame(decode(whole))
