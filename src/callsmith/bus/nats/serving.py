"""Incoming calls: checks who sends them, runs them by the bus of this node, and sends back what it gives."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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
            self._publish(payload)
            self.is_named = True
            return len(payload)
        self.accept()
        if len(payload) > MOST_BYTES:
            too_long = BusError("internal_error", f"the answer has more than {MOST_BYTES} bytes, and cannot be sent")
            payload = self._encode(error_frame(too_long))
        parts = [payload[start : start + most] for start in range(0, len(payload), most)]
        for number, part in enumerate(parts, 1):
            self._publish(part, f"{number}/{len(parts)}")
        return len(payload)

    def _encode(self, frame: Frame) -> bytes:
        if self.is_named:
            return encode(frame)
        return encode(SentFrame(frame.event, frame.data, frame.seq, self._node, self._window))

    def _publish(self, payload: bytes, part: str = "") -> None:
        self._connection.publish(self._subject, payload, f"reply {self._request_id} {part}", part=part)


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
        self._running: dict[tuple[str, str], _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unaccepted: deque[tuple[float, Replies]] = deque()  # and when their callers are notified that they run
        self._accepting: asyncio.TimerHandle | None = None

    def take(self, message: NatsMessage) -> None:
        """Take a call, which runs in a task of its own."""
        if not self._subjects.is_reply(message.reply) or len(self._tasks) >= 2 * self._most_calls:
            return  # not even for saying so: the callers give up by themselves
        full = len(self._tasks) >= self._most_calls
        task = asyncio.get_running_loop().create_task(self._run(message, is_refused=full))
        self._tasks.add(task)

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
                running.task.cancel()

    async def close(self, seconds: float) -> None:
        """Let the calls that run end within so many seconds, and stop the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    async def _run(self, message: NatsMessage, *, is_refused: bool) -> None:
        try:
            if is_refused:
                most = self._most_calls
                self._fail(message, BusError("capacity_exceeded", f"this node answers {most} calls at a time", seconds=0.5))
            else:
                await self._serve(message)
        finally:
            self._tasks.discard(_this_task())

    async def _serve(self, message: NatsMessage) -> None:
        try:
            envelope = self._in_time(decode_envelope(message.data) or read_envelope(decode(message.data)))
            signature = message.headers.get(SIGNATURE, "")
            authority = self._authenticate(envelope, signature, message.data)
            key = envelope.sender, envelope.request_id
            if key in self._running:
                raise BusError("bad_request", "a call with this request_id runs already")
        except Exception as error:  # whatever is wrong with what others have sent, it is an answer to them
            self._fail(message, as_bus_error(error))
            return
        running = self._running[key] = _Running(
            _this_task(), envelope.sender, FlowControl(widest=min(envelope.window, WIDEST)), is_signed=bool(signature)
        )
        try:
            await self._answer(message, envelope, authority, running)
        except BusError as error:
            _log.warning("the answer to a call of %s could not be sent: %s", envelope.capability, error)
        finally:
            del self._running[key]

    def _in_time(self, envelope: Envelope) -> Envelope:
        """The call with the seconds that its caller will still wait, by its own clock; a BusError if it has given up already."""
        if envelope.seconds is None:
            return envelope
        late = time.time() - envelope.timestamp - self._neighbours.behind(envelope.sender)
        if late >= envelope.seconds:
            raise BusError("expired", "the call has come after its deadline, and was not run")
        return envelope if late < _QUICK else replace(envelope, seconds=envelope.seconds - late)

    async def _answer(self, message: NatsMessage, envelope: Envelope, authority: Authority, running: "_Running") -> None:
        replies = Replies(self._connection, message.reply, envelope.request_id, self._node, running.flow.widest)
        loop = asyncio.get_running_loop()
        self._accept_later(replies, loop.time() + ACCEPT_AFTER)
        deadline = loop.time() + (envelope.seconds or _SEND_SECONDS)
        sent = 0
        try:
            if not envelope.stream:
                await self._send(replies, (await self._receiver.answer(envelope, authority),), deadline)
                return
            async with closing(self._receiver.receive(envelope, authority, running.receive)) as bursts:
                async for burst in bursts:
                    while burst:
                        room = await running.flow.room(len(burst))
                        running.flow.count_bytes(await self._send(replies, burst[:room], deadline))
                        sent, burst = burst[room - 1].seq, burst[room:]
        except BusError as error:
            replies.send(error_frame(error, sent + 1))
        finally:
            replies.close()

    def _accept_later(self, replies: Replies, at: float) -> None:
        """Tell the caller at this time that its call runs, unless it has got an answer. One timer does for many calls."""
        self._unaccepted.append((at, replies))
        if self._accepting is None:
            self._accepting = asyncio.get_running_loop().call_at(at, self._accept)

    def _accept(self) -> None:
        loop, self._accepting = asyncio.get_running_loop(), None
        now = loop.time()
        while self._unaccepted and self._unaccepted[0][0] <= now:
            replies = self._unaccepted.popleft()[1]
            if not replies.is_named:
                with suppress(BusError):  # the connection is lost: the caller gives up, or gets the answer itself
                    replies.accept()
        if self._unaccepted:
            self._accepting = loop.call_at(self._unaccepted[0][0], self._accept)

    async def _send(self, replies: Replies, frames: Iterable[Frame], deadline: float) -> int:
        """Send frames; if the connection is lost just now, when it is back. How long the longest is."""
        longest = 0
        for frame in frames:
            try:
                longest = max(longest, replies.send(frame))
            except BusError as error:
                back = deadline - asyncio.get_running_loop().time()
                if error.code != "partition" or not await self._connection.is_back(back):
                    raise
                longest = max(longest, replies.send(frame))
        return longest

    def _fail(self, message: NatsMessage, error: BusError) -> None:
        replies = Replies(self._connection, message.reply, _id_of(message), self._node)
        try:
            replies.send(error_frame(error, 1))
        except BusError as lost:
            _log.info("a refusal could not be sent: %s", lost)


