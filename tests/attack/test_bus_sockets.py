"""Callers of the bus that mean harm over WebSocket: endless messages, calls that they leave at any moment, and floods.

Whatever they do, their call ends with an error, nothing of it is left behind, and the others are served.
"""

import asyncio
import contextlib
import gc
import json
import random
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from callsmith.bus import flow
from callsmith.wire.capability.requests import PATH
from tests.attack.watched_bus import Watched, ended, is_served, watch
from tests.server.routes.bus.calling import (
    call,
    chat,
    frames_of,
    post,
    send,
    socket_to,
)
from tests.serving import served
from tests.waiting import until

LATENCY = 0.25  # seconds that the loop may be late at worst
EVIL = "https://evil.example"
ROUTES = [("POST", PATH), ("GET", "/bus/v1/capabilities"), ("GET", "/bus/v1/trace")]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return watch(monkeypatch)


async def test_ten_thousand_acknowledgements_change_nothing(watched: Watched) -> None:
    async with served(watched.app) as url, socket_to(url) as socket:
        await call(socket, tokens=1, sleep=1.5)
        await socket.recv()
        for _ in range(10_000):
            await send(socket, type="ack", upto=1)
        assert (await frames_of(socket))[-1]["event"] == "done"
        assert await is_served(url)
    await watched.expect_nothing_left()


async def test_whoever_never_acknowledges_is_given_up(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow.FlowControl.__init__, "__defaults__", (16, 0.1))
    async with served(watched.app) as url, socket_to(url) as socket:
        await call(socket, tokens=100_000)
        assert await ended(socket) == "timeout"
        assert await is_served(url)
    await watched.expect_nothing_left()


async def test_whoever_never_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(monkeypatch, stalled_seconds=0.3)
    async with served(watched.app, force=True) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        body = json.dumps(chat(tokens=1_000, pad=100_000)).encode()
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % PATH.encode()
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        async with socket_to(url, max_queue=1) as socket:
            await call(socket, tokens=15, pad=3_000_000)
            await until(lambda: len(watched.scripted.calls) == 2)
            await watched.expect_nothing_left()
            assert await is_served(url)
            socket.transport.abort()
        writer.transport.abort()
        del reader


async def test_results_that_nobody_waits_for_end_the_call(watched: Watched) -> None:
    async with served(watched.app) as url, socket_to(url) as socket:
        await call(socket, sleep=30)
        with contextlib.suppress(ConnectionClosed):
            for number in range(5_000):
                await send(socket, type="tool_result", tool_call_id=f"x{number}", body={})
        assert await ended(socket) == "bad_request"
        assert await is_served(url)
    await watched.expect_nothing_left()


async def test_a_storm_of_cancellations_ends_the_call_once(watched: Watched) -> None:
    async with served(watched.app) as url, socket_to(url) as socket:
        await call(socket, tokens=4, sleep=30)
        with contextlib.suppress(ConnectionClosed):
            for _ in range(5_000):
                await send(socket, type="cancel")
        frames = [json.loads(item) async for item in socket]
        assert [frame["event"] for frame in frames].count("error") == 1
        assert (frames[-1]["event"], frames[-1]["data"]["error"]) == ("error", "cancelled")
        assert await is_served(url)
    assert watched.scripted.cancelled == 1
    await watched.expect_nothing_left()


async def test_a_second_call_in_a_socket_ends_the_first(watched: Watched) -> None:
    async with served(watched.app) as url, socket_to(url) as socket:
        await call(socket, sleep=30)
        await until(lambda: watched.scripted.running)
        await call(socket, tokens=1)
        assert await ended(socket) == "bad_request"
    assert len(watched.scripted.calls) == 1
    await watched.expect_nothing_left()


async def test_a_caller_opens_no_more_sockets_and_calls_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(monkeypatch, websockets=4, queue=100)
    async with served(watched.app) as url, contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            socket = await stack.enter_async_context(socket_to(url))
            await call(socket, sleep=30)
        for _ in range(20):
            with pytest.raises(InvalidStatus) as refused:
                async with socket_to(url):
                    pass
            assert refused.value.response.status_code == 503
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await post(client, chat(tokens=1))).status_code == 200
        await stack.aclose()
        await until(lambda: not watched.scripted.running)
        assert await is_served(url)
    await watched.expect_nothing_left()


MOMENTS = ("connected", "half a call", "called", "first frame", "tool call", "result sent", "full window", "cancelled", "junk")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("politely", [True, False])
async def test_a_socket_that_goes_at_any_moment_leaves_nothing_behind(moment: str, politely: bool, watched: Watched) -> None:
    async with served(watched.app) as url:
        for _ in range(5):
            async with socket_to(url) as socket:
                await _up_to(socket, moment)
                await (socket.close() if politely else _abort(socket))
        await watched.expect_nothing_left()
        assert await is_served(url)
    await watched.expect_nothing_left()


async def _abort(socket: ClientConnection) -> None:
    socket.transport.abort()


async def _up_to(socket: ClientConnection, moment: str) -> None:
    match moment:
        case "half a call":
            await socket.send([json.dumps({"type": "call", **chat(tokens=1)})[:20]])
        case "called":
            await call(socket, sleep=30)
        case "first frame":
            await call(socket, tokens=1, sleep=30)
            await socket.recv()
        case "tool call" | "result sent":
            await call(socket, tool=True, sleep=30)
            for _ in range(3):
                await socket.recv()
            if moment == "result sent":
                await send(socket, type="tool_result", tool_call_id="tc_1", body={"time": "1"})
        case "full window":
            await call(socket, tokens=100)
            for _ in range(16):
                await socket.recv()
        case "cancelled":
            await call(socket, sleep=30)
            await send(socket, type="cancel")
        case "junk":
            await call(socket, sleep=30)
            await socket.send("junk")
        case _:
            pass


@pytest.mark.parametrize("sent", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_goes_at_any_moment_leaves_nothing_behind(sent: float, stream: bool, watched: Watched) -> None:
    body = json.dumps(chat(stream=stream, tokens=1, sleep=30)).encode()
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % PATH.encode()
    whole = head + b"content-length: %d\r\n\r\n" % len(body) + body
    async with served(watched.app) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(5):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(whole[: int(len(whole) * sent)])
            await writer.drain()
            if sent == 1.0:
                await until(lambda: watched.scripted.running)
            writer.transport.abort()
            await until(lambda: not watched.scripted.running)
        await watched.expect_nothing_left()
        assert await is_served(url)


async def test_random_messages_never_kill_the_server_and_every_call_ends_once(watched: Watched) -> None:
    chance = random.Random(7)
    pieces: list[Any] = ["ack", "cancel", "tool_result", "call", "confirmation", "", None, 5, [], {}]
    async with served(watched.app) as url:
        for _ in range(300):
            async with socket_to(url) as socket:
                if chance.random() < 0.9:
                    await call(socket, tokens=chance.randrange(40), tool=chance.random() < 0.5, sleep=chance.random() / 100)
                with contextlib.suppress(ConnectionClosed):
                    for _ in range(chance.randrange(12)):
                        message = {
                            "type": chance.choice(pieces),
                            chance.choice(["upto", "tool_call_id", "body", "x"]): chance.choice(pieces),
                        }
                        text = json.dumps(message)
                        await socket.send(text if chance.random() < 0.8 else text.encode()[: chance.randrange(1, 30)])
                    await send(socket, type="cancel")
                    frames = [json.loads(item) async for item in socket]
                    assert sum(frame["event"] in ("done", "error") for frame in frames) == 1, frames
        await watched.expect_nothing_left()
        assert await is_served(url)
    gc.collect()
