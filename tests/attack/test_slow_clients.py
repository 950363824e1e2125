"""Clients that take their time: half-sent headers and bodies, connections that nothing is asked on, and very many of them.

The limits are short here. Whether a client that does nothing wrong is served is asserted, not how long anything takes.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import httpx2
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from callsmith.server.app import create_app
from callsmith.server.http.shutdown import GracefulShutdown
from callsmith.server.network.connections import limited_http, patient_websocket
from callsmith.server.settings import Settings
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served
from tests.waiting import until

PATIENCE = 20.0
SHORT = Settings(header_seconds=0.3, body_seconds=0.3, idle_seconds=1, connections=8, connections_per_address=6, websockets=2)
LONG = Settings()
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
GET = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol], ids=["httptools", "h11"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


@asynccontextmanager
async def serving(
    settings: Settings, protocol: Any = HttpToolsProtocol, model: FakeModel | None = None, **options: Any
) -> AsyncIterator[str]:
    app = create_app({"m": model or FakeModel(says("hello"))}, settings=settings, **options)
    http = limited_http(settings, protocol)
    async with served(
        app, http=http, ws=patient_websocket(0.0), timeout_keep_alive=int(settings.idle_seconds), force=True
    ) as url:
        yield url


async def opened(url: str, address: str = "127.0.0.1") -> Ends:
    host, _, port = url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port), local_addr=(address, 0))


async def rest(ends: Ends) -> bytes:
    """What the server still sends until it closes the connection, which it has to."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await ends[0].read()
        except ConnectionError:
            return b""
        finally:
            ends[1].close()


async def drip(ends: Ends, text: bytes) -> None:
    """Send the text a byte at a time, until the server has had enough, which it has to."""
    answer = asyncio.create_task(rest(ends))
    for byte in text:
        if answer.done():
            break
        ends[1].write(bytes([byte]))
        await asyncio.sleep(0.02)
    assert answer.done(), "the server has listened to the end"
    await answer


HALF_SENT = {
    "nothing": b"",
    "a word": b"POST",
    "a line": b"POST /v1/chat/completions HTTP/1.1\r\n",
    "headers": HEAD,
    "no body": HEAD + b"content-length: 999\r\n\r\n",
    "half a body": HEAD + b"content-length: 999\r\n\r\n" + BODY,
    "a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "another request": GET + HEAD,
}


@pytest.mark.parametrize("sent", HALF_SENT.values(), ids=HALF_SENT)
async def test_whoever_stops_in_the_middle_is_disconnected(protocol, sent):
    async with serving(SHORT, protocol) as url:
        ends = await opened(url)
        ends[1].write(sent)
        output = await rest(ends)
    assert output.startswith(b"HTTP/1.1 408 ") or sent.startswith(GET)


async def test_headers_that_drip_are_cut_off(protocol):
    async with serving(SHORT, protocol) as url:
        await drip(await opened(url), HEAD + b"x-slow: " + b"a" * 400)


async def test_a_body_that_drips_is_cut_off(protocol):
    async with serving(SHORT, protocol) as url:
        ends = await opened(url)
        ends[1].write(HEAD + b"content-length: 4000\r\n\r\n")
        await drip(ends, b" " * 400)


