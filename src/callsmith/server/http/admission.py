"""How many answers at a time, and how long each may take."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from callsmith.core.closing import closing
from callsmith.core.errors import QueueFull, TimedOut

T = TypeVar("T")

_FORGETTING = 0.2  # how much the latest answer counts in what one takes on average


class AdmissionGate:
    """Counts who is inside, and refuses whoever comes when it is full."""

    def __init__(self) -> None:
        self.inside = 0
        self._average = 1.0  # seconds an answer takes

    async def admitted(self, items: AsyncIterator[T], most: int) -> AsyncIterator[T]:
        """The items, unless there are too many who want theirs."""
        async with closing(items):
            if self.inside >= most:
                raise QueueFull(most, self._average)
            clock = asyncio.get_running_loop().time
            began = clock()
            self.inside += 1
            try:
                async for item in items:
                    yield item
            finally:
                self.inside -= 1
                self._average += _FORGETTING * (clock() - began - self._average)


async def with_deadline(items: AsyncIterator[T], seconds: float) -> AsyncIterator[T]:
    """The items, until the time is up: then it is an error."""
    until = asyncio.get_running_loop().time() + seconds
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
                raise TimedOut(f"there was no complete answer within {seconds:g} s") from None
            yield item
