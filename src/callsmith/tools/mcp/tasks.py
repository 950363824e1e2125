"""Tasks of MCP servers: calls that go on at the server, which is asked about them until they have ended.

Two revisions have them. In 2025-11-25 the client asks for a task with the call and fetches the result by tasks/result. Since
2026-07-28 they are an extension: the server answers any call with a task, and tasks/get has the result, or questions to a person.
It needs the SDK, and is imported only where that is there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types.methods import parse_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field, TypeAdapter

from callsmith.core.values import Call
from callsmith.tools.mcp.content import TASKS_EXTENSION

_LONGEST_ID = 1_000  # characters of a task's id
_MOST_QUESTIONS = 100  # that a task may ask in all
_SHORTEST_PAUSE, _FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 0.5, 5.0  # seconds between two looks, where the server names none
_QUESTION: TypeAdapter[types.InputRequest] = TypeAdapter(types.InputRequest)

Tell = Callable[[str], None]  # is given what a server says of a task that is still at work


class TaskBegun(Exception):
    """A call was answered with a task, whose id this is."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id


class ClaimedTask(types.Result):
    """A task as the answer to a call, as the extension has it."""

    result_type: Literal["task"] = "task"
    task_id: str = Field(max_length=_LONGEST_ID)


class TasksExtension(ClientExtension):
    """Tells servers that a call may be answered with a task."""

    identifier = TASKS_EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=ClaimedTask, resolve=_begun),)


async def _begun(claimed: ClaimedTask, context: ClaimContext) -> NoReturn:
    raise TaskBegun(claimed.task_id)


class _Task(types.Result):
    task_id: str = Field(max_length=_LONGEST_ID)


class _Answer(types.CallToolResult):
    """The answer to a call that was to be a task."""

    task: _Task | None = None


class _TaskState(types.Result):
    """What a server says of a task. Of the two names of a field each revision has one."""

    task_id: str
    status: types.TaskStatus
    status_message: str | None = None
    poll_interval: int | None = None
    poll_interval_ms: int | None = None
    asked: dict[str, Any] | None = Field(default=None, alias="inputRequests")
    result: dict[str, Any] | None = None
    error: types.ErrorData | None = None


class _GetTask(types.GetTaskRequest):
    name_param = "taskId"  # a header repeats it


class _CancelTask(types.CancelTaskRequest):
    name_param = "taskId"


class _UpdateParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any]


class _UpdateTask(types.Request[_UpdateParams, Literal["tasks/update"]]):
    name_param = "taskId"
    method: Literal["tasks/update"] = "tasks/update"


