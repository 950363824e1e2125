"""Callers of the bus that mean harm: without keys, from web pages, with large, broken and endless messages, or gone in between.

Whatever they do, their call ends with an error, nothing of it is left behind, and the others are served.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Requests, Settings
from callsmith.wire.capability.requests import PATH, SUBPROTOCOL
from tests.attack.loop_latency import MeasuredServer, measured_server
from tests.attack.watched_bus import Watched, ended, is_served, watch
from tests.server.asking import http
from tests.server.routes.bus.calling import (
    BODY,
    call,
    chat,
    envelope,
    post,
    scripted_app,
    socket_to,
    sse_frames,
)
from tests.serving import served

LATENCY = 0.25  # seconds that the loop may be late at worst
EVIL = "https://evil.example"
ROUTES = [("POST", PATH), ("GET", "/bus/v1/capabilities"), ("GET", "/bus/v1/trace")]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return watch(monkeypatch)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"x-api-key": ""}, {"authorization": "Basic YTpi"}])
async def test_without_a_key_nothing_is_called_and_nothing_is_told(method: str, path: str, headers: dict[str, str]) -> None:
    app, scripted = scripted_app(settings=Settings(keys={"alice": Key(hash_key("a"))}))
    async with http(app) as client:
        sent = chat(tokens=1) if method == "POST" else None
        response = await client.request(method, path, json=sent, headers=headers)
        assert (response.status_code, response.json()["error"]) == (401, "unauthorized")
        assert "rag.query" not in response.text
    async with served(app) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with socket_to(url, additional_headers=headers):
                pass
    assert refused.value.response.status_code == 401
    assert not scripted.calls


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": EVIL}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
    ],
)
async def test_a_web_page_calls_nothing(headers: dict[str, str], status: int) -> None:
    app, scripted = scripted_app()
    async with served(app) as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            response = await client.post(PATH, json=chat(tokens=1), headers=headers)
            assert (response.status_code, response.json()["error"]) == (
                status,
                "unauthorized" if status == 403 else "bad_request",
            )
            blind = await client.post(PATH, content=json.dumps(chat()), headers={**headers, "content-type": "text/plain"})
            assert blind.status_code in (403, 415, 421)
        with pytest.raises(InvalidStatus) as refused:
            async with raw_socket(url, headers):
                pass
    assert refused.value.response.status_code == status
    assert not scripted.calls


@asynccontextmanager
async def raw_socket(url: str, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    from websockets.asyncio.client import connect

    port = int(url.rpartition(":")[2])
    host = headers.get("host", f"127.0.0.1:{port}")
    more = {name: value for name, value in headers.items() if name != "host"}
    target = f"ws://{host}{PATH}" if ":" in host else f"ws://{host}:{port}{PATH}"
    protocols: Any = [SUBPROTOCOL]
    async with connect(target, host="127.0.0.1", port=port, subprotocols=protocols, additional_headers=more) as socket:
        yield socket


DEEP = "[" * 100_000 + "]" * 100_000
LARGE: dict[str, bytes] = {
    "more bytes than may be": b'{"x": "' + b"a" * 3_000_000 + b'"}',
    "deep": b'{"envelope": {"capability": "rag.query", "version": "1.0", "body": ' + DEEP.encode() + b"}}",
    "deep in the input": json.dumps({"envelope": envelope("rag.query", "1.0", {"input": {"query": 1}})})
    .replace('"query": 1', f'"query": {DEEP}')
    .encode(),
    "many values": json.dumps({"envelope": envelope("rag.query", "1.0", {"input": {"query": [0] * 300_000}})}).encode(),
    "many messages": json.dumps(chat(messages=[{"role": "user", "content": ""}] * 20_000)).encode(),
    "many tools": json.dumps(chat(tools=[{"name": f"t{n}"} for n in range(3_000)])).encode(),
    "a large tool": json.dumps(chat(tools=[{"name": "t", "parameters_schema": {"x": "a" * 300_000}}])).encode(),
    "a long stop": json.dumps(chat(stop="a" * 10_000)).encode(),
    "no JSON": b"\xff\xfe" * 1000,
    "half of it": json.dumps(chat())[:-3].encode(),
    "two of it": json.dumps(chat()).encode() * 2,
}


@pytest.mark.parametrize("name", LARGE)
async def test_what_is_too_large_or_no_json_is_refused_over_http_and_in_a_socket(name: str, watched: Watched) -> None:
    limited = Settings(requests=Requests(body_bytes=2_000_000))
    app, scripted = scripted_app(settings=limited)
    async with served(app) as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            response = await client.post(PATH, content=LARGE[name], headers={"content-type": "application/json"})
            assert response.status_code in (400, 413), response.text
            assert response.json()["error"] == "bad_request"
        text = LARGE[name].replace(b'{"envelope"', b'{"type": "call", "envelope"', 1)
        async with socket_to(url, max_size=None) as socket:
            await socket.send(text)
            assert await ended(socket) == "bad_request"
        async with socket_to(url) as socket:
            await call(socket, tool=True)
            await socket.send(LARGE[name])
            assert await ended(socket) == "bad_request"
        assert await is_served(url)
    assert all(
        item.input.get("tool") or item.input.get("tokens") == 20 or item.input.get("query") == "hall" for item in scripted.calls
    )


@pytest.mark.parametrize(
    "name",
    [
        *("", "rag", "rag.", ".query", "rag..query", "RAG.QUERY", "rag.query ", " rag.query", "rag.query\n", "rag.query\x00"),
        *(
            "rag.quеry",
            "ｒag.query",
            "rag.que\u200bry",
            "rag.query@1.0",
            "../rag.query",
            "rag/query",
            "rag.*",
            "*",
            "%72ag.query",
        ),
        *("a" * 1000 + ".b", "rag.query;drop", "__proto__.x", "rag.query\u202e", 5, None, ["rag.query"], {"a": 1}, True, 1e400),
    ],
)
async def test_a_trick_in_the_name_of_a_capability_calls_nothing(name: Any) -> None:
    app, scripted = scripted_app()
    async with http(app) as client:
        response = await client.post(
            PATH,
            content=json.dumps({"envelope": envelope("x", "1.0", BODY)}).replace(
                '"x"', json.dumps(name).replace("Infinity", "1e400")
            ),
            headers={"content-type": "application/json"},
        )
        assert (response.status_code, response.json()["error"]) == (400, "bad_request"), response.text
    assert not scripted.calls


@pytest.mark.parametrize(
    "version", ["", "1", "1.0.0", "01.0", "1.0 ", "-1.0", "¹.0", "99999999999.0", "1e3.0", "latest", 1.0, None, ">=2.0"]
)
async def test_a_trick_in_a_version_calls_nothing(version: Any) -> None:
    app, scripted = scripted_app()
    async with http(app) as client:
        response = await post(client, {"envelope": envelope("rag.query", version, BODY)})
        assert response.status_code == 400, response.text
    assert not scripted.calls


@pytest.mark.parametrize(
    "lines",
    [
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-capability: llm.chat",
        b"x-hearthnet-capability: llm.chat\r\nX-HEARTHNET-CAPABILITY: rag.query",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-token: a\r\nx-hearthnet-token: b",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-request-id: caf\xc3\xa9",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-request-id: a\xff\xfeb",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-request-id: a b",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-from: \xe2\x80\xae",
        b"x-hearthnet-capability: r\xc3\xa4g.query",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-timestamp: 1e999",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-timestamp: nan",
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-timestamp: " + b"9" * 5000,
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-community: " + b"c" * 5000,
        b"x-hearthnet-capability: rag.query\r\nx-hearthnet-signature: " + b"\xf0\x9f\x98\x80",
        b"x-hearthnet-capability: rag.query\r\n x-injected: folded",
        b"x-hearthnet-capability: rag.query\rx-injected: 1",
        b"x-hearthnet-capability: rag.query\nx-hearthnet-capability: llm.chat",
    ],
)
async def test_tricks_in_headers_are_refused_and_never_come_back(lines: bytes) -> None:
    app, scripted = scripted_app()
    async with served(app) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(BODY).encode()
        head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n" % PATH.encode()
        head += b"x-hearthnet-capability-version: 1.0\r\n" + lines
        writer.write(head + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        assert answer.split(b" ")[1] in (b"400", b"401"), answer
        assert b"x-injected" not in answer and b"\xff" not in answer and "é".encode() not in answer
        assert await is_served(url)
    assert len(scripted.calls) == 2


@pytest.mark.parametrize("id", ["a\r\nset-cookie: x=1", "a\nb", "\x00", "é", "a" * 200])
async def test_an_id_cannot_split_the_response(id: str) -> None:
    app, scripted = scripted_app()
    async with http(app) as client:
        response = await post(client, {"envelope": envelope("rag.query", "1.0", BODY, request_id=id)})
    assert (response.status_code, response.json()["error"]) == (400, "bad_request")
    assert "set-cookie" not in response.headers and not scripted.calls


@pytest.mark.parametrize("event", ["token\ndata: {}\n\nevent: done", "a b", "", "x" * 100, "é", "done\r"])
async def test_the_name_of_an_event_cannot_forge_other_events(event: str) -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        response = await post(client, chat(tokens=1, event=event))
    assert [name for name, _ in sse_frames(response.text)] == ["token", "error"]
    assert [line[:6] for line in response.text.splitlines() if line].count("event:") == 2


@pytest.fixture(scope="module")
def server() -> Iterator[MeasuredServer]:
    with measured_server() as running:
        yield running


@pytest.mark.parametrize("name", [*LARGE, "8 MB of text", "240,000 values", "signed", "10,000 messages"])
def test_a_large_call_does_not_block_the_loop(server: MeasuredServer, name: str) -> None:
    within = {
        "8 MB of text": lambda: {"envelope": envelope("rag.query", "1.0", {"input": {"query": "word, " * 1_380_000}})},
        "240,000 values": lambda: {"envelope": envelope("rag.query", "1.0", {"input": {"query": [0] * 240_000}})},
        "signed": lambda: {
            "envelope": envelope("rag.query", "1.0", {"input": {"query": [0.0] * 240_000}}),
            "signature": "ed25519:A",
        },
        "10,000 messages": lambda: chat(messages=[{"role": "user", "content": "a, b"}] * 10_000),
    }
    body = LARGE[name] if name in LARGE else json.dumps(within[name]()).encode()
    response = server.post(PATH, body, timeout=60)
    assert response.status_code in (200, 400, 401, 413)
    assert server.worst_latency() < LATENCY


@pytest.mark.parametrize(
    "message", [{"type": "ack", "upto": 0}, {"type": "tool_result", "tool_call_id": "x", "body": {}}, {"type": "cancel"}]
)
async def test_a_flood_of_messages_does_not_block_the_loop(server: MeasuredServer, message: dict[str, Any]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(socket_to(server.url)) for _ in range(8)]
        text = json.dumps(message)
        for socket in sockets:
            await call(socket, sleep=5)

        async def flood(socket: ClientConnection) -> None:
            with contextlib.suppress(ConnectionClosed):
                for _ in range(3_000):
                    await socket.send(text)

        await asyncio.gather(*map(flood, sockets))
    assert await asyncio.to_thread(server.worst_latency) < LATENCY
