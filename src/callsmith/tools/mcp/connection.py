"""One open connection to an MCP server: a process of ours, or something behind a URL.

    async with connected(config, answering, heard) as link:
        tools, notices = await link.tools()
        result = await link.call(Call("read", {"path": "a.txt"}), told)

The task that opens a connection also closes it; any task may use it in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableSequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from callsmith.core.errors import Unavailable
from callsmith.core.events import ToolProgress
from callsmith.core.values import Call
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.content import without_malformed
from callsmith.tools.mcp.elicitation import Answering, Question, elicited, sampled
from callsmith.tools.mcp.process import process_streams

if TYPE_CHECKING:
    import httpx2
    import mcp_types as types
    from mcp import Client
    from mcp.client import ClientRequestContext
    from mcp.client._transport import TransportStreams

Auth = Callable[[ServerConfig], "httpx2.Auth | None"]
T = TypeVar("T")
Told = Callable[[ToolProgress], None]

MOST_PAGES = 1_000  # of a list of tools: one that goes round in circles ends
_TICK = 5.0  # seconds between signs of life while somebody is asked


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """A call under way. What it belongs to is told here: ids are unique in one conversation only."""

    call: Call
    told: Told
    subject: str
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Link:
    """An open connection. `ended` is set when it has broken, `changed` when the server says that its tools have."""

    def __init__(
        self, client: "Client", ended: asyncio.Event, changed: asyncio.Event, running: set[_Running], notices: list[str]
    ) -> None:
        self._client = client
        self._running = running
        self._notices = notices
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

    async def tools(self) -> "tuple[list[types.Tool], list[str]]":
        """All pages of its list, and what in it is no tool."""
        self._notices.clear()
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            if page.next_cursor is None or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        return found, list(dict.fromkeys(self._notices))

    async def call(self, call: Call, told: Told, subject: str = "") -> "types.CallToolResult":
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            told(ToolProgress(call.id, message or "", progress, total))

        running = _Running(call, told, subject)
        self._running.add(running)
        current = _CURRENT.set(running)
        try:
            return await self._client.call_tool(call.name, dict(call.arguments), progress_callback=progressed)
        finally:
            _CURRENT.reset(current)
            self._running.remove(running)
            running.over.set()

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


_CURRENT: ContextVar[_Running | None] = ContextVar("callsmith_mcp_call", default=None)


@asynccontextmanager
async def connected(
    config: ServerConfig, answering: Answering, heard: MutableSequence[str], auth: Auth | None = None
) -> AsyncGenerator[Link, None]:
    """A connection to the server. `heard` is what a process of ours writes to stderr."""
    await asyncio.to_thread(__import__, "mcp")  # takes seconds, during which others want to go on
    import mcp_types as types
    from mcp import Client

    ended, changed, running, notices = asyncio.Event(), asyncio.Event(), set[_Running](), list[str]()

    async def notified(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    def see(message: Any) -> None:
        answer = getattr(message, "message", None)
        if isinstance(answer, types.JSONRPCResponse) and isinstance(answer.result.get("tools"), list):
            answer.result, left_out = without_malformed(answer.result, client.protocol_version)
            notices.extend(left_out)

    client = Client(
        _watched(config, auth, heard, ended, see),
        mode=_mode(config.protocol),
        message_handler=notified,
        client_info=types.Implementation(name="callsmith", version=version("callsmith")),
        **_callbacks(config, answering, running),
    )
    async with client:
        yield Link(client, ended, changed, running, notices)


def _mode(protocol: str) -> str:
    """What the SDK calls it: versions before this one differ from it, but not in how one connects."""
    return "legacy" if protocol[:1].isdigit() and protocol < "2026-07-28" else protocol


def _callbacks(config: ServerConfig, answering: Answering, running: set[_Running]) -> dict[str, Any]:
    """What the server may ask back; what it may not is not offered to it either."""
    import mcp_types as types

    ask, model = answering.ask, answering.model
    callbacks: dict[str, Any] = {}
    if ask is not None:

        async def elicit(_: "ClientRequestContext", params: "types.ElicitRequestParams") -> Any:
            by_url = isinstance(params, types.ElicitRequestURLParams)
            schema = None if by_url else dict(params.requested_schema)
            url = params.url if by_url else ""
            async with _alive(config, running, "waits for an answer") as meant:
                if len({one.subject for one in meant}) > 1:
                    return types.ElicitResult(action="cancel")  # it is not known who is asked
                call = meant[0].call if len(meant) == 1 else None
                subject = meant[0].subject if meant else ""
                question = Question(config.name, params.message, schema, url, call, subject)
                return await _while_wanted(meant, elicited(ask, question)) or types.ElicitResult(action="cancel")

        callbacks["elicitation_callback"] = elicit
    if model is not None and config.sampling:

        async def sample(_: "ClientRequestContext", params: "types.CreateMessageRequestParams") -> Any:
            async with _alive(config, running, "has the model write something"):
                return await sampled(model, params)

        callbacks["sampling_callback"] = sample
    return callbacks


async def _while_wanted(calls: list[_Running], work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of the work; None where all the calls it was for have ended before."""
    working = asyncio.create_task(work)
    over = asyncio.gather(*(one.over.wait() for one in calls)) if calls else asyncio.get_running_loop().create_future()
    try:
        await asyncio.wait([working, over], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for one in (working, over):
            one.cancel()
        await asyncio.gather(working, over, return_exceptions=True)


@asynccontextmanager
async def _alive(config: ServerConfig, running: set[_Running], what: str) -> AsyncGenerator[list[_Running], None]:
    """The calls that a question may belong to, which are not given up while that is answered."""
    current = _CURRENT.get()
    meant = [current] if current else list(running)  # the older protocol does not say

    async def tell() -> None:
        while True:
            for one in meant:
                one.told(ToolProgress(one.call.id, f"{config.name} {what}"))
            await asyncio.sleep(min(_TICK, config.timeout / 3))

    telling = asyncio.create_task(tell())
    try:
        yield meant
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


@asynccontextmanager
async def _watched(
    config: ServerConfig, auth: Auth | None, heard: MutableSequence[str], ended: asyncio.Event, see: Callable[[Any], None]
) -> "AsyncGenerator[TransportStreams, None]":
    """The streams to a server. What it says is seen before the SDK reads it; when that has ended, somebody is told."""
    streams = process_streams(config, heard) if config.transport == "stdio" else _http_streams(config, auth, ended)
    async with streams as (read, write):
        yield _Read(read, ended, see), write


@asynccontextmanager
async def _http_streams(
    config: ServerConfig, auth: Auth | None, ended: asyncio.Event
) -> "AsyncGenerator[TransportStreams, None]":
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    from callsmith.tools.mcp.auth import WithoutLogin

    if config.oauth and auth is None:
        raise Unavailable("it wants a login, and there is nobody to log in", hint="Give the host auth=Login(…).")
    shown = (auth(config) if auth else None) or WithoutLogin(config)
    if config.transport == "sse":
        async with sse_client(config.url, headers=dict(config.headers), auth=shown) as streams:
            yield streams
        return

    async def look(response: "httpx2.Response") -> None:
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            ended.set()  # it has been started anew and knows nothing of us

    async with create_mcp_http_client(headers=dict(config.headers), auth=shown) as http:
        http.event_hooks = {"response": [look]}
        async with streamable_http_client(config.url, http_client=http) as streams:
            yield streams


class _Read:
    """A stream that is read: what comes is shown to `see`, and `ended` says when there is no more."""

    def __init__(self, stream: Any, ended: asyncio.Event, see: Callable[[Any], None]) -> None:
        self._stream = stream
        self._ended = ended
        self._see = see

    async def receive(self) -> Any:
        return await self._seen(self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await self._seen(anext(self._stream))

    async def _seen(self, coming: Awaitable[Any]) -> Any:
        try:
            message = await coming
            self._see(message)
        except BaseException:
            self._ended.set()
            raise
        return message

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
