"""The body of an answer is given up when it is waited for too long, by one timer for all of it."""

import asyncio
import time
from typing import Any

import pytest

from callsmith.core.errors import TimedOut
from callsmith.engines.upstream import BrokeOff
from callsmith.engines.upstream.body import ResponseBody

aiohttp = pytest.importorskip("aiohttp")
yarl = pytest.importorskip("yarl")


class Connection:
    """What a stream of aiohttp asks of its connection."""

    connected = True
    _reading_paused = False

    def pause_reading(self) -> None: ...

    def resume_reading(self, resume_parser: bool = True) -> None: ...


class Response:
    """A response whose body a test feeds."""

    def __init__(self) -> None:
        connection: Any = Connection()
        self.content = aiohttp.StreamReader(connection, 2**16, loop=asyncio.get_running_loop())
        self.url = yarl.URL("http://there/v1")


def body(silence: float) -> tuple[Any, ResponseBody]:
    response: Any = Response()
    return response.content, ResponseBody(response, silence)


async def test_pieces_that_come_in_time_may_take_as_long_as_they_like_together() -> None:
    content, pieces = body(0.2)

    async def send() -> None:
        for _ in range(5):
            await asyncio.sleep(0.08)
            content.feed_data(b"piece")
        content.feed_eof()

    sending, read = asyncio.create_task(send()), list[bytes]()
    with pieces:
        while data := await pieces.read():
            read.append(data)
    await sending
    assert b"".join(read) == b"piece" * 5


@pytest.mark.parametrize("heard_after", [0.0, 0.15])
async def test_silence_ends_it_as_long_after_the_last_piece_as_it_may_last(heard_after: float) -> None:
    content, pieces = body(0.2)
    with pieces:
        await asyncio.sleep(heard_after)
        content.feed_data(b"piece")
        assert await pieces.read() == b"piece"
        began = time.monotonic()
        with pytest.raises(TimedOut, match=r"nothing for 0\.2 s"):
            await pieces.read()
        assert 0.19 < time.monotonic() - began < 2


async def test_the_time_counts_only_while_a_piece_is_waited_for() -> None:
    content, pieces = body(0.05)
    with pieces:
        content.feed_data(b"one")
        assert await pieces.read() == b"one"
        await asyncio.sleep(0.2)  # whoever reads is busy
        asyncio.get_running_loop().call_later(0.01, content.feed_data, b"two")
        assert await pieces.read() == b"two"


async def test_what_has_come_while_its_reader_was_kept_from_reading_it_is_no_silence() -> None:
    content, pieces = body(0.05)
    with pieces:
        reading: Any = pieces.read().__await__()
        reading.send(None)  # it waits, and nobody lets it go on
        content.feed_data(b"piece")
        await asyncio.sleep(0.2)
        with pytest.raises(StopIteration) as read:
            reading.send(None)
        assert read.value.value == b"piece"


async def test_one_timer_serves_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda delay, *rest, **more: timers.append(delay) or call_later(delay, *rest, **more))
    content, pieces = body(60.0)
    with pieces:
        for _ in range(100):
            content.feed_data(b"piece")
            await pieces.read()
    assert timers == [60.0]


async def test_a_piece_that_nobody_waits_for_any_more_is_no_silence() -> None:
    content, pieces = body(1.0)
    with pieces:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await pieces.read()
        await asyncio.sleep(1.5)
        content.feed_data(b"piece")
        assert await pieces.read() == b"piece"


async def test_what_came_before_the_end_is_read_and_then_nothing() -> None:
    content, pieces = body(0.05)
    content.feed_data(b"half a li")
    content.feed_eof()
    with pieces:
        assert [await pieces.read() for _ in range(3)] == [b"half a li", b"", b""]
        await asyncio.sleep(0.2)
        assert await pieces.read() == b""


async def test_no_timer_is_left_behind() -> None:
    content, pieces = body(0.05)
    with pieces:
        pass
    await asyncio.sleep(0.15)
    assert content.exception() is None


async def test_a_connection_that_breaks_off_is_told_as_that() -> None:
    content, pieces = body(5.0)
    content.set_exception(aiohttp.ClientPayloadError("cut"))
    with pieces, pytest.raises(BrokeOff):
        await pieces.read()
