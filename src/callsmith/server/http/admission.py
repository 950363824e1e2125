"""Admission: how many answers at a time, and how long each may take."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Generator
from contextlib import contextmanager
from typing import TypeVar

from callsmith.core.closing import closing
from callsmith.core.errors import QueueFull, TimedOut
from callsmith.runtime.deadline import DeadlinePassed, finish_by, with_deadline

T = TypeVar("T")

_LATEST_WEIGHT = 0.2  # how much the latest answer counts in what one takes on average


class AdmissionGate:
    """Counts the answers being given or waited for, and refuses more than so many."""

    def __init__(self) -> None:
        self.active = 0
        self._average = 1.0  # seconds an answer takes

    def check(self, most: int, waiting: int = 0) -> None:
        """`QueueFull` if one more answer is too many, besides those that are `waiting` to be admitted."""
        if self.active + waiting >= most:
            raise QueueFull(most, self._average)

    @contextmanager
    def admit(self, most: int) -> Generator[None, None, None]:
        """Count one more answer while the block lasts; `QueueFull` if there are too many already."""
        self.check(most)
        clock = asyncio.get_running_loop().time
        began = clock()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            self._average += _LATEST_WEIGHT * (clock() - began - self._average)


class Deadline:
    """So many seconds from now, after which an answer that is not complete is an error; None: any number."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._until = None if seconds is None else asyncio.get_running_loop().time() + seconds

    async def wait_for(self, work: Awaitable[T]) -> T:
        """What the work comes to, if that is in time."""
        try:
            return await finish_by(self._until, work)
        except DeadlinePassed:
            raise self._passed() from None

    def limit(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """The items, as long as they come in time."""
        return items if self._until is None else self._limited(items, self._until)

    async def _limited(self, items: AsyncIterator[T], until: float) -> AsyncIterator[T]:
        try:
            async with closing(with_deadline(items, until)) as timed:
                async for item in timed:
                    yield item
        except DeadlinePassed:
            raise self._passed() from None

    def _passed(self) -> TimedOut:
        return TimedOut(f"there was no complete answer within {self._seconds:g} s")
