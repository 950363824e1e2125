"""`Upstream` against servers that are down, slow, in the way or out of their mind."""

import asyncio
import socket
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.errors import ModelError, Rejected, TimedOut, Unavailable, UsageError
from callsmith.engines.upstream import RetryPolicy, Upstream
from tests.scripted_server import QUICK, http, scripted
from tests.serving import served_apart

KEY = {"authorization": "Bearer very-secret"}


async def ask(url: str, retry_policy: RetryPolicy = QUICK) -> object:
    upstream = Upstream(url, headers=KEY, retry_policy=retry_policy)
    try:
        return await upstream.post("ask", {"ü": "\ud83d"})
    finally:
        await upstream.close()


async def stream(url: str, retry_policy: RetryPolicy = QUICK) -> bytes:
    upstream = Upstream(url, retry_policy=retry_policy)
    try:
        return b"".join([data async for data in upstream.stream("ask", {})])
    finally:
        await upstream.close()


async def test_a_body_is_sent_and_json_comes_back() -> None:
    async with scripted(http(b'{"a": [1]}')) as server:
        assert await ask(server.url) == {"a": [1]}
    assert server.paths == ["/ask"]
    assert "bearer very-secret" in server.headers[0]


@pytest.mark.parametrize("status", ["429 Too Many", "500 Oh", "502 Bad", "503 Busy", "504 Late", "529 Overloaded"])
async def test_what_failed_before_its_answer_began_is_sent_again(status: str) -> None:
    async with scripted(http(b"no", status), http(b"no", status), http(b"true")) as server:
        assert await ask(server.url) is True
    assert len(server.asked) == 3


async def test_a_request_is_not_sent_again_for_ever() -> None:
    async with scripted(http(b'{"error": {"message": "all slots are taken"}}', "503 Busy")) as server:
        with pytest.raises(Rejected, match="503: all slots are taken") as caught:
            await ask(server.url)
    assert caught.value.status == 503
    assert len(server.asked) == 3


async def test_the_clients_mistakes_are_not_sent_again() -> None:
    async with scripted(http(b'{"detail": "max_tokens is negative"}', "422 No")) as server:
        with pytest.raises(Rejected, match="max_tokens is negative") as caught:
            await ask(server.url)
    assert len(server.asked) == 1
    assert not caught.value.retryable


@pytest.mark.parametrize("after", ["60", "Fri, 31 Dec 2100 23:59:59 GMT"])
async def test_nobody_waits_as_long_as_an_upstream_likes(after: str) -> None:
    async with scripted(http(b"{}", "429 Slow", retry_after=after)) as server:
        with pytest.raises(Rejected) as caught:
            await ask(server.url)
    assert len(server.asked) == 1
    assert caught.value.seconds and caught.value.seconds >= 60


async def test_a_short_wait_that_an_upstream_asks_for_is_kept() -> None:
    began = asyncio.get_running_loop().time()
    async with scripted(http(b"{}", "429 Slow", retry_after="0.15"), http(b"1")) as server:
        assert await ask(server.url) == 1
    assert asyncio.get_running_loop().time() - began >= 0.15
    async with scripted(http(b"{}", "429 Slow", retry_after=formatdate(0, usegmt=True)), http(b"1")) as server:
        assert await ask(server.url) == 1