@pytest.mark.parametrize("before", [b"", WHOLE, GET], ids=["at first", "behind a request", "behind an answer"])
async def test_headers_without_end_are_cut_off(protocol, before):
    slow = FakeModel([1.0, *says("hello")])
    async with serving(replace(LONG, header_seconds=60), protocol, slow) as url:
        ends = await opened(url)
        ends[1].write(before)
        if before == GET:
            await asyncio.wait_for(ends[0].readuntil(b"}"), PATIENCE)
        answer = asyncio.create_task(rest(ends))
        ends[1].write(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: ")
        for _ in range(64):
            ends[1].write(b"a" * 16 * 1024)
            await asyncio.sleep(0.01)
            if answer.done():
                break
        await answer
    assert len(slow.asked) <= 1


async def test_headers_of_a_second_request_that_drip_are_cut_off(protocol):
    async with serving(replace(SHORT, idle_seconds=60), protocol) as url:
        ends = await opened(url)
        ends[1].write(WHOLE)
        await asyncio.wait_for(ends[0].readuntil(b"}"), PATIENCE)
        await drip(ends, HEAD + b"x-slow: " + b"a" * 400)


async def test_a_connection_that_nothing_is_asked_on_any_more_is_closed(protocol):
    async with serving(SHORT, protocol) as url:
        ends = await opened(url)
        ends[1].write(GET)
        assert b"200 OK" in await rest(ends)


async def test_a_large_body_that_keeps_coming_is_read(protocol):
    padding = b'{"padding": "' + b"a" * 200_000 + b'"}'
    async with serving(replace(SHORT, header_seconds=60), protocol) as url:
        ends = await opened(url)
        ends[1].write(HEAD + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(padding))
        for start in range(0, len(padding), 20_000):
            ends[1].write(padding[start : start + 20_000])
            await asyncio.sleep(0.05)
        output = await rest(ends)
    assert output.startswith(b"HTTP/1.1 400 ")  # read to its end: it asks for nothing


async def test_an_answer_may_take_longer_than_any_of_these_limits(protocol):
    slow = FakeModel([*says("hello")[:1], 1.0, *says("hello")[1:]])
    async with serving(SHORT, protocol, slow) as url, httpx2.AsyncClient(base_url=url) as asking:
        answer = await asking.post("/v1/chat/completions", content=BODY, headers={"content-type": "application/json"})
        assert answer.status_code == 200


async def test_half_sent_requests_do_not_shut_out_others(protocol):
    """Slowloris: many connections that never get to the point."""
    async with serving(replace(SHORT, connections=100, connections_per_address=100), protocol) as url:
        slow = [await opened(url) for _ in range(60)]
        for _, writer in slow:
            writer.write(HEAD)
        async with httpx2.AsyncClient(base_url=url) as asking:
            assert (await asking.get("/v1/models")).status_code == 200
        for ends in slow:
            assert (await rest(ends)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(("addresses", "most"), [(["127.0.0.1"], 6), (["127.0.0.1", "127.0.0.2"], 8)])
async def test_connections_that_are_answered_are_bounded(protocol, addresses, most):
    slow = FakeModel(*[[*says("hello")[:1], 60.0]] * most, says("hello"))
    async with serving(SHORT, protocol, slow) as url:
        first = [await opened(url, addresses[number % len(addresses)]) for number in range(most)]
        for _, writer in first:
            writer.write(WHOLE)
        await until(lambda: slow.open == most)
        more = await opened(url)
        assert b"503" in await rest(more)
        first[0][1].close()
        async with asyncio.timeout(PATIENCE):
            while True:
                again = await opened(url)
                again[1].write(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
                if b"200 OK" in await rest(again):
                    break
        for _, writer in first:
            writer.close()


async def test_a_client_that_does_not_read_what_it_asked_for_is_disconnected(protocol):
    async with serving(replace(SHORT, stalled_seconds=0.3), protocol) as url:
        reader, writer = await opened(url)
        cast(Any, reader)._transport.pause_reading()
        sent = 0
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConnectionError):
                while True:
                    writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.001 if (sent := sent + 1) < 500 else 0.3)


async def test_a_websocket_that_asks_nothing_is_closed():
    async with serving(SHORT) as url, connect(f"ws{url[4:]}/v1/responses") as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), PATIENCE)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


async def test_websockets_of_one_caller_are_bounded():
    async with serving(replace(SHORT, idle_seconds=60)) as url, AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connect(f"ws{url[4:]}/v1/responses")) for _ in range(2)]
        with pytest.raises(InvalidStatus) as refused:
            await stack.enter_async_context(connect(f"ws{url[4:]}/v1/responses"))
        assert refused.value.response.status_code == 429
        await sockets[0].close()
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await stack.enter_async_context(connect(f"ws{url[4:]}/v1/responses"))
                    break
                except InvalidStatus:
                    await asyncio.sleep(0.05)


async def test_a_websocket_gets_its_answer_before_the_server_shuts_down():
    slow = FakeModel([*says("hello")[:1], 0.5, *says("hello")[1:]])
    app = GracefulShutdown(create_app({"m": slow}))
    ask = json.dumps({"type": "response.create", "model": "m", "input": "hi"})
    async with AsyncExitStack() as clients, AsyncExitStack() as server:
        url = await server.enter_async_context(served(app, ws=patient_websocket(PATIENCE)))
        idle, busy = [await clients.enter_async_context(connect(f"ws{url[4:]}/v1/responses")) for _ in range(2)]
        await busy.send(ask)
        assert json.loads(await busy.recv())["type"] == "response.created"
        app.drain()
        ending = asyncio.create_task(server.aclose())  # as uvicorn does it
        events = [json.loads(text)["type"] async for text in until_closed(busy)]
        assert events[-1] == "response.completed"
        assert [event async for event in until_closed(idle)] == []
        assert {busy.close_code, idle.close_code} == {1012}
        await asyncio.wait_for(ending, PATIENCE)


async def until_closed(socket: Any) -> AsyncIterator[str]:
    async with asyncio.timeout(PATIENCE):
        try:
            while True:
                yield await socket.recv()
        except ConnectionClosed:
            pass
