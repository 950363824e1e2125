"""Background tools as tasks of our MCP server: what a client is told of a job.

A client of 2025-11-25 asks for a task with its call, one of 2026-07-28 says that it knows them and is given one. Either way the
call becomes a job, and the task's id is the job's. It needs the SDK, and is imported only where that is there.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server

from callsmith.core.closing import closing
from callsmith.core.events import ToolProgress
from callsmith.core.types.field_checks import replace
from callsmith.core.values import Call
from callsmith.tools.mcp.content import RELATED_TASK, TASKS_EXTENSION, TASKS_REVISION
from callsmith.tools.mcp.serving.content import declares_tasks, is_modern, write_result
from callsmith.tools.mcp.serving.jobs import BackgroundJobs, JobView

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    Asking = ServerRequestContext[Any, Any]

_POLL = 1_000  # milliseconds between two looks of a client at a task
_LONGEST_MESSAGE = 1_000  # characters of what is said of a task
_CALLER = ""  # there is one, or nobody knows who it is


class TaskParams(types.RequestParams):
    """The parameters of all requests about one task."""

    task_id: str


class TaskServer(Server[Any]):
    """A server that says that it has tasks. `lists`: it also says which there are."""

    lists = False

    def get_capabilities(self, *args: Any, **options: Any) -> types.ServerCapabilities:
        capabilities = super().get_capabilities(*args, **options)
        if is_modern(options.get("protocol_version") or TASKS_REVISION):
            return capabilities.model_copy(update={"extensions": {**(capabilities.extensions or {}), TASKS_EXTENSION: {}}})
        calls = types.ServerTasksRequestsCapability(tools=types.TasksToolsCapability(call=types.TasksCallCapability()))
        listed = types.TasksListCapability() if self.lists else None
        tasks = types.ServerTasksCapability(list=listed, cancel=types.TasksCancelCapability(), requests=calls)
        return capabilities.model_copy(update={"tasks": tasks})


@dataclass(frozen=True, slots=True)
class ServedTasks:
    """Answers requests about tasks. `stored_seconds` is how long a result is there at least; `lists`: whether clients may see
    which tasks there are, which is for those that cannot be mistaken for others."""

    jobs: BackgroundJobs
    stored_seconds: float
    lists: bool

    def register(self, server: TaskServer) -> None:
        server.lists = self.lists
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("tasks/result", TaskParams, self._result)
        server.add_request_handler("tasks/update", TaskParams, self._update)
        if self.lists:
            server.add_request_handler("tasks/list", types.PaginatedRequestParams, self._list)

    async def created(self, call: Call, *, modern: bool) -> dict[str, Any]:
        """The answer to a call that has become a job."""
        job = next(job for job in reversed(await self.jobs.list(_CALLER)) if job.call.id == call.id)
        return {"resultType": "task", **self._view(job, True)} if modern else {"task": self._view(job, False)}

    async def _get(self, asking: "Asking", params: TaskParams) -> dict[str, Any]:
        modern = _check_declared(asking)
        return self._view(await self._find(params), modern)

    async def _list(self, asking: "Asking", params: types.PaginatedRequestParams) -> dict[str, Any]:
        _check_revision(asking, modern=False)
        return {"tasks": [self._view(job, False) for job in await self.jobs.list(_CALLER)]}

    async def _cancel(self, asking: "Asking", params: TaskParams) -> dict[str, Any]:
        modern, job = _check_declared(asking), await self._find(params)
        if job.status != "running" and not modern:
            raise MCPError(code=types.INVALID_PARAMS, message=f"the task has ended already: it is {job.status}")
        after = await self.jobs.cancel(job)
        return {} if modern else self._view(after or job, False)

    async def _result(self, asking: "Asking", params: TaskParams) -> dict[str, Any]:
        """The result of a task, as soon as it is there."""
        _check_revision(asking, modern=False)
        job: JobView | None = await self._find(params)
        if job.status == "running":
            async with closing(self.jobs.follow(job)) as items:
                async for item in items:
                    job = None if isinstance(item, ToolProgress) else item
        if job is None or job.result is None:
            raise _unknown(params.task_id)
        return {**_write(job, modern=False), "_meta": {RELATED_TASK: {"taskId": job.id}}}

    async def _update(self, asking: "Asking", params: TaskParams) -> dict[str, Any]:
        """Take answers to questions of a task. There are none: a person is asked before a job begins."""
        _check_revision(asking, modern=True)
        _check_declared(asking)
        await self._find(params)
        return {}

    async def _find(self, params: TaskParams) -> JobView:
        job = await self.jobs.get(_CALLER, params.task_id)
        if job is None:
            raise _unknown(params.task_id)
        return job

    def _view(self, job: JobView, modern: bool) -> dict[str, Any]:
        """A task as its revision has it. What was interrupted has no result of its own; a tool that fails has one, and by the
        older revision its task has failed."""
        progress = self.jobs.progress(job.id)
        is_over = modern and job.status == "failed"
        statuses = {"running": "working", "done": "completed", "cancelled": "cancelled"}
        status = "completed" if is_over else statuses.get(job.status, "failed")
        said = progress.text if progress else job.result.text if job.result and not job.result.ok else ""
        view: dict[str, Any] = {
            "taskId": job.id,
            "status": status,
            "createdAt": _write_time(job.created),
            "lastUpdatedAt": _write_time(job.ended or job.created),
            "ttlMs" if modern else "ttl": int(self.stored_seconds * 1000),
            "pollIntervalMs" if modern else "pollInterval": _POLL,
            **({"statusMessage": said[:_LONGEST_MESSAGE]} if said else {}),
        }
        if modern and status == "completed":
            view["result"] = {"resultType": "complete", **_write(job, modern=True)}
        if modern and status == "failed":
            view["error"] = {"code": types.INTERNAL_ERROR, "message": said}
        return view


def _check_declared(asking: "Asking") -> bool:
    """Whether the client is one of 2026-07-28, which has to say with each request that it knows tasks."""
    if not (modern := is_modern(asking.protocol_version)):
        _check_revision(asking, modern=False)
    elif not declares_tasks(asking):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        message = f"only for clients that declare the extension {TASKS_EXTENSION}"
        raise MCPError(code=types.MISSING_REQUIRED_CLIENT_CAPABILITY, message=message, data=needed)
    return modern


def _check_revision(asking: "Asking", *, modern: bool) -> None:
    is_known = asking.protocol_version == TASKS_REVISION or is_modern(asking.protocol_version)
    if not is_known or is_modern(asking.protocol_version) != modern:
        raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=asking.method)


def _unknown(id: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=f"there is no task {id[:100]!r}; it may be too old")


def _write(job: JobView, *, modern: bool) -> dict[str, Any]:
    """The result of a job as that of a call. Jobs keep the text: what a schema promises of it is read from there."""
    assert job.result is not None
    result = job.result
    if result.ok and job.tool.output is not None:
        with suppress(ValueError, RecursionError):
            result = replace(result, content=json.loads(result.text))
    return write_result(result, job.tool, modern=modern).model_dump(by_alias=True, mode="json", exclude_none=True)


def _write_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
