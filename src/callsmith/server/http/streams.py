"""JSON responses and event streams, and cancelling the work when a client disconnects.

Most events of a stream are pieces of text, and successive ones differ in nothing but the text: what is around it is encoded once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, TimedOut
from callsmith.core.events import Text
from callsmith.core.values import Json
from callsmith.server.http.ready import ReadyItems
from callsmith.wire.sse import KEEP_ALIVE, write_frame

T = TypeVar("T")

_log = logging.getLogger(__name__)

E = TypeVar("E")

_PART: Final = 5_000  # values that are encoded at once
# In a scope: what sends a piece of a body that has begun. The middleware of the application cares for beginnings alone.
DIRECT_SEND: Final = "callsmith.direct_send"
encode = msgspec.json.Encoder().encode


class JsonResponse(Response):
    """A JSON response, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Json) -> bytes:
        return msgspec.json.encode(content)


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work; if the client disconnects meanwhile, cancel it and raise ClientDisconnect."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        await cancel_all(working, leaving)


class EventStream(Response):
    """A response of frames, as a `text/event-stream` or another type. `alive` is the frame that is sent as a keep-alive.

    The response begins with the first frame or the first keep-alive: what fails before that is an ordinary error response, what
    fails afterwards is reported in a last frame, written by `failure`. A client that disconnects ends the work at once, and so
    does one that has not read for `stalled` seconds.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        failure: Callable[[BaseException], bytes],
        *,
        keep_alive: float = 15.0,
        stalled: float = 60.0,
        alive: bytes = KEEP_ALIVE,
        media_type: str | None = None,
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"}, media_type=media_type)
        del self.headers["content-length"]
        self._frames = frames
        self._failure = failure
        self._keep_alive = keep_alive
        self._alive = alive
        self._stalled = stalled
        self._sending = 0
        self._begun = False
        self._direct: Send | None = None
        self._clock = asyncio.get_running_loop().time
        self._latest = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._latest, self._direct = self._clock(), scope.get(DIRECT_SEND)
        sending = asyncio.create_task(self._send_frames(send))
        leaving, ticking = asyncio.create_task(_wait_for_disconnect(receive)), asyncio.create_task(self._tick(send))
        try:
            await asyncio.wait({sending, leaving, ticking}, return_when=asyncio.FIRST_COMPLETED)
            ticking.cancel()
            if not sending.done():
                return
            error = _error_of(sending)
            if error is not None:
                if not self._begun:
                    raise error
                await self._send(send, self._failure(error))
                if not isinstance(error, CallsmithError):
                    # Not raised: the HTTP server would close a connection on which the client may already ask again.
                    _log.error("an answer failed while it was streamed", exc_info=error)
            if not self._begun:  # there was nothing to send
                await self._send(send, b"")
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await cancel_all(sending, leaving, ticking)

    async def _send_frames(self, send: Send) -> None:
        try:
            async with aclosing(ReadyItems(self._frames)) as ready:
                while frames := await ready.take():
                    await self._send(send, b"".join(frames))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The next frame is waited for while others are sent: its own deadline has passed then, and has cancelled the sending.
            raise TimedOut("the time for this answer was over while its client did not read") from None

    async def _tick(self, send: Send) -> None:
        """Send keep-alives; returns when the client has stopped to read."""
        while True:
            due = self._latest + (self._stalled if self._sending else self._keep_alive)
            await asyncio.sleep(max(0.0, min(due - self._clock(), self._stalled)))
            idle = self._clock() - self._latest
            if self._sending and idle >= self._stalled:
                return
            if not self._sending and idle >= self._keep_alive:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._stalled):
                        await self._send(send, self._alive)

    async def _send(self, send: Send, body: bytes) -> None:
        self._latest = self._clock()
        self._sending += 1
        try:
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await (self._direct or send)({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            self._sending -= 1


async def collect_items(items: AsyncIterator[T]) -> list[T]:
    """All items of an async iterator, which is closed afterwards."""
    async with closing(items):
        return [item async for item in items]


async def merge_streams(streams: Sequence[AsyncIterator[T]]) -> AsyncIterator[tuple[int, T]]:
    """The items of several concurrent streams as they arrive, each with the number of its stream. The first failure ends all."""
    coming: asyncio.Queue[tuple[int, T] | asyncio.Task[None]] = asyncio.Queue()
    consumed = asyncio.Semaphore(0)  # no stream is more than one item ahead of the reader

    async def pump(number: int, stream: AsyncIterator[T]) -> None:
        async with closing(stream) as items:
            async for item in items:
                coming.put_nowait((number, item))
                await consumed.acquire()

    pumps = [asyncio.create_task(pump(number, stream)) for number, stream in enumerate(streams)]
    for pump_task in pumps:
        pump_task.add_done_callback(coming.put_nowait)
    try:
        for _ in pumps:
            while not isinstance(item := await coming.get(), asyncio.Task):
                yield item
                consumed.release()
            item.result()
    finally:
        await cancel_all(*pumps)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_first_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Do all of this at the same time, until one of it has ended; the rest is cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(*tasks)


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks that still run, and wait until they have ended."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in tasks:
        _error_of(task)  # retrieved, so that asyncio does not warn about it


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return RuntimeError("the work was cancelled from within") if task.cancelled() else task.exception()


def encode_in_parts(body: Mapping[str, Json]) -> bytes:
    """An object as JSON, long lists in it part by part: in a thread, others go on in between."""
    return b"{%s}" % b",".join(encode(name) + b":" + _in_parts(value) for name, value in body.items())


def _in_parts(value: Json) -> bytes:
    if not isinstance(value, list):
        return encode(value)
    items = cast("list[Json]", value)
    return b"[%s]" % b",".join(encode(items[start : start + _PART])[1:-1] for start in range(0, len(items), _PART))


def encode_frames(bodies: Iterable[Json]) -> bytes:
    """These as server-sent events, in one piece."""
    return b"".join(write_frame(encode(body)) for body in bodies)


async def write_frames(
    events: AsyncIterator[E], write: Callable[[E], bytes], close: Callable[[], bytes] = bytes, begin: bytes = b""
) -> AsyncIterator[bytes]:
    """The frames of an answer: those that its events make, and what comes before and behind them."""
    if begin:
        yield begin
    async with closing(events) as items:
        async for event in items:
            if frame := write(event):
                yield frame
    if ending := close():
        yield ending


class CachedFrames(Generic[E]):
    """Encodes events with `write`, and caches the bytes around the text of successive `Text` events.

    To find them, `write` is also called with a text that is not sent; this must not change what it writes later.
    """

    def __init__(self, write: Callable[[E | Text], bytes]) -> None:
        self._write = write
        self._around: tuple[bytes, bytes] | None = None

    def encode_event(self, event: E) -> bytes:
        """The bytes of an event, all in one piece; empty if nothing is sent for it."""
        text = event.text if type(event) is Text and not event.logprobs else ""
        if text and self._around:
            return self._around[0] + encode(text) + self._around[1]
        encoded = self._write(event)
        self._around = self._frame_around_text() if text and encoded else None
        return encoded

    def _frame_around_text(self) -> tuple[bytes, bytes]:
        mark = uuid4().hex
        before, _, behind = self._write(Text(mark)).partition(encode(mark))
        return before, behind
