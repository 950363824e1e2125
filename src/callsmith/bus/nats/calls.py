"""Outgoing calls: sends them, and gives the frames of their answers."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from secrets import token_hex

from callsmith.bus.flow import LARGE, WIDEST, Acknowledgements, Deadlines, FrameQueue
from callsmith.bus.nats.connection import NatsConnection
from callsmith.bus.nats.messages import (
    PART,
    NatsMessage,
    Subjects,
    encode,
    is_from,
    is_signing,
)
from callsmith.bus.nats.neighbours import Neighbours, offer_digest
from callsmith.bus.nats.serving import MOST_BYTES
from callsmith.bus.port import Disconnected, Offer, Receive
from callsmith.core.errors import CallsmithError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import WINDOW, Envelope, plain_envelope
from callsmith.wire.capability.errors import BusError, as_bus_error
from callsmith.wire.capability.frames import Frame, decode_frame

_log = logging.getLogger(__name__)

ACCEPT_SECONDS = 2.0  # within which somebody accepts a call
_SPARE_SECONDS = 1.0  # a provider that is too slow for its own limit says so itself


class OutgoingCall(FrameQueue):
    """A call that was sent, and its answer while that comes in on a `subject`.

    `node` is who answers: known beforehand, or from the first message, if `may_answer` says that this node may. Messages that are
    not from that node are dropped: the true ones may still come.
    """

    window = WINDOW  # frames that may be under way
    is_accepted = False
    is_ended = False
    on_late: Callable[[], None] | None = None  # called with what comes after the caller has given up
    sent_messages = 0  # that have followed the call

    def __init__(
        self,
        envelope: Envelope,
        request_id: str,
        subject: str,
        node: str,
        may_answer: Callable[[str], bool],
        deadline: float,
        deadlines: Deadlines,
    ) -> None:
        super().__init__(deadlines)
        self.envelope = envelope
        self.request_id = request_id
        self.subject = subject
        self.node = node
        self.deadline = deadline
        self._may_answer = may_answer
        self._parts = 0  # of the frame that comes in several messages, so far
        self._joined = bytearray()  # and what is in them
        self._is_signed = False
        self._arrived = 0  # frames
        self._large: deque[int] = deque()  # the numbers of the large ones that wait for the reader

    def take(self, message: NatsMessage) -> None:
        """Take a message of it; what is no part of it is dropped."""
        if not message.data and message.is_refused:
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
        if frame.event == "accepted":
            self.wake()
            return
        self.put(frame)
        self._arrived += 1
        if len(message.data) > LARGE or PART in message.headers:
            self._large.append(self._arrived)
        if len(self._frames) > 2 * self.window or (self._large and self._count_large() > 2 * WINDOW):
            self.fail(BusError("internal_error", f"the provider is more than {self.window} frames ahead", sent=True))

    def _count_large(self) -> int:
        """How many large frames wait for the reader: of these the window of the provider is a plain one."""
        while self._large and self._large[0] <= self._arrived - self.waiting:
            self._large.popleft()
        return len(self._large)

    async def wait_until_accepted(self, until: float) -> None:
        while not self.is_accepted and await self._wait_for_news(until):
            pass

    def _read(self, message: NatsMessage) -> Frame | None:
        """The frame that is whole with this message."""
        part = message.headers.get(PART, "")
        if self.is_accepted:
            if self._is_signed and not is_from(self.node, message, f"reply {self.request_id} {part}"):
                return None
            return self._join_part(part, message.data) if part else decode_frame(message.data)
        first = decode_frame(message.data)
        node = first.node
        if not node or part or (node != self.node if self.node else not self._may_answer(node)):
            return None
        self._is_signed = is_signing(node)
        if self._is_signed and not is_from(node, message, f"reply {self.request_id} "):
            return None
        self.node, self.is_accepted = node, True
        self.window = max(WINDOW, min(first.window, WIDEST))
        return first

    def check_accepted(self) -> None:
        if not self.is_accepted:
            code = "timeout" if asyncio.get_running_loop().time() >= self.deadline else "partition"
            raise BusError(code, f"nobody has accepted the call of {self.envelope.capability}", sent=True)

    def _join_part(self, part: str, data: bytes) -> Frame | None:
        number, _, count = part.partition("/")
        if number != str(self._parts + 1) or len(self._joined) + len(data) > MOST_BYTES:
            self.fail(BusError("partition", "a part of the answer was lost on the way", sent=True))
            return None
        self._parts += 1
        self._joined += data
        if number != count:
            return None
        whole, self._joined, self._parts = self._joined, bytearray(), 0
        return decode_frame(whole)


class OutgoingCalls:
    """The calls that this node makes of others."""

    def __init__(self, connection: NatsConnection, subjects: Subjects, neighbours: Neighbours) -> None:
        self._connection = connection
        self._subjects = subjects
        self._neighbours = neighbours
        self._prefix = subjects.replies(token_hex(16))
        self._numbers = count(1)
        self._calls: dict[str, OutgoingCall] = {}  # by the subject of their answers
        self._deadlines = Deadlines()

    async def open(self) -> None:
        await self._connection.subscribe(f"{self._prefix}*", self._take)

    def _take(self, message: NatsMessage) -> None:
        if call := self._calls.get(message.subject):
            call.take(message)

    def fail(self, error: BusError, node: str = "") -> None:
        """Give up all calls, or those that a node has accepted."""
        for call in list(self._calls.values()):
            if not node or (call.is_accepted and call.node == node):
                call.fail(error)

    async def request(self, envelope: Envelope, offer: Offer, *, share: bool, added: dict[str, str]) -> tuple[str, Frame]:
        """Send a call that is not streamed; the node that has answered, and the one frame of its answer."""
        loop = asyncio.get_running_loop()
        call = self._send(envelope, offer, share, added)
        try:
            frames = await call.next_burst(min(call.deadline, loop.time() + ACCEPT_SECONDS))
            if not frames:
                call.check_accepted()
                longest = offer.descriptor.timeout_seconds + _SPARE_SECONDS
                frames = await call.next_burst(min(call.deadline, loop.time() + longest))
            if not frames:
                raise BusError("timeout", f"{envelope.capability} gave no answer in time", sent=True)
            call.is_ended = True
            return call.node, frames[0]
        finally:
            self._end(call)

    async def stream(
        self, envelope: Envelope, offer: Offer, *, share: bool, receive: Receive, added: dict[str, str]
    ) -> AsyncGenerator[Sequence[Frame], None]:
        """Send a call with what is added to its envelope, and give the frames of its answer, of which the first is "accepted"."""
        loop, forwarding = asyncio.get_running_loop(), None
        call = self._send(envelope, offer, share, added)
        try:
            await call.wait_until_accepted(min(call.deadline, loop.time() + ACCEPT_SECONDS))
            call.check_accepted()
            forwarding = loop.create_task(self._forward(call, receive))
            yield (Frame("accepted", {"node": call.node}),)
            acknowledgements = Acknowledgements(widest=call.window)
            frame_seconds = offer.descriptor.timeout_seconds + _SPARE_SECONDS
            while burst := await call.next_burst(min(call.deadline, loop.time() + frame_seconds)):
                for frame in burst:
                    acknowledgements.check_order(frame)
                call.is_ended = burst[-1].is_end
                yield burst
                if call.is_ended:
                    return
                if upto := acknowledgements.take_due(loop.time(), is_idle=not call.waiting):
                    self._control(call, {"type": "ack", "upto": upto})
            raise BusError("timeout", f"{envelope.capability} gave no answer in time", sent=True)
        finally:
            if forwarding is not None:
                forwarding.cancel()
            self._end(call)

    def _send(self, envelope: Envelope, offer: Offer, share: bool, added: dict[str, str]) -> OutgoingCall:
        """Send a call; `_end` must be told when nobody waits for its answer any more."""
        number = str(next(self._numbers))
        # A call that is repeated elsewhere gets an id of its own each time: nodes that see one twice refuse it as a replay.
        request_id = f"{envelope.request_id}-{number}"
        window = WIDEST if envelope.stream else WINDOW
        payload = encode(plain_envelope(envelope, request_id=request_id, timestamp=time.time(), window=window, **added))
        digest, node = (offer_digest(offer.descriptor), "") if share else ("", offer.node)
        where = self._subjects.call(envelope.capability, digest) if share else self._subjects.node(node)
        subject = f"{self._prefix}{number}"
        deadline = inf if envelope.seconds is None else asyncio.get_running_loop().time() + envelope.seconds
        may_answer = partial(self._neighbours.has_offer, digest=digest)
        call = OutgoingCall(envelope, request_id, subject, node, may_answer, deadline, self._deadlines)
        self._connection.publish(where, payload, "", reply=subject)
        self._calls[subject] = call
        return call

    def _end(self, call: OutgoingCall) -> None:
        """Nobody waits for the answer any more: the call is cancelled if it has not ended."""
        if call.is_ended:
            del self._calls[call.subject]
        else:
            self._cancel(call)

    def _cancel(self, call: OutgoingCall) -> None:
        """Have the provider stop: now, or as soon as it is known who it is."""

        def cancel() -> None:
            forgetting.cancel()
            self._calls.pop(call.subject, None)
            self._control(call, {"type": "cancel"})

        forgetting = asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._calls.pop, call.subject, None)
        if call.is_accepted:
            cancel()
        else:
            call.on_late = cancel

    async def _forward(self, call: OutgoingCall, receive: Receive) -> None:
        """Send what the caller says while the call runs. A failure at that ends the call, or the handler would wait in vain."""
        try:
            while (message := await receive()) is not None:
                self._control(call, {"type": "message", "body": dict(message)})
            self._control(call, {"type": "end"})
        except Exception as error:  # other people's code: whatever it raises is an error of the wire
            if not isinstance(error, CallsmithError):
                _log.error("what a call was to be given could not be had", exc_info=error)
            call.fail(as_bus_error(error))

    def _control(self, call: OutgoingCall, message: dict[str, Json]) -> None:
        """Send something to the node at which a call runs; if that cannot be done, the call ends by itself."""
        call.sent_messages += 1
        payload = encode({**message, "id": call.request_id, "from": call.envelope.sender, "n": call.sent_messages})
        with suppress(Disconnected):
            self._connection.publish(self._subjects.control(call.node), payload, "control")
