"""`run_sync`: the async library for programs that have no event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import RunEvent, TurnEnded
from callsmith.core.ports import Context, Model
from callsmith.core.values import Request
from callsmith.runtime.deferred import GivenTools
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import NO_CONTEXT, run

T = TypeVar("T")


def collect(events: AsyncIterator[T]) -> list[T]:
    """Run an async iterator to its end and return all items, in a program that has no event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_all(events))
    raise UsageError("an event loop is already running here: use `async for event in run(...)` instead")


def run_sync(
    model: Model,
    toolset: GivenTools | None,
    request: Request | str,
    *,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
    guards: Iterable[str] | None = None,
) -> TurnEnded:
    """Run a request (or a text) to its end, as `run` does, and return the last event; its `text` is the answer."""
    events: list[RunEvent] = collect(run(model, toolset, request, limits=limits, context=context, guards=guards))
    ended = events[-1]
    assert isinstance(ended, TurnEnded)  # run() ends in nothing else
    return ended


async def _all(events: AsyncIterator[T]) -> list[T]:
    async with closing(events) as items:
        return [event async for event in items]