class _Running:
    """A call that runs here, and what its caller sends meanwhile."""

    __slots__ = ("_messages", "flow", "is_signed", "latest", "sender", "task")

    def __init__(self, task: "asyncio.Task[None]", sender: str, flow: FlowControl, *, is_signed: bool) -> None:
        self.task = task
        self.sender = sender
        self.is_signed = is_signed
        self.latest = 0  # the number of the latest message; those before it are replays
        self.flow = flow
        self._messages: asyncio.Queue[Mapping[str, Json] | None] | None = None

    def control(self, data: Mapping[str, Json]) -> None:
        match data.get("type"):
            case "ack" if isinstance(upto := data.get("upto"), int):
                self.flow.acknowledge(upto)
            case "message" if isinstance(body := data.get("body"), dict):
                self._queue(cast(dict[str, Json], body))
            case "end":
                self._queue(None)
            case "cancel":
                self.task.cancel()
            case _:
                pass  # of a newer version, or junk

    def _queue(self, message: Mapping[str, Json] | None) -> None:
        self._messages = self._messages or asyncio.Queue(_MOST_WAITING)
        try:
            self._messages.put_nowait(message)
        except asyncio.QueueFull:
            self.task.cancel()  # a message that is lost would be worse

    async def receive(self) -> Mapping[str, Json] | None:
        self._messages = self._messages or asyncio.Queue(_MOST_WAITING)
        message = await self._messages.get()
        if message is None:
            self._messages.put_nowait(None)  # there is still nothing more
        return message


def _this_task() -> "asyncio.Task[None]":
    task = asyncio.current_task()
    assert task is not None
    return task


def _id_of(message: NatsMessage) -> str:
    """The id of a call, as far as it has one."""
    with suppress(BusError):
        request_id = decode(message.data).get("request_id")
        return request_id if isinstance(request_id, str) else ""
    return ""
