"""Async code for callers that are not async: it runs in one event loop of its own, in a background thread.

Connections and engines stay in the same loop from call to call, and a caller may be inside a running loop, which it blocks. With
the program the loop ends as any does: what still runs is cancelled, and connections are closed.
"""

import asyncio
import atexit
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_END = object()
_PATIENCE = 2.0  # seconds that the end of the program waits for the loop


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. The context variables of the caller are the work's."""
    future = _start(work)
    try:
        return future.result()
    except BaseException:  # also an interruption of the caller: nobody waits for the result any more
        future.cancel()
        raise


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The items, each as soon as it is there. Whoever stops early stops the iterator."""
    arrived: SimpleQueue[Any] = SimpleQueue()

    async def pass_on() -> None:
        try:
            async with closing(items) as running:
                async for item in running:
                    arrived.put(item)
        finally:
            arrived.put(_END)

    future = _start(pass_on())
    try:
        while (item := arrived.get()) is not _END:
            yield item
        future.result()  # raises what the iterator has raised
    finally:
        future.cancel()


def _start(work: Coroutine[Any, Any, T]) -> "Future[T]":
    loop = _running_loop()
    if threading.current_thread() is _thread:
        work.close()
        raise UsageError("this is called from async code of the same thread, for which it would wait forever: await it instead")
    return asyncio.run_coroutine_threadsafe(work, loop)


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():  # after a fork there is a loop, but no thread
            if _loop is None:
                atexit.register(_end_loop)
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="callsmith-adapters", daemon=True)
            _thread.start()
        return _loop


def _end_loop() -> None:
    if _loop is None or _thread is None or not _thread.is_alive():
        return
    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(_end_work(_loop), _loop).result(_PATIENCE)


async def _end_work(loop: asyncio.AbstractEventLoop) -> None:
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await loop.shutdown_asyncgens()
