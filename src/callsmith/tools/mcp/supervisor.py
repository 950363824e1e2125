"""A server that is kept running: started when first needed, started again when it has died, and never waited for in vain.

configured → starting → ready; a server that cannot be started or has died is failed, and is tried again after a while.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from callsmith.core.closing import closing
from callsmith.core.events import ToolProgress
from callsmith.core.failures import failed, unknown_tool
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.connection import Auth, Link, connected
from callsmith.tools.mcp.content import read_result, read_tool
from callsmith.tools.mcp.elicitation import Answering
from callsmith.tools.mcp.process import first_of
from callsmith.tools.wrap.naming import test_of

if TYPE_CHECKING:
    import mcp_types as types

State: TypeAlias = Literal["configured", "starting", "ready", "failed"]

STANDARD_REFRESH = 30.0  # seconds between looks at a server's tools
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # before a server is started again
_STEADY = 30.0  # seconds after which a server has recovered
_SETTLING = 0.2  # after a list has changed: changes come in swarms
_BETWEEN_LISTS = 1.0
_LINES = 20  # kept of what a server has written to stderr

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """How a server is. `notices` are the tools it has and that are not offered, and why."""

    name: str
    state: State = "configured"
    tools: int = 0
    error: str = ""
    protocol: str = ""
    server: str = ""
    starts: int = 0
    notices: tuple[str, ...] = ()


class Supervised:
    """The toolset of one server. Its tools have their own names here."""

    def __init__(
        self, config: ServerConfig, answering: Answering, *, refresh: float = STANDARD_REFRESH, auth: Auth | None = None
    ) -> None:
        self.config = config
        self.status = Status(config.name)
        self._answering = answering
        self._refresh = refresh
        self._auth = auth
        self._chosen, self._unwanted = test_of(config.allow), test_of(config.deny)
        self._tools: Mapping[str, Tool] | None = None  # the last list that was got
        self._link: Link | None = None
        self._settled = asyncio.Event()  # ready, or failed
        self._patience = 0.0  # until when that is waited for, in the loop's time
        self._waiting: asyncio.Timeout | None = None  # for what it says, at start or when its tools are listed
        self._heard: deque[str] = deque(maxlen=_LINES)
        self._leaving = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._told = ""  # of which failure was told last

    def start(self) -> None:
        """Begin to keep it running; nothing is waited for."""
        if self._keeper is None and not self._leaving.is_set():
            self._be_patient()
            self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self.config.name}")

    async def close(self) -> None:
        """End it, with all its processes."""
        self._leaving.set()
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())
        if self._keeper is not None:
            await asyncio.shield(asyncio.wait([self._keeper]))

    async def tools(self) -> Sequence[Tool]:
        """What it offers. Of a server that has died it is what it offered last: it may be back when it is called."""
        self.start()
        if self._tools is None and self.status.starts <= 1:
            await self._wait()
        return self.known

    @property
    def known(self) -> Sequence[Tool]:
        """What it offered last; nothing is waited for."""
        return tuple((self._tools or {}).values())

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        self.start()
        await self._wait()
        link = self._link
        if link is None:
            yield failed(
                call, "unavailable", f"the MCP server {self.config.name} is not running: {self.status.error or 'it is starting'}"
            )
            return
        if call.name not in (self._tools or {}):
            yield unknown_tool(call, self._tools or ())
            return
        await context.starting()
        async with closing(self._answers(link, call, context.subject)) as items:
            async for item in items:
                yield item

    async def _wait(self) -> None:
        """Until it is ready or has failed, or has taken too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._patience):
                await self._settled.wait()

    def _be_patient(self) -> None:
        self._patience = asyncio.get_running_loop().time() + self.config.start_timeout

    async def _answers(self, link: Link, call: Call, subject: str) -> AsyncIterator[ToolProgress | Result]:
        """Progress as it comes, then the result. Who stops listening cancels the call."""
        heard: asyncio.Queue[ToolProgress | None] = asyncio.Queue()
        work = asyncio.create_task(link.call(call, heard.put_nowait, subject))
        work.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (item := await heard.get()) is not None:
                yield item
            yield self._result(link, call, work)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work], timeout=1)

    def _result(self, link: Link, call: Call, work: "asyncio.Task[types.CallToolResult]") -> Result:
        import mcp_types as types
        from mcp import MCPError

        died = failed(call, "unavailable", f"the MCP server {self.config.name} died before it had answered")
        try:
            return died if work.cancelled() else read_result(call, work.result())
        except MCPError as error:
            if link.ended.is_set() or error.code == types.CONNECTION_CLOSED:
                return died
            code = {types.REQUEST_TIMEOUT: "timeout", types.INVALID_PARAMS: "bad_request"}.get(error.code, "tool_error")
            return failed(call, code, error.message)
        except (RuntimeError, ValueError) as error:  # what does not fit its own output schema, or is no result at all
            return failed(call, "bad_result", str(error))
        except Exception as error:  # a connection may break in many ways
            link.ended.set()
            return failed(call, "unavailable", f"the MCP server {self.config.name} cannot be reached: {first_of(error)}")

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while not self._leaving.is_set():
            began = time.monotonic()
            await self._live()
            if time.monotonic() - began > _STEADY:
                pause = _FIRST_PAUSE
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _live(self) -> None:
        """One life of the server: started, tended, ended."""
        self._settled.clear()
        self._be_patient()
        self._heard.clear()
        self._become(replace(self.status, state="starting", starts=self.status.starts + 1))
        why = "it ended"
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.config.patience) as self._waiting:
                    link = await stack.enter_async_context(connected(self.config, self._answering, self._heard, self._auth))
                    await self._list(link)
                self._waiting = None
                self._link = link
                self._become(replace(self.status, state="ready", error="", protocol=link.protocol, server=link.server))
                self._settled.set()
                await self._tend(link)
        except TimeoutError:
            why = f"it did not answer within {self.config.patience:g} seconds"
        except Exception as error:  # whatever a server, its transport or the SDK may do
            why = str(first_of(error)) or type(first_of(error)).__name__
        self._link = self._waiting = None
        why = "\n".join((why, *self._heard))
        state: State = "configured" if self._leaving.is_set() else "failed"
        self._become(replace(self.status, state=state, error="" if state == "configured" else why))
        self._settled.set()

    async def _tend(self, link: Link) -> None:
        """Keep the list of tools fresh, until the connection breaks or nobody wants it any more."""
        watching = asyncio.create_task(link.watch())
        try:
            while not (link.ended.is_set() or self._leaving.is_set()):
                await _first(self._refresh, link.ended, self._leaving, link.changed)
                if link.ended.is_set() or self._leaving.is_set():
                    return
                if link.changed.is_set():
                    await _first(_SETTLING, link.ended, self._leaving)
                    link.changed.clear()
                await self._relist(link)
                await _first(_BETWEEN_LISTS, link.ended, self._leaving)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _relist(self, link: Link) -> None:
        """Look at its tools again; if that fails, those that are known stay."""
        try:
            async with asyncio.timeout(self.config.start_timeout) as self._waiting:
                await self._list(link)
        except Exception as error:  # see _live
            why = str(first_of(error)) or type(error).__name__
            _log.warning("MCP server %s: its tools could not be listed again: %s", self.config.name, why)
        finally:
            self._waiting = None

    async def _list(self, link: Link) -> None:
        tools: dict[str, Tool] = {}
        found, notices = await link.tools()
        for listed in found:
            tool = read_tool(listed, self.config)
            if isinstance(tool, str):
                notices.append(tool)
            elif tool.name in tools:
                notices.append(f"{tool.name} is listed twice")
            elif self._chosen(tool) and not self._unwanted(tool):
                tools[tool.name] = tool
        if tools != self._tools:  # all at once: a call under way keeps the list it began with
            self._tools = tools
        self._become(replace(self.status, tools=len(tools), notices=tuple(notices)))

    def _become(self, status: Status) -> None:
        if status.state == "failed":
            level = logging.DEBUG if status.error == self._told else logging.WARNING  # once is enough
            self._told = status.error
            _log.log(level, "MCP server %s has failed: %s", status.name, status.error)
        elif status.state != self.status.state:
            _log.info("MCP server %s is %s", status.name, status.state)
        self.status = status


async def _first(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of the events, for so long."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
