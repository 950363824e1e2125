"""Deadlines, as times of the event loop's clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from callsmith.core.closing import closing

T = TypeVar("T")


class DeadlinePassed(Exception):
    """The work had not ended by its deadline. Whoever set the deadline catches this."""


async def finish_by(until: float | None, work: Awaitable[T]) -> T:
    """The result of the work; at `until` it is cancelled and DeadlinePassed raised. A TimeoutError of its own stays one."""
    scope = asyncio.timeout_at(until)
    try:
        async with scope:
            return await work
    except TimeoutError:
        if not scope.expired():
            raise
        raise DeadlinePassed from None


async def with_deadline(items: AsyncIterator[T], until: float) -> AsyncIterator[T]:
    """Pass on the items; at `until`, close the iterator and raise DeadlinePassed."""
    async with closing(items):
        while True:
            try:
                item = await finish_by(until, anext(items))
            except StopAsyncIteration:
                return
            yield item
