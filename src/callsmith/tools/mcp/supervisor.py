"""Supervision of one MCP server: started when first needed, restarted with backoff when it has ended, its tools kept up to date.

configured → starting → ready; a server that cannot be started or has ended is failed, and is started again after a while.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from callsmith.core.approval import ToolChanged
from callsmith.core.closing import closing
from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.events import ToolProgress
from callsmith.core.failures import make_failure, unknown_tool
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.mcp.calls import ServerCall
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.connection import Auth, Connection, connect
from callsmith.tools.mcp.content import read_tool
from callsmith.tools.mcp.elicitation import ClientFeatures
from callsmith.tools.mcp.resources import Material
from callsmith.tools.mcp.transport.process import first_error
from callsmith.tools.pins import Pins
from callsmith.tools.wrap.naming import make_filter

T = TypeVar("T")
State: TypeAlias = Literal["configured", "starting", "ready", "failed"]

STANDARD_REFRESH = 30.0  # seconds between two listings of a server's tools
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds before a server is restarted; doubled each time
_STEADY = 30.0  # seconds after which a server counts as recovered
_SETTLING = 0.2  # seconds after a change: changes come in bursts
_BETWEEN_LISTS = 1.0
_MOST_DIGESTS = 10_000  # of tools that are compared with their first definitions
_PIECE = 0.02  # seconds of work on a list before others have their turn
_LIST_BEFORE_CALL = 5.0  # seconds that a listing before an approved call may take
_SLOW = 10.0  # seconds after which a start is said to take long
_LINES = 20  # of a server's stderr that are stored
_NO_RESOURCE = -32002  # the code of older servers for a resource that does not exist

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a server. `notices` say which of its tools are not offered, and why, or that its start takes long."""

    name: str
    state: State = "configured"
    tools: int = 0
    error: str = ""
    protocol: str = ""
    server: str = ""
    starts: int = 0
    notices: tuple[str, ...] = ()


