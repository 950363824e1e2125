"""One open connection to an MCP server: a process of ours, or something behind a URL.

    async with connect(config, features, stderr_lines) as connection:
        tools, notices = await connection.tools()
        result = await connection.call(Call("read", {"path": "a.txt"}), on_progress)

The task that opens a connection must also close it; any task may use it in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, MutableSequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar, cast

from callsmith.core.events import ToolProgress
from callsmith.core.values import Call
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.content import LISTS, RELATED_TASK, Notices, within_bounds, without_malformed
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationRequest, elicit
from callsmith.tools.mcp.resources import Material
from callsmith.tools.mcp.sampling import sample
from callsmith.tools.mcp.transport.pages import list_pages
from callsmith.tools.mcp.transport.streams import Auth, observed_streams

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client
    from mcp.client import ClientRequestContext

    from callsmith.tools.mcp.tasks import TaskClient

T = TypeVar("T")
OnProgress = Callable[[ToolProgress], None]

_LONGEST_PROGRESS = 1_000  # characters of what is reported
_MOST_REQUESTS = 8  # of a server's own that are open at once: questions to a person, texts for the model to write
_MOST_IN_ALL = 100  # of them from one call of ours to the next: each may take as long as it likes
_TICK = 5.0  # seconds between progress reports while a person is asked
_TASK_STOP = 2.0  # seconds that a server may take to hear that a task is not wanted any more


@dataclass(frozen=True, slots=True, eq=False)
class _RunningCall:
    """A call that is running. It is identified by the object: call ids are unique in one conversation only."""

    call: Call
    on_progress: OnProgress
    subject: str
    task: str = ""  # its id, where it is one
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Requests:
    """What a server may still ask of us: so much at once, and so much in all until it is called again."""

    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_REQUESTS))
    left: int = _MOST_IN_ALL

    def refuse(self) -> str:
        """Why the server may ask for nothing more; empty if it may, and then that is one less."""
        if self.free.locked():
            return f"no more than {_MOST_REQUESTS} requests at a time"
        if self.left <= 0:
            return f"no more than {_MOST_IN_ALL} requests for one call"
        self.left -= 1
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """An open connection. `ended` is set when it is broken, `changed` when the server reports that its tools have changed."""

    _client: "Client"
    ended: asyncio.Event
    changed: asyncio.Event
    _running: set[_RunningCall]
    _requests: _Requests
    _notices: Notices
    _config: ServerConfig
    _tasks: "TaskClient"

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
        self._notices.take("tools")
        listed, notices = await list_pages(
            "tools",
            self._config.max_tools,
            lambda cursor: self._client.list_tools(cursor=cursor, cache_mode="refresh"),
            lambda page: page.tools,
        )
        return listed, list(dict.fromkeys((*self._notices.take("tools"), *notices)))

    @property
    def material(self) -> Material:
        """The server's resources and prompts."""
        return Material(self._client, self._config, self._notices)

    @property
    def takes_tasks(self) -> bool | None:
        """Whether calls can be made as tasks. None: that is for the server to decide."""
        return self._tasks.takes_tasks

    async def call(
        self, call: Call, on_progress: OnProgress, subject: str = "", *, as_task: bool = False
    ) -> "types.CallToolResult":
        """Make a call. `TaskBegun` is raised where it goes on at the server as a task."""

        async def pass_on(progress: float, total: float | None, message: str | None) -> None:
            on_progress(ToolProgress(call.id, (message or "")[:_LONGEST_PROGRESS], progress, total))

        with self._current(_RunningCall(call, on_progress, subject)):
            if as_task:
                return await self._tasks.begin(call, self._config.task_timeout, pass_on)
            return await self._client.call_tool(call.name, dict(call.arguments), progress_callback=pass_on)

    async def follow_task(self, id: str, call: Call, on_progress: OnProgress, subject: str = "") -> "types.CallToolResult":
        """Wait for the end of a call that goes on at the server as a task."""

        def tell(text: str) -> None:
            on_progress(ToolProgress(call.id, text[:_LONGEST_PROGRESS], waits=True))

        with self._current(_RunningCall(call, on_progress, subject, id)):
            return await self._tasks.follow(call.name, id, tell)

    async def cancel_task(self, id: str) -> None:
        """Tell the server that a task is not wanted any more; whether it hears it is not waited for long."""
        with suppress(Exception):  # whatever a server, its transport or the SDK may do
            async with asyncio.timeout(_TASK_STOP):
                await self._tasks.cancel(id)

    @contextmanager
    def _current(self, running: _RunningCall) -> Generator[None, None, None]:
        """What the server asks meanwhile may belong to this call."""
        self._running.add(running)
        self._requests.left = _MOST_IN_ALL
        current = _CURRENT.set(running)
        try:
            yield
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

    from callsmith.tools.mcp.tasks import TaskClient, TasksExtension

    ended, changed, running, notices = asyncio.Event(), asyncio.Event(), set[_RunningCall](), Notices()
    requests = _Requests()

    async def on_notification(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    def see(message: Any) -> None:
        answer = getattr(message, "message", None)
        if isinstance(answer, types.JSONRPCResponse):
            if "content" not in answer.result and (
                isinstance(answer.result.get("task"), dict) or "structuredContent" in answer.result
            ):
                answer.result = {**answer.result, "content": []}  # the SDK knows no other answer to a call
            if isinstance(inner := answer.result.get("result"), dict):  # that of a task
                answer.result = {**answer.result, "result": within_bounds(cast("dict[str, Any]", inner), config)[0]}
            answer.result, left_out = within_bounds(answer.result, config)
            if not LISTS.isdisjoint(answer.result):
                answer.result, malformed = without_malformed(answer.result, client.protocol_version)
                notices.add(answer.result, (*left_out, *malformed))

    client = Client(
        observed_streams(config, auth, stderr_lines, ended, see),
        # The SDK's name of the mode: all versions before 2026-07-28 connect in the same way.
        mode="legacy" if config.protocol[:1].isdigit() and config.protocol < "2026-07-28" else config.protocol,
        message_handler=on_notification,
        client_info=types.Implementation(name="callsmith", version=version("callsmith")),
        extensions=[TasksExtension()],
        **_callbacks(config, features, running, requests),
    )
    async with client:
        tasks = TaskClient(client, config.name, max(1.0, min(60.0, config.timeout / 3)))
        yield Connection(client, ended, changed, running, requests, notices, config, tasks)


def _callbacks(config: ServerConfig, features: ClientFeatures, running: set[_RunningCall], requests: _Requests) -> dict[str, Any]:
    """The callbacks for requests of the server; features we do not have are not announced to it."""
    import mcp_types as types

    ask, model = features.ask, features.model
    callbacks: dict[str, Any] = {}
    if ask is not None:

        async def on_elicit(_: "ClientRequestContext", params: "types.ElicitRequestParams") -> Any:
            by_url = isinstance(params, types.ElicitRequestURLParams)
            schema = None if by_url else dict(params.requested_schema)
            url = params.url if by_url else ""
            if requests.refuse():
                return types.ElicitResult(action="cancel")
            async with requests.free, _keep_alive(config, running, "waits for an answer", params.meta) as meant:
                if len({call.subject for call in meant}) > 1:
                    return types.ElicitResult(action="cancel")  # it is unclear whose call the request belongs to
                call = meant[0].call if len(meant) == 1 else None
                subject = meant[0].subject if meant else ""
                question = ElicitationRequest(config.name, params.message, schema, url, call, subject)
                return await _unless_abandoned(meant, elicit(ask, question)) or types.ElicitResult(action="cancel")

        callbacks["elicitation_callback"] = on_elicit
    if model is not None and config.sampling:

        async def on_sample(_: "ClientRequestContext", params: "types.CreateMessageRequestParams") -> Any:
            if why := requests.refuse():
                return types.ErrorData(code=types.INVALID_REQUEST, message=why)
            async with requests.free, _keep_alive(config, running, "has the model write something", params.meta):
                return await sample(model, params)

        callbacks["sampling_callback"] = on_sample
        callbacks["sampling_capabilities"] = types.SamplingCapability(tools=types.SamplingToolsCapability())
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
async def _keep_alive(
    config: ServerConfig, running: set[_RunningCall], what: str, meta: Mapping[str, Any] | None
) -> AsyncGenerator[list[_RunningCall], None]:
    """The calls that a server's request may belong to; progress is reported so that they do not time out meanwhile."""
    current = _CURRENT.get()
    meant = [current] if current else list(running)  # the older protocol does not say which, unless it is a task
    if task := _related_task(meta):
        meant = [call for call in meant if call.task == task]

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


def _related_task(meta: Mapping[str, Any] | None) -> str:
    """The id of the task that a server's request belongs to, if it says so."""
    related: Any = (meta or {}).get(RELATED_TASK)
    id: Any = cast("dict[str, Any]", related).get("taskId") if isinstance(related, dict) else None
    return id if isinstance(id, str) else ""
