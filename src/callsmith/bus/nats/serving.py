"""Incoming calls: checks who sends them, runs them by the bus of this node, and sends back what it gives."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, cast

from msgspec.structs import replace

from callsmith.bus.flow import WIDEST, FlowControl
from callsmith.bus.nats.connection import NatsConnection
from callsmith.bus.nats.messages import (
    SIGNATURE,
    NatsMessage,
    Subjects,
    decode,
    encode,
    is_from,
)
from callsmith.bus.nats.neighbours import Neighbours
from callsmith.bus.port import Receiver
from callsmith.core.capability.authority import Authority
from callsmith.core.closing import closing
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import WINDOW, Envelope, decode_envelope, read_envelope
from callsmith.wire.capability.errors import BusError, as_bus_error
from callsmith.wire.capability.frames import Frame, SentFrame, error_frame

_log = logging.getLogger(__name__)

# On whose authority a call runs that has come with this signature over these bytes; a BusError if it may not run.
Authenticate: TypeAlias = Callable[[Envelope, str, bytes], Authority]

MOST_BYTES = 64 * 1024 * 1024  # of a frame
ACCEPT_AFTER = 0.05  # seconds without an answer, after which the caller is notified that its call runs
_SEND_SECONDS = 5.0  # in which a lost connection may return, where a call has no deadline
_QUICK = 0.05  # seconds on the way that nobody minds
_MOST_WAITING = 64  # messages of a caller that the handler has not read yet


@dataclass(slots=True)
class Replies:
    """Sends the frames of an answer. The first message says which node answers, and how many frames it keeps under way."""

    _connection: NatsConnection
    _subject: str
    _request_id: str
    _node: str
    _window: int = WINDOW
    is_named: bool = False

    def accept(self) -> None:
        """Let the caller know that its call runs here, unless it knows by the answer itself."""
        if not self.is_named:
            self.send(Frame("accepted"))

    def close(self) -> None:
        """Nothing more is sent, not even that the call runs."""
        self.is_named = True

    def send(self, frame: Frame) -> int:
        """Send a frame, in several messages if it is longer than one may be, and say how long it is."""
        payload = self._encode(frame)
        most = self._connection.most_bytes
        if len(payload) <= most:
            self._connection.publish(self._subject, payload, f"reply {self._request_id} ")
            self.is_named = True
            return len(payload)
        self.accept()
        if len(payload) > MOST_BYTES:
            too_long = BusError("internal_error", f"the answer has more than {MOST_BYTES} bytes, and cannot be sent")
            payload = self._encode(error_frame(too_long))
        parts = [payload[start : start + most] for start in range(0, len(payload), most)]
        for number, part in enumerate(parts, 1):
            place = f"{number}/{len(parts)}"
            self._connection.publish(self._subject, part, f"reply {self._request_id} {place}", part=place)
        return len(payload)

    def _encode(self, frame: Frame) -> bytes:
        if self.is_named:
            return encode(frame)
        return encode(SentFrame(frame.event, frame.data, frame.seq, self._node, self._window))


@dataclass(eq=False)
class Serving:
    """The calls that others make of this node."""

    _connection: NatsConnection
    _subjects: Subjects
    _neighbours: Neighbours
    _node: str
    _authenticate: Authenticate
    _receiver: Receiver
    _most_calls: int

    def __post_init__(self) -> None:
        self._calls: set[_IncomingCall] = set()
        self._running: dict[tuple[str, str], _IncomingCall] = {}  # those that were found to be in order
        self._accepting: asyncio.TimerHandle | None = None

    def take(self, message: NatsMessage) -> None:
        """Take a call, which runs in a task of its own."""
        waiting = len(self._calls)
        if waiting >= 2 * self._most_calls or not self._subjects.is_reply(message.reply):
            return  # not even for saying so: the callers give up by themselves
        call = _IncomingCall(message)
        call.task = asyncio.get_running_loop().create_task(self._run(call, is_refused=waiting >= self._most_calls))
        self._calls.add(call)

    def take_control(self, message: NatsMessage) -> None:
        """Take what a caller sends while its call runs."""
        data = decode(message.data)
        sender, request_id, number = data.get("from"), data.get("id"), data.get("n")
        running = self._running.get((cast(str, sender), cast(str, request_id)))
        if running is None or not isinstance(number, int) or number <= running.latest:
            return
        if running.is_signed and not is_from(running.sender, message, "control"):
            return
        running.latest = number
        running.control(data)

    def cancel(self, sender: str) -> None:
        """Stop the calls of a node that is gone."""
        for running in list(self._running.values()):
            if running.sender == sender:
                running.cancel()

    async def close(self, seconds: float) -> None:
        """Let the calls that run end within so many seconds, and stop the others."""
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=seconds)
        for call in self._calls:
            call.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=1)

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [call.task for call in self._calls if call.task is not None]

    async def _run(self, call: "_IncomingCall", *, is_refused: bool) -> None:
        message, key = call.message, None
        try:
            try:
                if is_refused:
                    most = self._most_calls
                    raise BusError("capacity_exceeded", f"this node answers {most} calls at a time", seconds=0.5)
                envelope = self._in_time(decode_envelope(message.data) or read_envelope(decode(message.data)))
                signature = message.headers.get(SIGNATURE, "")
                authority = self._authenticate(envelope, signature, message.data)
                if (envelope.sender, envelope.request_id) in self._running:
                    raise BusError("bad_request", "a call with this request_id runs already")
            except Exception as error:  # whatever is wrong with what others have sent, it is an answer to them
                self._fail(message, as_bus_error(error))
                return
            key = envelope.sender, envelope.request_id
            self._running[key] = call
            call.sender, call.is_signed = envelope.sender, bool(signature)
            try:
                await self._answer(call, envelope, authority)
            except BusError as error:
                _log.warning("the answer to a call of %s could not be sent: %s", envelope.capability, error)
        finally:
            self._calls.discard(call)
            if key is not None:
                del self._running[key]

    def _in_time(self, envelope: Envelope) -> Envelope:
        """The call with the seconds that its caller will still wait, by its own clock; a BusError if it has given up already."""
        if envelope.seconds is None:
            return envelope
        late = self._neighbours.seconds_since(envelope.timestamp, envelope.sender, asyncio.get_running_loop().time())
        if late >= envelope.seconds:
            raise BusError("expired", "the call has come after its deadline, and was not run")
        return envelope if late < _QUICK else replace(envelope, seconds=envelope.seconds - late)

    async def _answer(self, call: "_IncomingCall", envelope: Envelope, authority: Authority) -> None:
        window = max(WINDOW, min(envelope.window, WIDEST))
        flow = call.flow = FlowControl(widest=window) if envelope.stream else None
        replies = call.replies = Replies(self._connection, call.message.reply, envelope.request_id, self._node, window)
        loop = asyncio.get_running_loop()
        now = loop.time()
        call.accept_at = now + ACCEPT_AFTER
        if self._accepting is None:
            self._accepting = loop.call_at(call.accept_at, self._accept)
        deadline, sent = now + (envelope.seconds or _SEND_SECONDS), 0
        try:
            if flow is None:
                frame = await self._receiver.answer(envelope, authority)
                try:
                    replies.send(frame)
                except BusError as error:
                    await self._send_again(replies, frame, deadline, error)
                return
            async with closing(self._receiver.receive(envelope, authority, call.receive)) as bursts:
                async for burst in bursts:
                    while burst:
                        room = await flow.room(len(burst))
                        flow.count_bytes(await self._send(replies, burst[:room], deadline))
                        sent, burst = burst[room - 1].seq, burst[room:]
        except BusError as error:
            replies.send(error_frame(error, sent + 1))
        finally:
            replies.close()

    def _accept(self) -> None:
        """Tell the callers of calls that have run for a while that they do. One timer does for all of them."""
        loop, self._accepting = asyncio.get_running_loop(), None
        now, later = loop.time(), inf
        for call in self._running.values():
            if call.accept_at > now:
                later = min(later, call.accept_at)
            elif call.replies is not None:
                with suppress(BusError):  # the connection is lost: the caller gives up, or gets the answer itself
                    call.replies.accept()
        if later < inf:
            self._accepting = loop.call_at(later, self._accept)

    async def _send(self, replies: Replies, frames: Iterable[Frame], deadline: float) -> int:
        """Send frames, and say how long the longest is."""
        longest = 0
        for frame in frames:
            try:
                longest = max(longest, replies.send(frame))
            except BusError as error:
                longest = max(longest, await self._send_again(replies, frame, deadline, error))
        return longest

    async def _send_again(self, replies: Replies, frame: Frame, deadline: float, error: BusError) -> int:
        """Send a frame that could not be sent: if the connection is lost just now, when it is back."""
        back = deadline - asyncio.get_running_loop().time()
        if error.code != "partition" or not await self._connection.is_back(back):
            raise error
        return replies.send(frame)

    def _fail(self, message: NatsMessage, error: BusError) -> None:
        replies = Replies(self._connection, message.reply, _id_of(message), self._node)
        try:
            replies.send(error_frame(error, 1))
        except BusError as lost:
            _log.info("a refusal could not be sent: %s", lost)


class _IncomingCall:
    """A call that has come in, and what its caller sends while it runs."""

    __slots__ = ("_messages", "accept_at", "flow", "is_signed", "latest", "message", "replies", "sender", "task")

    def __init__(self, message: NatsMessage) -> None:
        self.message = message
        self.task: asyncio.Task[None] | None = None
        self.replies: Replies | None = None
        self.accept_at = 0.0  # when the caller is notified that it runs
        self.sender = ""
        self.is_signed = False
        self.latest = 0  # the number of the latest message; those before it are replays
        self.flow: FlowControl | None = None  # of an answer that is streamed
        self._messages: asyncio.Queue[Mapping[str, Json] | None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def control(self, data: Mapping[str, Json]) -> None:
        match data.get("type"):
            case "ack" if isinstance(upto := data.get("upto"), int) and self.flow is not None:
                self.flow.acknowledge(upto)
            case "message" if isinstance(body := data.get("body"), dict):
                self._queue(cast(dict[str, Json], body))
            case "end":
                self._queue(None)
            case "cancel":
                self.cancel()
            case _:
                pass  # of a newer version, or junk

    def _queue(self, message: Mapping[str, Json] | None) -> None:
        self._messages = self._messages or asyncio.Queue(_MOST_WAITING)
        try:
            self._messages.put_nowait(message)
        except asyncio.QueueFull:
            self.cancel()  # a message that is lost would be worse

    async def receive(self) -> Mapping[str, Json] | None:
        self._messages = self._messages or asyncio.Queue(_MOST_WAITING)
        message = await self._messages.get()
        if message is None:
            self._messages.put_nowait(None)  # there is still nothing more
        return message


def _id_of(message: NatsMessage) -> str:
    """The id of a call, as far as it has one."""
    with suppress(BusError):
        request_id = decode(message.data).get("request_id")
        return request_id if isinstance(request_id, str) else ""
    return ""