class ServerSupervisor:
    """The toolset of one server, which it keeps running. The tools have their original names here."""

    def __init__(
        self, config: ServerConfig, features: ClientFeatures, *, refresh: float = STANDARD_REFRESH, auth: Auth | None = None
    ) -> None:
        self.config = config
        self.status = Status(config.name)
        self._features = features
        self._refresh = refresh
        self._auth = auth
        self._is_allowed, self._is_denied = make_filter(config.allow), make_filter(config.deny)
        self._tools: Mapping[str, Tool] | None = None  # the last list received
        self._task_support: Mapping[str, str] = {}  # of tools that can be called as tasks: whether they have to be
        self._first_digests: dict[str, str] = {}  # of each tool when it was first listed
        self._changes: dict[str, str] = {}  # of definitions since then, by tool
        self._pins = Pins(Path(config.pins), config.name) if config.pins else None
        self._listing = asyncio.Lock()
        self._connection: Connection | None = None
        self._settled = asyncio.Event()  # ready, or failed
        self._start_deadline = 0.0  # until when a start is waited for, in the loop's time
        self._timeout: asyncio.Timeout | None = None  # of the start or of a listing of its tools
        self._stderr_lines: deque[str] = deque(maxlen=_LINES)
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_logged_error = ""  # so that the same failure is logged once

    def start(self) -> None:
        """Start the server, if it was not started before, without waiting for it."""
        if self._closing.is_set():
            return
        if self._task is not None and (self._task.done() or self._task.get_loop().is_closed()):
            # The event loop it ran in has ended, and the server with it, as between two calls of `run_sync`.
            self._task = self._connection = self._timeout = None
            self._listing, self._closing, self._settled = asyncio.Lock(), asyncio.Event(), asyncio.Event()
        if self._task is None:
            self._set_start_deadline()
            self._task = asyncio.create_task(self._supervise(), name=f"mcp {self.config.name}")
        elif self._task.get_loop() is not asyncio.get_running_loop():
            raise UsageError(
                f"the MCP server {self.config.name} was started in another event loop, which still runs: use it there"
            )

    async def close(self) -> None:
        """End the server with all its processes."""
        self._closing.set()
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())
        if self._task is not None:
            await asyncio.shield(asyncio.wait([self._task]))

    async def wait_until_settled(self) -> None:
        """Start the server, and wait until it is ready or has failed, however long that takes."""
        self.start()
        await self._settled.wait()

    async def tools(self) -> Sequence[Tool]:
        """The server's tools. For a server that has ended these are the last ones: it may be back when it is called."""
        self.start()
        if self._tools is None and self.status.starts <= 1:
            await self._wait()
        return self.last_tools

    @property
    def last_tools(self) -> Sequence[Tool]:
        """The tools of the last listing, without waiting."""
        return tuple((self._tools or {}).values())

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        self.start()
        work = ServerCall(self.config, call, context, lambda: self._connection, self._goes_as_task(call, context))
        if work.noted_task:  # it runs already
            await context.starting()
            async with closing(work.events(None)) as items:
                async for item in items:
                    yield item
            return
        await self._wait()
        connection = self._connection
        if connection is None:
            why = self.status.error or "; ".join(self.status.notices) or "it is starting"
            yield make_failure(call, "unavailable", f"the MCP server {self.config.name} is not running: {why}")
            return
        if context.approved:
            await self._list_before_call(connection)
        tool = (self._tools or {}).get(call.name)
        if tool is None:
            yield unknown_tool(call, self._tools or ())
            return
        if context.approved not in ("", tool.digest):
            raise ToolChanged(call.name)
        await context.starting()
        async with closing(work.events(connection)) as items:
            async for item in items:
                yield item

    async def use(self, ask: Callable[[Material], Awaitable[T]]) -> T:
        """Ask the server for resources or prompts. Unavailable if it cannot be asked, UsageError if it has no such thing."""
        import mcp_types as types
        from mcp import MCPError

        self.start()
        await self._wait()
        name, connection = self.config.name, self._connection
        if connection is None:
            why = self.status.error or "; ".join(self.status.notices) or "it is starting"
            raise Unavailable(f"the MCP server {name} is not running: {why}")
        try:
            async with asyncio.timeout(self.config.timeout):
                return await ask(connection.material)
        except TimeoutError as error:
            raise Unavailable(f"the MCP server {name} did not answer within {self.config.timeout:g} seconds") from error
        except MCPError as error:
            said = f"the MCP server {name} says: {error.message}"
            if error.code in (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, _NO_RESOURCE):
                raise UsageError(said) from error
            raise Unavailable(said) from error
        except Exception as error:  # whatever a server, its transport or the SDK may do
            raise Unavailable(f"the MCP server {name} gave no valid answer: {first_error(error)}") from error

    @property
    def has_resources(self) -> bool:
        """Whether it is ready, and has resources."""
        return self._connection is not None and self._connection.material.has_resources

    def _goes_as_task(self, call: Call, context: Context) -> bool:
        """Whether a call is made as a task: where it cannot be otherwise, or can and would survive a restart of this program."""
        support, checkpoint = self._task_support.get(call.name), context.checkpoint
        return support == "required" or (support == "optional" and checkpoint is not None and checkpoint.is_job)

    async def _wait(self) -> None:
        """Wait until the server is ready, has failed, or has taken too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._start_deadline):
                await self._settled.wait()

    def _set_start_deadline(self) -> None:
        self._start_deadline = asyncio.get_running_loop().time() + self.config.start_timeout

    async def _supervise(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            began = time.monotonic()
            await self._run_once()
            if time.monotonic() - began > _STEADY:
                pause = _FIRST_PAUSE
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_once(self) -> None:
        """Start the server, keep its tools fresh until it ends or is closed, and clean up."""
        self._settled.clear()
        self._set_start_deadline()
        self._stderr_lines.clear()
        self._set_status(replace(self.status, state="starting", starts=self.status.starts + 1))
        slow = asyncio.get_running_loop().call_later(min(_SLOW, self.config.start_timeout), self._tell_that_it_is_slow)
        why = "it ended"
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.config.total_start_timeout) as self._timeout:
                    connection = await stack.enter_async_context(
                        connect(self.config, self._features, self._stderr_lines, self._auth)
                    )
                    await self._list(connection)
                slow.cancel()
                self._timeout = None
                self._connection = connection
                self._set_status(
                    replace(self.status, state="ready", error="", protocol=connection.protocol, server=connection.server)
                )
                self._settled.set()
                await self._refresh_tools(connection)
        except TimeoutError:
            why = f"it did not answer within {self.config.total_start_timeout:g} seconds"
        except Exception as error:  # whatever a server, its transport or the SDK may do
            why = str(first_error(error)) or type(first_error(error)).__name__
        slow.cancel()
        self._connection = self._timeout = None
        why = "\n".join((why, *self._stderr_lines))
        state: State = "configured" if self._closing.is_set() else "failed"
        self._set_status(replace(self.status, state=state, error="" if state == "configured" else why, notices=()))
        self._settled.set()

    def _tell_that_it_is_slow(self) -> None:
        """Say that the start takes long. An installation is left to end: half of one may be worse than none."""
        if self.status.state == "starting":
            packages = (argument for argument in self.config.args if not argument.startswith("-"))
            what = next(packages, "")  # behind it may be secrets
            program = f"{self.config.command} {what}".strip() if self.config.installs else self.config.command or self.config.url
            doing = "installing" if self.config.installs else "starting"
            self._set_status(replace(self.status, notices=(f"still {doing}: {program}",)))
            _log.warning("MCP server %s is still %s: %s", self.config.name, doing, program)

    async def _refresh_tools(self, connection: Connection) -> None:
        """List the tools again at intervals and on changes, until the connection breaks or is closed."""
        subscription = asyncio.create_task(connection.watch())
        try:
            while not (connection.ended.is_set() or self._closing.is_set()):
                await _wait_for_any(self._refresh, connection.ended, self._closing, connection.changed)
                if connection.ended.is_set() or self._closing.is_set():
                    return
                if connection.changed.is_set():
                    await _wait_for_any(_SETTLING, connection.ended, self._closing)
                    connection.changed.clear()
                await self._relist(connection)
                await _wait_for_any(_BETWEEN_LISTS, connection.ended, self._closing)
        finally:
            subscription.cancel()
            await asyncio.gather(subscription, return_exceptions=True)

    async def _relist(self, connection: Connection) -> None:
        """List the tools again; if that fails, the last list stays."""
        try:
            async with asyncio.timeout(self.config.start_timeout) as self._timeout:
                await self._list(connection)
        except Exception as error:  # see _run_once
            why = str(first_error(error)) or type(error).__name__
            _log.warning("MCP server %s: its tools could not be listed again: %s", self.config.name, why)
        finally:
            self._timeout = None

    async def _list_before_call(self, connection: Connection) -> None:
        """List the tools again before a call that was approved: it may be another tool by now."""
        try:
            async with asyncio.timeout(_LIST_BEFORE_CALL):
                await self._list(connection)
        except Exception as error:  # see _run_once; what was listed last is what the call is held to
            _log.warning("MCP server %s: its tools could not be listed before a call: %s", self.config.name, first_error(error))

    async def _list(self, connection: Connection) -> None:
        async with self._listing:
            listed_tools, notices = await connection.tools()
        tools: dict[str, Tool] = {}
        takes_tasks = connection.takes_tasks
        self._task_support = {
            listed.name: listed.execution.task_support or ""
            for listed in listed_tools
            if takes_tasks and listed.execution is not None
        }
        began = time.monotonic()
        for listed in listed_tools:
            if time.monotonic() - began > _PIECE:
                await asyncio.sleep(0)
                began = time.monotonic()
            tool = read_tool(listed, self.config, takes_tasks=takes_tasks)
            if isinstance(tool, str):
                notices.append(tool)
            elif tool.name in tools:
                notices.append(f"{tool.name} is listed twice")
            elif self._is_allowed(tool) and not self._is_denied(tool):
                tools[tool.name] = tool
        if self._pins is not None:
            held_back = self._pins.held_back(tools)
            notices += held_back.values()
            tools = {name: tool for name, tool in tools.items() if name not in held_back}
        if tools != self._tools:  # replaced as a whole: a running call has the list it began with
            self._note_changes(tools)
            self._tools = tools
        notices += self._changes.values()
        self._set_status(replace(self.status, tools=len(tools), notices=tuple(notices)))

    def _note_changes(self, tools: Mapping[str, Tool]) -> None:
        """Tell the operator of definitions that are others than when they were first listed."""
        for name, tool in tools.items():
            if name not in self._first_digests and len(self._first_digests) >= _MOST_DIGESTS:
                continue
            if (digest := tool.digest) == self._first_digests.setdefault(name, digest):
                self._changes.pop(name, None)
            else:
                self._changes[name] = f"{name} is not defined as it was when it was first listed"
                _log.warning("MCP server %s: %s", self.config.name, self._changes[name])

    def _set_status(self, status: Status) -> None:
        if status.state == "failed":
            level = logging.DEBUG if status.error == self._last_logged_error else logging.WARNING  # once is enough
            self._last_logged_error = status.error
            _log.log(level, "MCP server %s has failed: %s", status.name, status.error)
        elif status.state != self.status.state:
            _log.info("MCP server %s is %s", status.name, status.state)
        self.status = status


async def _wait_for_any(seconds: float, *events: asyncio.Event) -> None:
    """Wait until one of the events is set, for at most so many seconds."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
