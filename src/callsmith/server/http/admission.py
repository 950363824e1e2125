"""How many answers at a time, and how long each may take."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from callsmith.core.closing import closing
from callsmith.core.errors import QueueFull, TimedOut
from callsmith.runtime.deadline import DeadlinePassed, with_deadline

T = TypeVar("T")

_LATEST_WEIGHT = 0.2  # how much the latest answer counts in what one takes on average


class AdmissionGate:
    """Counts who is inside, and refuses whoever comes when it is full."""

    def __init__(self) -> None:
        self.active = 0
        self._average = 1.0  # seconds an answer takes

    async def admit(self, items: AsyncIterator[T], most: int) -> AsyncIterator[T]:
        """The items, unless there are too many who want theirs."""
        async with closing(items):
            if self.active >= most:
                raise QueueFull(most, self._average)
            clock = asyncio.get_running_loop().time
            began = clock()
            self.active += 1
            try:
                async for item in items:
                    yield item
            finally:
                self.active -= 1
                self._average += _LATEST_WEIGHT * (clock() - began - self._average)


async def within(items: AsyncIterator[T], seconds: float) -> AsyncIterator[T]:
    """The items, if the last of them comes within so many seconds; else TimedOut is raised."""
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with closing(with_deadline(items, deadline)) as timed:
            async for item in timed:
                yield item
    except DeadlinePassed:
        raise TimedOut(f"there was no complete answer within {seconds:g} s") from None
