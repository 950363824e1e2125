"""One open connection to an MCP server: a process of ours, or something behind a URL.

    async with connect(config, features, stderr_lines) as connection:
        tools, notices = await connection.tools()
        result = await connection.call(Call("read", {"path": "a.txt"}), on_progress)

The task that opens a connection must also close it; any task may use it in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableSequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from callsmith.core.errors import Unavailable
from callsmith.core.events import ToolProgress
from callsmith.core.values import Call
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.content import too_many_tools, within_bounds, without_malformed
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationRequest, elicit, sample
from callsmith.tools.mcp.messages import MessageBounds
from callsmith.tools.mcp.process import process_streams

if TYPE_CHECKING:
    import httpx2
    import mcp_types as types
    from mcp import Client
    from mcp.client import ClientRequestContext
    from mcp.client._transport import TransportStreams

Auth = Callable[[ServerConfig], "httpx2.Auth | None"]
T = TypeVar("T")
OnProgress = Callable[[ToolProgress], None]

MOST_PAGES = 200  # of a list of tools: a list whose cursors go in circles ends
_LONGEST_PROGRESS = 1_000  # characters of what is reported
_MOST_REQUESTS = 8  # of a server's own that are open at once: questions to a person, texts for the model to write
_TICK = 5.0  # seconds between progress reports while a person is asked


@dataclass(frozen=True, slots=True, eq=False)
class _RunningCall:
    """A call that is running. It is identified by the object: call ids are unique in one conversation only."""

    call: Call
    on_progress: OnProgress
    subject: str
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """An open connection. `ended` is set when it is broken, `changed` when the server reports that its tools have changed."""

    _client: "Client"
    ended: asyncio.Event
    changed: asyncio.Event
    _running: set[_RunningCall]
    _notices: list[str]
    _most_tools: int

    @property
    def protocol(self) -> str:
        return self._client.protocol_version

    @property
    def server(self) -> str:
        """The server's own name and version."""
        info = self._client.server_info
        return f"{info.name} {info.version}" if info else ""

    async def tools(self) -> "tuple[list[types.Tool], list[str]]":
        """All pages of the server's list of tools, and notices of entries that are not valid tools."""
        self._notices.clear()
        listed: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            listed += page.tools
            if page.next_cursor is None or page.next_cursor == cursor:
                break
            if len(listed) > self._most_tools:
                self._notices.append(too_many_tools(self._most_tools))
                break
            cursor = page.next_cursor
        else:
            self._notices.append(f"its list of tools has more than {MOST_PAGES} pages; the others were not read")
        return listed[: self._most_tools], list(dict.fromkeys(self._notices))

    async def call(self, call: Call, on_progress: OnProgress, subject: str = "") -> "types.CallToolResult":
        async def pass_on(progress: float, total: float | None, message: str | None) -> None:
            on_progress(ToolProgress(call.id, (message or "")[:_LONGEST_PROGRESS], progress, total))

        running = _RunningCall(call, on_progress, subject)
        self._running.add(running)
        current = _CURRENT.set(running)
        try:
            return await self._client.call_tool(call.name, dict(call.arguments), progress_callback=pass_on)
        finally:
            _CURRENT.reset(current)
            self._running.remove(running)
            running.over.set()

    async def watch(self) -> None:
        """Subscribe to changes of the server's tools. Servers of the older protocol report them without a subscription."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = self._client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with self._client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self.changed.set()


_CURRENT: ContextVar[_RunningCall | None] = ContextVar("callsmith_mcp_call", default=None)


@asynccontextmanager
async def connect(
    config: ServerConfig, features: ClientFeatures, stderr_lines: MutableSequence[str], auth: Auth | None = None
) -> AsyncGenerator[Connection, None]:
    """Open a connection to the server. `stderr_lines` receives what a local server process writes to stderr."""
    await asyncio.to_thread(__import__, "mcp")  # takes seconds and must not block the event loop
    import mcp_types as types
    from mcp import Client

    ended, changed, running, notices = asyncio.Event(), asyncio.Event(), set[_RunningCall](), list[str]()

    async def on_notification(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    def see(message: Any) -> None:
        answer = getattr(message, "message", None)
        if isinstance(answer, types.JSONRPCResponse):
            answer.result, left_out = within_bounds(answer.result, config)
            notices.extend(left_out)
            if isinstance(answer.result.get("tools"), list):
                answer.result, left_out = without_malformed(answer.result, client.protocol_version)
                notices.extend(left_out)

    client = Client(
        _observed_streams(config, auth, stderr_lines, ended, see),
        # The SDK's name of the mode: all versions before 2026-07-28 connect in the same way.
        mode="legacy" if config.protocol[:1].isdigit() and config.protocol < "2026-07-28" else config.protocol,
        message_handler=on_notification,
        client_info=types.Implementation(name="callsmith", version=version("callsmith")),
        **_callbacks(config, features, running),
    )
    async with client:
        yield Connection(client, ended, changed, running, notices, config.max_tools)


def _callbacks(config: ServerConfig, features: ClientFeatures, running: set[_RunningCall]) -> dict[str, Any]:
    """The callbacks for requests of the server; features we do not have are not announced to it."""
    import mcp_types as types

    ask, model = features.ask, features.model
    callbacks: dict[str, Any] = {}
    free = asyncio.Semaphore(_MOST_REQUESTS)
    if ask is not None:

        async def on_elicit(_: "ClientRequestContext", params: "types.ElicitRequestParams") -> Any:
            by_url = isinstance(params, types.ElicitRequestURLParams)
            schema = None if by_url else dict(params.requested_schema)
            url = params.url if by_url else ""
            if free.locked():
                return types.ElicitResult(action="cancel")
            async with free, _keep_alive(config, running, "waits for an answer") as meant:
                if len({call.subject for call in meant}) > 1:
                    return types.ElicitResult(action="cancel")  # it is unclear whose call the request belongs to
                call = meant[0].call if len(meant) == 1 else None
                subject = meant[0].subject if meant else ""
                question = ElicitationRequest(config.name, params.message, schema, url, call, subject)
                return await _unless_abandoned(meant, elicit(ask, question)) or types.ElicitResult(action="cancel")

        callbacks["elicitation_callback"] = on_elicit
    if model is not None and config.sampling:

        async def on_sample(_: "ClientRequestContext", params: "types.CreateMessageRequestParams") -> Any:
            if free.locked():
                return types.ErrorData(code=types.INVALID_REQUEST, message=f"no more than {_MOST_REQUESTS} requests at a time")
            async with free, _keep_alive(config, running, "has the model write something"):
                return await sample(model, params)

        callbacks["sampling_callback"] = on_sample
    return callbacks


async def _unless_abandoned(calls: list[_RunningCall], work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None if all the calls it was for have ended before."""
    working = asyncio.create_task(work)
    over = asyncio.gather(*(call.over.wait() for call in calls)) if calls else asyncio.get_running_loop().create_future()
    try:
        await asyncio.wait([working, over], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for waiting in (working, over):
            waiting.cancel()
        await asyncio.gather(working, over, return_exceptions=True)


@asynccontextmanager
async def _keep_alive(config: ServerConfig, running: set[_RunningCall], what: str) -> AsyncGenerator[list[_RunningCall], None]:
    """The calls that a server's request may belong to; progress is reported so that they do not time out meanwhile."""
    current = _CURRENT.get()
    meant = [current] if current else list(running)  # the older protocol does not say which

    async def report() -> None:
        while True:
            for call in meant:
                call.on_progress(ToolProgress(call.call.id, f"{config.name} {what}", waits=True))
            await asyncio.sleep(min(_TICK, config.timeout / 3))

    reporting = asyncio.create_task(report())
    try:
        yield meant
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


@asynccontextmanager
async def _observed_streams(
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
