"""What our MCP server asks of jobs: calls of background tools become some."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

from callsmith.core.closing import closing
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool

ACCEPTED = "accepted"  # the code of the result of a call that goes on in the background


class JobView(Protocol):
    """What is told of a job."""

    @property
    def id(self) -> str: ...
    @property
    def call(self) -> Call: ...
    @property
    def tool(self) -> Tool: ...
    @property
    def status(self) -> Literal["running", "done", "failed", "cancelled", "interrupted"]: ...
    @property
    def created(self) -> float: ...
    @property
    def ended(self) -> float: ...
    @property
    def result(self) -> Result | None: ...


class BackgroundJobs(Protocol):
    """The jobs that calls become (`runtime.jobs`)."""

    def begin(self, toolset: Toolset, tool: Tool, call: Call, context: Context) -> AsyncIterator[CallEvent]: ...
    async def get(self, subject: str, id: str) -> JobView | None: ...
    async def list(self, subject: str = "") -> Sequence[JobView]: ...
    async def cancel(self, job: Any) -> JobView | None: ...
    def follow(self, job: Any) -> AsyncIterator[Any]: ...
    def progress(self, id: str) -> ToolProgress | None: ...


class JobsToolset:
    """A toolset all of whose calls become jobs."""

    def __init__(self, toolset: Toolset, jobs: BackgroundJobs) -> None:
        self._toolset = toolset
        self._jobs = jobs

    async def tools(self) -> Sequence[Tool]:
        return await self._toolset.tools()

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        tool = next(tool for tool in await self._toolset.tools() if tool.name == call.name)
        async with closing(self._jobs.begin(self._toolset, tool, call, context)) as items:
            async for item in items:
                yield item
