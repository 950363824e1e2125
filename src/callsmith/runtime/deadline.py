"""A deadline for an asynchronous iterator."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from callsmith.core.closing import closing

T = TypeVar("T")


class DeadlinePassed(Exception):
    """The iterator had not ended by its deadline. Whoever set the deadline catches this."""


async def with_deadline(items: AsyncIterator[T], until: float) -> AsyncIterator[T]:
    """Pass on the items; at `until`, a time of the event loop's clock, close the iterator and raise DeadlinePassed.

    A TimeoutError of the iterator's own is raised as it is.
    """
    async with closing(items):
        while True:
            scope = asyncio.timeout_at(until)
            try:
                async with scope:
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not scope.expired():
                    raise
                raise DeadlinePassed from None
            yield item
