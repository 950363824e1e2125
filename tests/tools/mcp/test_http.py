"""Servers behind a URL: both eras, restarts, outages, and those that want a token."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import Context as MCPContext
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callsmith.tools.mcp import McpHost, ServerConfig
from tests.tools.mcp.trying import call, status
from tests.waiting import until


def small_server() -> MCPServer:
    server = MCPServer("small")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    return server


@contextmanager
def serving(app: Any, port: int = 0) -> Iterator[int]:
    """The port of the application; it is gone, with all its connections, when the block is left."""
    listening = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=0))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 30
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def at(port: int, **config: Any) -> ServerConfig:
    return ServerConfig("plain", url=f"http://127.0.0.1:{port}/mcp", **config)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_server_behind_a_url_is_called(era: str):
    with serving(small_server().streamable_http_app()) as port:
        async with McpHost([at(port, protocol=era)]) as host:
            assert [tool.name for tool in await host.tools()] == ["add"]
            result = await call(host, "add", a=2, b=3)
            assert result.text == "5"
            assert status(host).protocol == ("2025-11-25" if era == "legacy" else "2026-07-28")


async def test_a_server_that_speaks_sse_only_is_called():
    with serving(small_server().sse_app()) as port:
        server = ServerConfig("plain", url=f"http://127.0.0.1:{port}/sse", transport="sse")
        async with McpHost([server]) as host:
            await host.tools()
            assert (await call(host, "add", a=2, b=3)).text == "5"


async def test_a_new_tool_of_a_newer_server_is_seen_when_it_says_so():
    server = MCPServer("small")

    @server.tool()
    async def grow(ctx: MCPContext) -> str:  # type: ignore[type-arg]
        server.add_tool(lambda: "grown", "grown")
        await ctx.notify_tools_changed()
        return "done"

    with serving(server.streamable_http_app()) as port:
        async with McpHost([at(port)], refresh=600) as host:
            assert len(await host.tools()) == 1
            await asyncio.sleep(0.3)  # until the subscription stands
            await call(host, "grow")
            await until(lambda: status(host).tools == 2)
            assert (await call(host, "grown")).text == "grown"


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_server_that_is_started_anew_is_found_again(era: str):
    with serving(small_server().streamable_http_app()) as port:
        host = McpHost([at(port, protocol=era)])
        assert len(await host.tools()) == 1
    try:
        result = await call(host, "add", a=2, b=3)
        assert (result.ok, result.code) == (False, "unavailable")
        with serving(small_server().streamable_http_app(), port):
            await until(lambda: status(host).state == "ready" and status(host).starts > 1)
            assert (await call(host, "add", a=2, b=3)).text == "5"
    finally:
        await host.close()


async def test_a_server_that_has_forgotten_us_is_joined_again():
    with serving(small_server().streamable_http_app()) as port:
        host = McpHost([at(port, protocol="legacy")])
        await host.tools()
    with serving(small_server().streamable_http_app(), port):
        try:
            await call(host, "add", a=2, b=3)  # whether or not it has been noticed by now
            await until(lambda: status(host).state == "ready" and status(host).starts > 1)
            assert (await call(host, "add", a=2, b=3)).text == "5"
        finally:
            await host.close()


async def test_nobody_at_the_address_is_a_failed_server_and_no_more():
    async with McpHost([at(1)]) as host:
        assert await host.tools() == []
        assert (status(host).state, "connect" in status(host).error.lower()) == ("failed", True)


async def test_headers_are_sent():
    seen: list[str] = []

    async def answer(request: Request) -> Response:
        seen.append(request.headers.get("x-key", ""))
        return JSONResponse({}, 500)

    with serving(Starlette(routes=[Route("/mcp", answer, methods=["POST"])])) as port:
        async with McpHost([at(port, headers={"X-Key": "k1"})]) as host:
            await host.tools()
    assert set(seen) == {"k1"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, 'it requires a login (401)\nWrite "oauth": true into its configuration'),
        ({"headers": {"authorization": "Bearer old"}}, "it does not accept the Authorization header"),
        ({"transport": "sse"}, 'Write "oauth": true'),
    ],
)
async def test_a_server_that_wants_a_login_says_what_to_write(config: dict[str, Any], words: str):
    async def refuse(request: Request) -> Response:
        return Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})

    with serving(Starlette(routes=[Route("/mcp", refuse, methods=["GET", "POST"])])) as port:
        async with McpHost([at(port, **config)]) as host:
            assert await host.tools() == []
            assert words in status(host).error


async def test_oauth_without_anybody_to_log_in_is_told():
    from callsmith.tools.mcp.config import OAuth

    async with McpHost([at(1, oauth=OAuth())]) as host:
        assert await host.tools() == []
        assert "no login is configured" in status(host).error