@dataclass(frozen=True, slots=True)
class TaskClient:
    """Begins, follows and cancels the tasks of a server, in the revision that was agreed on. `longest_pause` is how many seconds
    may pass between two looks at a task, whatever its server says."""

    client: Client
    server: str
    longest_pause: float

    @property
    def is_modern(self) -> bool:
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def takes_tasks(self) -> bool | None:
        """Whether a call can be asked to be a task. None: that is for the server to decide, as since 2026-07-28."""
        if self.is_modern:
            return None
        able = self.client.server_capabilities.tasks
        requests = able.requests if able else None
        return requests is not None and requests.tools is not None and requests.tools.call is not None

    async def begin(self, call: Call, seconds: float, on_progress: Any) -> types.CallToolResult:
        """Make a call as a task: TaskBegun has its id. A server that answers it at once all the same gives a result."""
        task = types.TaskMetadata(ttl=int(seconds * 1000))
        params = types.CallToolRequestParams(name=call.name, arguments=dict(call.arguments), task=task)
        request = types.CallToolRequest(params=params)
        answer = await self.client.session.send_request(request, _Answer, progress_callback=on_progress)
        if answer.task is not None:
            raise TaskBegun(answer.task.task_id)
        return answer

    async def follow(self, name: str, id: str, tell: Tell) -> types.CallToolResult:
        """Wait for the end of a task, the call of which was of that tool; the result, or an MCPError."""
        pause, answered = _FIRST_PAUSE, set[str]()
        while True:
            state = await self._state(id)
            if state.status in ("completed", "failed", "cancelled"):
                result = await self._outcome(state)
                break
            tell(state.status_message or "")
            if state.status == "input_required" and not self.is_modern:
                result = await self._fetch(id)  # which waits for the end; what the server wants to know comes meanwhile
                break
            if state.status == "input_required":
                await self._answer(state, answered)
            pause = self._pause(state, pause)
            await asyncio.sleep(pause)
        if not result.is_error:
            await self.client.session.validate_tool_result(name, result)
        return result

    async def cancel(self, id: str) -> None:
        """Ask the server to end a task."""
        able = self.client.server_capabilities.tasks
        if self.is_modern or (able is not None and able.cancel is not None):
            request = _CancelTask(params=types.CancelTaskRequestParams(task_id=id))
            await self.client.session.send_request(request, types.EmptyResult)

    async def _state(self, id: str) -> _TaskState:
        request = _GetTask(params=types.GetTaskRequestParams(task_id=id))
        try:
            state = await self.client.session.send_request(request, _TaskState)
        except MCPError as error:
            if error.code == types.INVALID_PARAMS:
                why = f"the MCP server {self.server} does not know the task any more: {error.message}"
                raise MCPError(code=types.INTERNAL_ERROR, message=why) from error
            raise
        if state.task_id != id:
            raise ValueError(f"the MCP server {self.server} was asked about one task and answered about another")
        return state

    async def _outcome(self, state: _TaskState) -> types.CallToolResult:
        """What has come of a task that has ended."""
        if state.status == "cancelled":
            text = f"the MCP server {self.server} has cancelled it: {state.status_message or 'it does not say why'}"
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        if not self.is_modern:
            return await self._fetch(state.task_id)
        if state.error is not None:
            raise MCPError.from_error_data(state.error)
        if state.result is None:
            raise ValueError(f"the MCP server {self.server} says that a task has ended, but not how")
        whole = {"resultType": "complete", **state.result}  # which may be left out
        parsed = parse_server_result("tools/call", self.client.protocol_version, whole)
        if not isinstance(parsed, types.CallToolResult):
            raise ValueError(f"the MCP server {self.server} ended a task with something that is no result")
        return parsed

    async def _fetch(self, id: str) -> types.CallToolResult:
        request = types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(task_id=id))
        return await self.client.session.send_request(request, types.CallToolResult)

    async def _answer(self, state: _TaskState, answered: set[str]) -> None:
        """Answer what the server wants to know, each question once."""
        asked: Mapping[str, Any] = {key: asked for key, asked in (state.asked or {}).items() if key not in answered}
        if len(answered) + len(asked) > _MOST_QUESTIONS:
            why = f"a task of the MCP server {self.server} asks more than {_MOST_QUESTIONS} questions"
            raise MCPError(code=types.INTERNAL_ERROR, message=why)
        for key, question in asked.items():
            reply = await self._reply(key, _QUESTION.validate_python(question, by_name=False))
            answered.add(key)
            params = _UpdateParams(task_id=state.task_id, input_responses={key: reply})
            await self.client.session.send_request(_UpdateTask(params=params), types.EmptyResult)

    async def _reply(self, key: str, question: types.InputRequest) -> dict[str, Any]:
        session = self.client.session
        context = ClientRequestContext(session=session, request_id=key, meta=question.params.meta if question.params else None)
        reply = await session.dispatch_input_request(context, question)
        if isinstance(reply, types.ErrorData):
            raise MCPError.from_error_data(reply)
        return reply.model_dump(by_alias=True, mode="json", exclude_none=True)

    def _pause(self, state: _TaskState, last: float) -> float:
        """How long to wait before the next look: as the server says, within bounds, or longer each time."""
        wanted = state.poll_interval if state.poll_interval_ms is None else state.poll_interval_ms
        seconds = min(last * 1.5, _LONGEST_PAUSE) if wanted is None else wanted / 1000
        return min(max(seconds, _SHORTEST_PAUSE), self.longest_pause)
