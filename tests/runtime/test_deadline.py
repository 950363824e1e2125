"""Deadlines of asynchronous iterators."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from callsmith.runtime.deadline import DeadlinePassed, with_deadline


class Ticks:
    """Gives these items and then, if it hangs, nothing more. `closed` says whether it was closed."""

    def __init__(self, *items: int, hangs: bool = False, error: Exception | None = None) -> None:
        self.closed = False
        self._parts = (items, hangs, error)

    async def items(self) -> AsyncIterator[int]:
        items, hangs, error = self._parts
        try:
            for item in items:
                yield item
            if error:
                raise error
            if hangs:
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_items_in_time_are_passed_on():
    until = asyncio.get_running_loop().time() + 60
    assert [item async for item in with_deadline(Ticks(1, 2).items(), until)] == [1, 2]


async def test_at_the_deadline_the_iterator_is_closed_and_an_error_raised():
    ticks, got = Ticks(1, hangs=True), list[int]()
    with pytest.raises(DeadlinePassed):
        async for item in with_deadline(ticks.items(), asyncio.get_running_loop().time() + 0.02):
            got.append(item)
    assert (got, ticks.closed) == ([1], True)


async def test_a_timeout_of_the_iterators_own_is_not_taken_for_the_deadline():
    until = asyncio.get_running_loop().time() + 60
    with pytest.raises(TimeoutError, match="my own"):
        async for _ in with_deadline(Ticks(1, error=TimeoutError("my own")).items(), until):
            pass
