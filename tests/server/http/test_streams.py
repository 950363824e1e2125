"""A stream whose client reads slowly, while the time for the answer runs out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callsmith.core.errors import TimedOut
from callsmith.runtime.deadline import DeadlinePassed, with_deadline
from callsmith.server.admission import Deadline
from callsmith.server.http.streams import EventStream


async def words() -> AsyncIterator[bytes]:
    yield b"a"
    await asyncio.sleep(60)


async def with_its_own_deadline() -> AsyncIterator[bytes]:
    try:
        async for word in with_deadline(words(), asyncio.get_running_loop().time() + 0.05):
            yield word
    except DeadlinePassed:
        yield b"over"


async def with_the_servers_deadline() -> AsyncIterator[bytes]:
    deadline = Deadline(0.05)
    with deadline:
        async for word in words():
            deadline.pass_on()
            yield word
            deadline.go_on()


async def sent_of(frames: AsyncIterator[bytes], seconds: float) -> tuple[list[bytes], list[BaseException]]:
    """What is sent to a client that takes so many seconds to read a word, and the errors that are reported."""
    sent: list[bytes] = []
    errors: list[BaseException] = []

    async def send(message: Any) -> None:
        if message.get("body") == b"a":
            await asyncio.sleep(seconds)
        sent.append(message.get("body", b""))

    def failure(error: BaseException) -> bytes:
        errors.append(error)
        return b"failed"

    async with asyncio.timeout(20):
        await EventStream(frames, failure)({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]
    return sent, errors


@pytest.mark.parametrize("frames", [with_its_own_deadline, with_the_servers_deadline])
async def test_an_answer_whose_time_is_over_while_its_client_does_not_read_is_told_as_that(
    frames: Callable[[], AsyncIterator[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    sent, [error] = await sent_of(frames(), 0.2)
    assert isinstance(error, TimedOut)
    assert sent[-2:] == [b"failed", b""]
    assert not caplog.records


async def test_a_client_that_reads_gets_all_of_an_answer_whose_time_is_over() -> None:
    assert await sent_of(with_its_own_deadline(), 0) == ([b"", b"a", b"over", b""], [])
