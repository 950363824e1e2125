"""What an async iterator has ready is taken at once, and nothing of it is held back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from callsmith.server.http.ready import ReadyItems


async def in_groups(*groups: str, pause: float = 0.0) -> AsyncIterator[str]:
    """The letters of each group at once, and a pause between groups."""
    for number, group in enumerate(groups):
        if number:
            await asyncio.sleep(pause)
        for letter in group:
            yield letter


async def taken(items: AsyncIterator[str]) -> list[str]:
    found: list[str] = []
    async with aclosing(ReadyItems(items)) as ready:
        while letters := await ready.take():
            found.append("".join(letters))
    return found


@pytest.mark.parametrize("pause", [0.0, 0.01])
async def test_what_comes_together_is_taken_together(pause: float) -> None:
    assert await taken(in_groups("abc", "d", "ef", pause=pause)) == ["abc", "d", "ef"]


async def test_there_may_be_nothing() -> None:
    assert await taken(in_groups()) == []


async def test_nothing_is_held_back_until_more_comes() -> None:
    never = asyncio.Event()

    async def items() -> AsyncIterator[str]:
        yield "a"
        await never.wait()

    async with asyncio.timeout(5), aclosing(ReadyItems(items())) as ready:
        assert await ready.take() == ["a"]


async def test_an_endless_supply_is_taken_in_parts() -> None:
    async def endless() -> AsyncIterator[str]:
        while True:
            yield "a"

    async with aclosing(ReadyItems(endless())) as ready:
        assert 1 < len(await ready.take()) < 1000


async def test_what_came_before_an_error_is_taken_first() -> None:
    async def failing() -> AsyncIterator[str]:
        yield "a"
        raise ValueError("no more")

    ready = ReadyItems(failing())
    assert await ready.take() == ["a"]
    with pytest.raises(ValueError, match="no more"):
        await ready.take()
    assert await ready.take() == []
    await ready.aclose()


async def test_a_task_that_is_cancelled_while_it_waits_cancels_what_it_waits_for() -> None:
    ended: list[str] = []
    ready = ReadyItems(waiting(ended))

    async def take_all() -> None:
        async with aclosing(ready):
            while await ready.take():
                pass

    task = asyncio.create_task(take_all())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["CancelledError", "closed"]


async def waiting(ended: list[str]) -> AsyncIterator[str]:
    """One item, then a wait without an end."""
    try:
        yield "a"
        await asyncio.Event().wait()
    except BaseException as error:
        ended.append(type(error).__name__)
        await asyncio.sleep(0)  # to tidy up may take its time
        ended.append("closed")
        raise


async def test_closing_gives_up_what_is_being_waited_for() -> None:
    ended: list[str] = []
    ready = ReadyItems(waiting(ended))
    assert await ready.take() == ["a"]
    await ready.aclose()
    assert ended == ["CancelledError", "closed"]


async def test_closing_cancels_a_task_that_is_being_waited_for() -> None:
    task = asyncio.create_task(asyncio.sleep(60))

    async def items() -> AsyncIterator[str]:
        yield "a"
        await task

    ready = ReadyItems(items())
    assert await ready.take() == ["a"]
    await ready.aclose()
    assert task.cancelled()


async def test_closing_after_what_was_waited_for_has_come_ends_it_too() -> None:
    event, ended = asyncio.Event(), list[str]()

    async def items() -> AsyncIterator[str]:
        try:
            yield "a"
            await event.wait()
            yield "b"
        finally:
            ended.append("closed")

    ready = ReadyItems(items())
    assert await ready.take() == ["a"]
    event.set()
    await asyncio.sleep(0)
    await ready.aclose()
    assert ended == ["closed"]


async def test_closing_where_others_have_their_turn_ends_it() -> None:
    ended: list[str] = []

    async def items() -> AsyncIterator[str]:
        try:
            yield "a"
            while True:
                await asyncio.sleep(0)
        finally:
            ended.append("closed")

    ready = ReadyItems(items())
    assert await ready.take() == ["a"]
    await ready.aclose()
    assert ended == ["closed"]


async def test_an_error_while_closing_is_raised() -> None:
    async def items() -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            raise ValueError("not closed")

    ready = ReadyItems(items())
    assert await ready.take() == ["a"]
    with pytest.raises(ValueError, match="not closed"):
        await ready.aclose()
