"""Outgoing calls: sends them, and gives the frames of their answers."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from secrets import token_hex
from types import TracebackType

from msgspec.structs import replace

from callsmith.bus.flow import LARGE, WIDEST, Acknowledgements, FrameQueue
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
from callsmith.bus.port import Offer, Receive
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import WINDOW, Envelope, plain_envelope
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame, decode_frame

ACCEPT_SECONDS = 2.0  # within which somebody accepts a call
_SPARE_SECONDS = 1.0  # a provider that is too slow for its own limit says so itself


class IncomingAnswer(FrameQueue):
    """The answer to a call, while it comes in.

    `node` is who answers: known beforehand, or from the first message, if `may_answer` says that this node may. Messages that are
    not from that node are dropped: the true ones may still come.
    """

    def __init__(self, request_id: str, node: str, may_answer: Callable[[str], bool]) -> None:
        super().__init__()
        self._request_id = request_id
        self._may_answer = may_answer
        self._parts = 0  # of the frame that comes in several messages, so far
        self._joined = bytearray()  # and what is in them
        self._is_signed = False
        self._arrived = 0  # frames
        self._large: deque[int] = deque()  # the numbers of the large ones that wait for the reader
        self.node = node
        self.window = WINDOW  # frames that may be under way
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
        if frame.event == "accepted":
            self.wake()
            return
        self.put(frame)
        self._arrived += 1
        if len(message.data) > LARGE or PART in message.headers:
            self._large.append(self._arrived)
        if self.waiting > 2 * self.window or self._count_large() > 2 * WINDOW:
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
            if self._is_signed and not is_from(self.node, message, f"reply {self._request_id} {part}"):
                return None
            return self._join_part(part, message.data) if part else decode_frame(message.data)
        first = decode_frame(message.data)
        node = first.node
        if not node or part or (node != self.node if self.node else not self._may_answer(node)):
            return None
        if not is_from(node, message, f"reply {self._request_id} "):
            return None
        self.node, self.is_accepted, self._is_signed = node, True, is_signing(node)
        self.window = max(WINDOW, min(first.window, WIDEST))
        return first

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
        self._answers: dict[str, IncomingAnswer] = {}  # by the subject of their messages

    async def open(self) -> None:
        await self._connection.subscribe(f"{self._prefix}*", self._take)

    def _take(self, message: NatsMessage) -> None:
        if answer := self._answers.get(message.subject):
            answer.take(message)

    def fail(self, error: BusError, node: str = "") -> None:
        """Give up all calls, or those that a node has accepted."""
        for answer in list(self._answers.values()):
            if not node or (answer.is_accepted and answer.node == node):
                answer.fail(error)

    async def request(self, envelope: Envelope, offer: Offer, *, share: bool, added: dict[str, str]) -> tuple[str, Frame]:
        """Send a call that is not streamed; the node that has answered, and the one frame of its answer."""
        loop = asyncio.get_running_loop()
        with self._start(envelope, offer, share, added) as call:
            frames = await call.answer.next_burst(min(call.deadline, loop.time() + ACCEPT_SECONDS))
            if not frames:
                call.check_accepted()
                longest = offer.descriptor.timeout_seconds + _SPARE_SECONDS
                frames = await call.answer.next_burst(min(call.deadline, loop.time() + longest))
            if not frames:
                raise BusError("timeout", f"{envelope.capability} gave no answer in time", sent=True)
            call.is_ended = True
            return call.answer.node, frames[0]

    async def send(
        self, envelope: Envelope, offer: Offer, *, share: bool, receive: Receive, added: dict[str, str]
    ) -> AsyncGenerator[Sequence[Frame], None]:
        """Send a call with what is added to its envelope, and give the frames of its answer, of which the first is "accepted"."""
        loop, forwarding = asyncio.get_running_loop(), None
        with self._start(envelope, offer, share, added) as call:
            try:
                await call.answer.wait_until_accepted(min(call.deadline, loop.time() + ACCEPT_SECONDS))
                call.check_accepted()
                forwarding = loop.create_task(self._forward(call, receive))
                yield (Frame("accepted", {"node": call.answer.node}),)
                acknowledgements = Acknowledgements(widest=call.answer.window)
                frame_seconds = offer.descriptor.timeout_seconds + _SPARE_SECONDS
                while burst := await call.answer.next_burst(min(call.deadline, loop.time() + frame_seconds)):
                    for frame in burst:
                        acknowledgements.check_order(frame)
                    call.is_ended = burst[-1].is_end
                    yield burst
                    if call.is_ended:
                        return
                    if upto := acknowledgements.take_due(loop.time(), is_idle=not call.answer.waiting):
                        self._control(call, {"type": "ack", "upto": upto})
                raise BusError("timeout", f"{envelope.capability} gave no answer in time", sent=True)
            finally:
                if forwarding is not None:
                    forwarding.cancel()

    def _start(self, envelope: Envelope, offer: Offer, share: bool, added: dict[str, str]) -> "_OutgoingCall":
        """A call that is sent. Inside a `with`, it is cancelled if it has not ended when nobody waits for its answer any more."""
        number, now = str(next(self._numbers)), asyncio.get_running_loop().time()
        # A call that is repeated elsewhere gets an id of its own each time: nodes that see one twice refuse it as a replay.
        request_id = f"{envelope.request_id}-{number}"
        window = WIDEST if envelope.stream else WINDOW
        sent = replace(envelope, request_id=request_id, timestamp=time.time(), window=window, **added)
        payload = encode(plain_envelope(sent))
        if len(payload) > (most := self._connection.most_bytes):
            raise BusError("bad_request", f"the call has {len(payload)} bytes, and the NATS server takes {most}")
        digest, node = (offer_digest(offer.descriptor), "") if share else ("", offer.node)
        where = self._subjects.call(envelope.capability, digest) if share else self._subjects.node(node)
        answer = IncomingAnswer(request_id, node, lambda node: self._neighbours.has_offer(node, digest))
        subject = f"{self._prefix}{number}"
        deadline = inf if envelope.seconds is None else now + envelope.seconds
        self._connection.publish(where, payload, "", reply=subject)
        self._answers[subject] = answer
        return _OutgoingCall(envelope, request_id, deadline, answer, partial(self._end, subject))

    def _end(self, subject: str, call: "_OutgoingCall") -> None:
        if call.is_ended:
            del self._answers[subject]
        else:
            self._cancel(subject, call)

    def _cancel(self, subject: str, call: "_OutgoingCall") -> None:
        """Have the provider stop: now, or as soon as it is known who it is."""

        def cancel() -> None:
            forgetting.cancel()
            self._answers.pop(subject, None)
            self._control(call, {"type": "cancel"})

        forgetting = asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._answers.pop, subject, None)
        if call.answer.is_accepted:
            cancel()
        else:
            call.answer.on_late = cancel

    async def _forward(self, call: "_OutgoingCall", receive: Receive) -> None:
        """Send what the caller says while the call runs."""
        while (message := await receive()) is not None:
            self._control(call, {"type": "message", "body": dict(message)})
        self._control(call, {"type": "end"})

    def _control(self, call: "_OutgoingCall", message: dict[str, Json]) -> None:
        """Send something to the node at which a call runs; if that cannot be done, the call ends by itself."""
        payload = encode({**message, "id": call.request_id, "from": call.envelope.sender, "n": next(call.numbers)})
        with suppress(BusError):
            self._connection.publish(self._subjects.control(call.answer.node), payload, "control")


@dataclass(slots=True)
class _OutgoingCall:
    """A call that is on its way; `numbers` are those of the messages that follow it."""

    envelope: Envelope
    request_id: str
    deadline: float
    answer: IncomingAnswer
    _end: "Callable[[_OutgoingCall], None]"
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    is_ended: bool = False

    def __enter__(self) -> "_OutgoingCall":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(self)

    def check_accepted(self) -> None:
        if not self.answer.is_accepted:
            code = "timeout" if asyncio.get_running_loop().time() >= self.deadline else "partition"
            raise BusError(code, f"nobody has accepted the call of {self.envelope.capability}", sent=True)
