"""The streams of messages from and to an MCP server: a process of ours, or something behind a URL."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableSequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callsmith.core.errors import Unavailable
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.transport.messages import MessageBounds
from callsmith.tools.mcp.transport.process import process_streams

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

Auth = Callable[[ServerConfig], "httpx2.Auth | None"]


@asynccontextmanager
async def observed_streams(
    config: ServerConfig, auth: Auth | None, stderr_lines: MutableSequence[str], ended: asyncio.Event, see: Callable[[Any], None]
) -> "AsyncGenerator[TransportStreams, None]":
    """The streams to a server. `see` gets each message before the SDK reads it; `ended` is set when there are no more."""
    bounds = MessageBounds(config.name, config.max_message_bytes)
    by_process = config.transport == "stdio"
    streams = process_streams(config, stderr_lines, bounds) if by_process else _http_streams(config, auth, ended, bounds)
    async with streams as (read, write):
        yield _ObservedStream(read, ended, see, bounds), write


@asynccontextmanager
async def _http_streams(
    config: ServerConfig, auth: Auth | None, ended: asyncio.Event, bounds: MessageBounds
) -> "AsyncGenerator[TransportStreams, None]":
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    from callsmith.tools.mcp.auth import WithoutLogin

    if config.oauth and auth is None:
        raise Unavailable("it wants a login, and no login is configured", hint="Give the host auth=Login(…).")
    login = (auth(config) if auth else None) or WithoutLogin(config)

    async def look(response: "httpx2.Response") -> None:
        bounds.bound(response)
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            ended.set()  # it was restarted and has lost our session

    def bounded_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> "httpx2.AsyncClient":
        http = create_mcp_http_client({**(headers or {}), "accept-encoding": "identity"}, timeout, auth)
        http.event_hooks = {"response": [look]}
        return http

    headers = dict(config.headers)
    if config.transport == "sse":
        async with sse_client(config.url, headers, auth=login, httpx_client_factory=bounded_client) as streams:
            yield streams
        return
    async with bounded_client(headers, auth=login) as http:
        longest = config.max_message_bytes
        async with streamable_http_client(config.url, http_client=http, max_sse_event_size=longest) as streams:
            yield streams


@dataclass(frozen=True, slots=True, eq=False)
class _ObservedStream:
    """A stream whose messages are passed to `see`; `ended` is set when there are no more."""

    _stream: Any
    _ended: asyncio.Event
    _see: Callable[[Any], None]
    _bounds: MessageBounds

    async def receive(self) -> Any:
        return await self._observe(self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await self._observe(anext(self._stream))

    async def _observe(self, coming: Awaitable[Any]) -> Any:
        try:
            message = await coming
            await self._bounds.pace()
            self._see(message)
        except BaseException:
            self._ended.set()
            raise
        return message

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)

    @property
    def last_context(self) -> Any:
        """The context of the last message; the SDK reads it."""
        return getattr(self._stream, "last_context", None)
