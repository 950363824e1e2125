"""A response being given: it is stored before its end is sent, can be cancelled from outside, and costs little per token."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import coroutine
from typing import Any, TypeAlias
from uuid import uuid4

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError
from callsmith.core.events import Stopped, Text
from callsmith.core.values import Json
from callsmith.server.http.streams import encode
from callsmith.wire.openai.common import write_error
from callsmith.wire.openai.mcp_events import McpEvent, McpWriter
from callsmith.wire.openai.responses_events import StreamEvent
from callsmith.wire.sse import write_frame

Framing: TypeAlias = Callable[[StreamEvent], bytes]

_SETTLING = 5.0  # seconds a stopped answer gets to end
_NUMBER = 10**18  # stands for a number that is not known yet


def write_sse(event: StreamEvent) -> bytes:
    return write_frame(encode(event), event["type"].encode())


@dataclass(slots=True, eq=False)
class LiveResponse:
    """An answer being given, as a whole or as a stream; meanwhile it is `running`, by its id."""

    events: AsyncIterator[McpEvent]
    writer: McpWriter
    store: Callable[[Json], Awaitable[None]]
    running: "dict[str, LiveResponse]"
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: bool = False
    _waits_for: Any = None  # the future that the next event waits for; None: the other tasks' turn
    _is_waiting: bool = False  # for the next event
    _gives_up: bool = False  # as soon as it is its turn again

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._stopped = True
        if self._is_waiting:  # not the task is cancelled: it may be sending meanwhile what came before (`ReadyItems`)
            self._gives_up = self._waits_for is None or not self._waits_for.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), _SETTLING)

    async def whole(self) -> Json:
        """The response, when all of it is there."""
        with self._register():
            async with closing(self.events):
                while (event := await self._next()) is not None:
                    self.writer.write(event)
            self._end()
            await self.store(self.writer.response())
        return self.writer.response()

    async def frames(self, framing: Framing = write_sse) -> AsyncIterator[bytes]:
        """The stream. Once it has begun, a failure is a part of it."""
        frames, ending = _Frames(self.writer, framing), list[StreamEvent]()
        with self._register():
            try:
                async with closing(self.events):
                    while (event := await self._next()) is not None:
                        if isinstance(event, Stopped):
                            ending += self.writer.write(event)
                        elif frame_bytes := frames.of(event):
                            yield frame_bytes
                ending += self._end()
                await self.store(self.writer.response())
            except CallsmithError as error:
                if not self.writer.begun:
                    raise
                ending = [*ending[:-1], *self.writer.fail(write_error(error))]
                await self.keep()
            yield frames.write(ending)

    async def keep(self) -> None:
        """Store the response as it is now, if that is possible."""
        with suppress(CallsmithError):
            await self.store(self.writer.response())

    def failure(self, error: BaseException, framing: Framing = write_sse) -> bytes:
        """The last frames of a stream that broke down."""
        return b"".join(map(framing, self.writer.fail(write_error(error))))

    def _end(self) -> list[StreamEvent]:
        """What an answer still lacks whose events are over."""
        if self.writer.ended:
            return []
        return self.writer.cancel() if self._stopped else self.writer.close()

    @coroutine
    def _next(self) -> Generator[Any, Any, McpEvent | None]:
        """The next event; None if there is none, or nobody wants it any more."""
        if self._stopped:
            return None
        task = asyncio.current_task()
        assert task is not None
        coming, others = anext(self.events, None).__await__(), task.cancelling()
        try:
            waits_for = coming.send(None)
            while True:
                self._waits_for, self._is_waiting = waits_for, True
                try:
                    sent = yield waits_for
                    if self._gives_up:
                        raise asyncio.CancelledError
                except BaseException as error:
                    self._is_waiting = self._gives_up = False
                    waits_for = coming.throw(error)
                else:
                    waits_for = coming.send(sent)
        except StopIteration as event:
            return event.value
        except asyncio.CancelledError:
            if not self._stopped or task.cancelling() > others:
                raise  # it was not `stop`, or not only
            return None
        finally:
            self._is_waiting, self._waits_for = False, None

    @contextmanager
    def _register(self) -> Generator[None, None, None]:
        self.running[self.writer.id] = self
        try:
            yield
        finally:
            del self.running[self.writer.id]
            self._over.set()


class _Frames:
    """Encodes what is sent. Most of it is text deltas, and within a message those differ only in a number and the text."""

    def __init__(self, writer: McpWriter, framing: Framing = write_sse) -> None:
        self._writer = writer
        self._framing = framing
        self._around: tuple[bytes, bytes, bytes] | None = None  # before and behind the number, and behind the text

    def of(self, event: McpEvent) -> bytes:
        """The frames of an event, in one piece."""
        text = event.text if type(event) is Text and not event.logprobs else ""
        if text and self._around and (number := self._writer.continue_text(text)) is not None:
            return b"%b%d%b%b%b" % (self._around[0], number, self._around[1], encode(text), self._around[2])
        sent = self._writer.write(event)
        self._around = self._cut(sent[-1]) if text and sent else None
        return self.write(sent)

    def write(self, sent: list[StreamEvent]) -> bytes:
        return b"".join(map(self._framing, sent))

    def _cut(self, delta: StreamEvent) -> tuple[bytes, bytes, bytes]:
        mark = uuid4().hex
        frame = self.write([{**delta, "sequence_number": _NUMBER, "delta": mark}])
        before, _, rest = frame.partition(b"%d" % _NUMBER)
        between, _, behind = rest.partition(encode(mark))
        return before, between, behind