async def test_a_server_that_is_down_is_unavailable() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="cannot be reached") as caught:
            await ask(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert "very-secret" not in str(caught.value)


async def test_a_server_that_hangs_up_before_its_answer_is_asked_again() -> None:
    async with scripted(b"", http(b"2")) as server:
        assert await ask(server.url) == 2


async def test_a_server_that_is_not_there_uses_up_no_try_at_the_other() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with scripted(b"", http(b"true")) as server:
            upstream = Upstream([server.url, nobody], retry_policy=replace(QUICK, retries=1))
            session = next(name for name in map(str, range(99)) if first_of(upstream, name) == server.url)
            try:
                assert await upstream.post("ask", {}, session) is True
            finally:
                await upstream.close()
    assert len(server.asked) == 2


def first_of(upstream: Upstream, session: str) -> str:
    chosen = upstream.replicas.choose(session)
    assert chosen is not None
    return chosen.url


async def test_a_page_is_no_answer() -> None:
    page = b"<html><head><title>Sign in\n to the proxy</title></head></html>"
    async with scripted(http(page, kind="text/html; charset=utf-8")) as server:
        with pytest.raises(Unavailable, match=r"an HTML page \(Sign in to the proxy\)"):
            await ask(server.url)
        with pytest.raises(Unavailable, match="HTML page"):
            await stream(server.url)
    async with scripted(http(page, "404 Not Found", kind="text/html")) as server:
        with pytest.raises(Rejected, match=r"404: an HTML page \(Sign in"):
            await ask(server.url)


async def test_what_is_no_json_is_shown() -> None:
    async with scripted(http(b"\xff\xfe tra la la")) as server:
        with pytest.raises(ModelError, match=r"no JSON: .* tra la la"):
            await ask(server.url)


async def test_a_redirect_does_not_get_the_key() -> None:
    async with scripted(http(b"1")) as other, scripted(http(b"", "302 Found", location="")) as server:
        server.says[0] = http(b"", "302 Found", location=other.url)
        with pytest.raises(Rejected, match=r"302 .* is not followed"):
            await ask(server.url)
    assert not other.asked


async def test_a_stream_comes_as_it_is_sent() -> None:
    gate = asyncio.Event()

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        await gate.wait()
        writer.write(b"data: \xff\n\n")

    async with scripted(speak) as server:
        upstream = Upstream(server.url, retry_policy=QUICK)
        pieces = upstream.stream("ask", {})
        assert await anext(pieces) == b"data: 1\n\n"
        gate.set()
        assert [piece async for piece in pieces] == [b"data: \xff\n\n"]
        await upstream.close()


async def test_a_stream_that_breaks_off_is_an_error_and_is_not_asked_for_again() -> None:
    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")

    async with scripted(speak) as server:
        with pytest.raises(Unavailable, match="broke off in the middle"):
            await stream(server.url)
    assert len(server.asked) == 1


async def test_a_line_without_an_end_is_not_waited_for() -> None:
    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"a" * 1_000_000)
            await writer.drain()

    async with scripted(speak) as server:
        with pytest.raises(ModelError, match="a line without an end"):
            await stream(server.url)


async def test_a_server_that_does_not_begin_or_falls_silent_is_given_up() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def stuck(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nabc")
        await asyncio.sleep(60)

    async with scripted(silent) as server:
        with pytest.raises(TimedOut, match="did not begin"):
            await ask(server.url, replace(QUICK, begin=0.1))
    assert len(server.asked) == 1  # it may be at work on it
    async with scripted(stuck) as server:
        with pytest.raises(TimedOut, match="sent nothing for"):
            await stream(server.url, replace(QUICK, silence=0.1))


async def test_things_can_be_asked_for_while_a_loop_is_running() -> None:
    async with scripted(http(b'["x"]')) as server:
        upstream = Upstream(server.url, retry_policy=QUICK)
        assert await asyncio.to_thread(upstream.wait_for, lambda: upstream.get("models")) == ["x"]
        assert await upstream.get("models") == ["x"]
        await upstream.close()
        with pytest.raises(UsageError, match="closed"):
            await upstream.get("models")
        await upstream.close()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://"):
        Upstream(url)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="this system does not list the files that are open")
def test_every_event_loop_closes_its_connections_when_it_ends() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": b"true"})

    with served_apart(answer) as url:
        upstream = Upstream(url)
        assert asyncio.run(upstream.get("ask")) is True
        before = len(list(Path("/dev/fd").iterdir()))
        for _ in range(10):
            asyncio.run(upstream.get("ask"))
        assert len(list(Path("/dev/fd").iterdir())) < before + 10
