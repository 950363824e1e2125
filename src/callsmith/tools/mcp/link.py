"""One open connection to an MCP server: a process of ours, or something behind a URL.

    async with connected(config, answering) as link:
        tools = await link.tools()
        result = await link.call(Call("read", {"path": "a.txt"}), told)

The task that opens a connection also closes it; any task may use it in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any

from callsmith.core.errors import MissingExtra
from callsmith.core.values import Call
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.process import process_streams
from callsmith.tools.mcp.questions import Answering, Question, elicited, sampled

if TYPE_CHECKING:
    import httpx2
    import mcp_types as types
    from mcp import Client
    from mcp.client import ClientRequestContext
    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import ProgressFnT

Auth = Callable[[ServerConfig], "httpx2.Auth | None"]

MOST_PAGES = 1_000  # of a list of tools: one that goes round in circles ends


class Link:
    """An open connection. `ended` is set when it has broken, `changed` when the server says that its tools have."""

    def __init__(self, client: "Client", ended: asyncio.Event, changed: asyncio.Event, running: dict[str, Call]) -> None:
        self._client = client
        self._running = running
        self.ended = ended
        self.changed = changed

    @property
    def protocol(self) -> str:
        return self._client.protocol_version

    @property
    def server(self) -> str:
        """What the server calls itself."""
        info = self._client.server_info
        return f"{info.name} {info.version}" if info else ""

    async def tools(self) -> "list[types.Tool]":
        """All pages of its list."""
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            if page.next_cursor is None or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        return found

    async def call(self, call: Call, told: "ProgressFnT") -> "types.CallToolResult":
        self._running[call.id] = call
        current = _CURRENT.set(call)
        try:
            return await self._client.call_tool(call.name, dict(call.arguments), progress_callback=told)
        finally:
            _CURRENT.reset(current)
            self._running.pop(call.id, None)

    async def watch(self) -> None:
        """Have the server tell when its tools change. Servers of the older protocol do so without being asked."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = self._client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with self._client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self.changed.set()


_CURRENT: ContextVar[Call | None] = ContextVar("callsmith_mcp_call", default=None)


@asynccontextmanager
async def connected(config: ServerConfig, answering: Answering, auth: Auth | None = None) -> AsyncGenerator[Link, None]:
    """A connection to the server; `Unavailable` says why there is none."""
    try:
        import mcp_types as types
        from mcp import Client
    except ImportError as missing:
        raise MissingExtra("mcp", "MCP servers") from missing
    ended, changed, running = asyncio.Event(), asyncio.Event(), dict[str, Call]()

    async def notified(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    client = Client(
        _watched(config, auth, ended),
        mode=config.protocol,
        message_handler=notified,
        client_info=types.Implementation(name="callsmith", version=version("callsmith")),
        **_callbacks(config, answering, running),
    )
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(config.start_timeout):
            await stack.enter_async_context(client)
        yield Link(client, ended, changed, running)


def _callbacks(config: ServerConfig, answering: Answering, running: dict[str, Call]) -> dict[str, Any]:
    """What the server may ask back; what it may not is not offered to it either."""
    import mcp_types as types

    ask, model = answering.ask, answering.model
    callbacks: dict[str, Any] = {}
    if ask is not None:

        async def elicit(_: "ClientRequestContext", params: "types.ElicitRequestParams") -> "types.ElicitResult":
            # The older protocol does not say which call a question belongs to.
            call = _CURRENT.get() or (next(iter(running.values())) if len(running) == 1 else None)
            by_url = isinstance(params, types.ElicitRequestURLParams)
            schema = None if by_url else dict(params.requested_schema)
            url = params.url if by_url else ""
            return await elicited(ask, Question(config.name, params.message, schema, url, call))

        callbacks["elicitation_callback"] = elicit
    if model is not None and config.sampling:

        async def sample(_: "ClientRequestContext", params: "types.CreateMessageRequestParams") -> Any:
            return await sampled(model, params)

        callbacks["sampling_callback"] = sample
    return callbacks


@asynccontextmanager
async def _watched(config: ServerConfig, auth: Auth | None, ended: asyncio.Event) -> "AsyncGenerator[TransportStreams, None]":
    """The streams to a server; when what it says has ended, somebody is told."""
    async with _streams(config, auth) as (read, write):
        yield _Read(read, ended), write


@asynccontextmanager
async def _streams(config: ServerConfig, auth: Auth | None) -> "AsyncGenerator[TransportStreams, None]":
    if config.transport == "stdio":
        async with process_streams(config) as streams:
            yield streams
        return
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    shown = auth(config) if auth else None
    if config.transport == "sse":
        async with sse_client(config.url, headers=dict(config.headers), auth=shown) as streams:
            yield streams
        return
    async with (
        create_mcp_http_client(headers=dict(config.headers), auth=shown) as http,
        streamable_http_client(config.url, http_client=http) as streams,
    ):
        yield streams


class _Read:
    """A stream that is read, and says when there is no more."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:
            self._ended.set()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._stream)
        except BaseException:
            self._ended.set()
            raise

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)

    @property
    def last_context(self) -> Any:
        """Whose words were read last; the SDK looks for it."""
        return getattr(self._stream, "last_context", None)
