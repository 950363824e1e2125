"""A toolset as an MCP server: other hosts list its tools and call them, in the protocol of 2026-07-28 and in those before it.

    server = ToolsetServer(Confirmed(Functions(send_mail)), run_call).server()
    await over_stdio(server)

A call that needs approval becomes a question to the client's user. Older clients are asked while the call waits; newer
ones get the question as the result of the call and send the call again, with the answer. Calls of background tools are tasks
for clients that know them.
"""

import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import inf, nextafter
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.closing import closing
from callsmith.core.errors import MissingExtra
from callsmith.core.events import ConfirmationNeeded, ToolEvent, ToolFinished, ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.mcp.content import TASKS_REVISION
from callsmith.tools.mcp.serving.content import declares_tasks, is_modern, write_result, write_tool
from callsmith.tools.mcp.serving.jobs import ACCEPTED, JobsToolset
from callsmith.tools.wrap import Renamed

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from callsmith.tools.mcp.serving.tasks import ServedTasks

    Asking: TypeAlias = ServerRequestContext[Any, Any]

# Runs one call of the toolset: checked, under deadlines, and answered whatever happens.
CallRunner: TypeAlias = Callable[[Toolset, Call, Context], AsyncIterator[ToolEvent]]
# What goes on for as long as a server runs, given the toolset that it serves.
Lifespan: TypeAlias = Callable[[Toolset], AbstractAsyncContextManager[None]]

PATH = "/mcp"  # where a server is found over HTTP
CANNOT_ASK = "it needs a person's approval, and this client cannot ask a person: it was not run"
NOT_APPROVED = "a person was asked and did not agree: it was not run"
TOO_LATE = "the approval came too late: it was not run"
_MOST_OPEN = 1_000  # questions that wait for an answer; older ones are forgotten
_LONGEST_NAME = 128
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")
_ANSWER = "answer"  # the one question of a call
_RUN_IT = {
    "type": "object",
    "properties": {"run": {"type": "boolean", "title": "Run it", "description": "Whether the call may run."}},
    "required": ["run"],
}


@dataclass(frozen=True, slots=True)
class _ClientCall:
    """A call of a client's: in which conversation, what a person has said about it, and what a person was asked last."""

    call: Call
    conversation: str
    words: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])  # that were asked about, by call id
    asked: ConfirmationNeeded | None = None

    def with_answer(self, word: Decision) -> "_ClientCall":
        if self.asked is None:
            return self
        late = self.asked.expires is not None and time.time() >= self.asked.expires
        decision = Denied(TOO_LATE) if late and isinstance(word, Approved) else word
        tools = {} if self.asked.tool is None else {self.call.id: self.asked.tool}
        return replace(self, words={**self.words, self.asked.id: decision, self.call.id: decision}, tools=tools, asked=None)


class ToolsetServer:
    """What a server says and does about the tools of a toolset."""

    def __init__(
        self,
        toolset: Toolset,
        run_call: CallRunner,
        *,
        name: str = "callsmith",
        version: str = "",
        tasks: "ServedTasks | None" = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self._toolset = Renamed(toolset, _fitting)
        self._run_call = run_call
        self._name, self._version = name, version
        self._tasks = tasks
        self._lifespan = lifespan
        self._here = uuid4().hex  # the conversation of a client that has no other: there is one on stdio
        self._open: OrderedDict[str, _ClientCall] = OrderedDict()

    def server(self) -> "Server[Any]":
        """The server, which knows both eras of the protocol."""
        try:
            from mcp.server.lowlevel import Server
        except ImportError as missing:
            raise MissingExtra("mcp", "an MCP server") from missing
        from callsmith.tools.mcp.serving.tasks import TaskServer

        made_by = Server[Any] if self._tasks is None else TaskServer
        # Whatever the handlers return is validated again: a task is an answer that their types do not know.
        handlers: Any = {"on_list_tools": self._list, "on_call_tool": self._call, "lifespan": self._live}
        server = made_by(self._name, version=self._version, **handlers)
        if self._tasks is not None and isinstance(server, TaskServer):
            self._tasks.register(server)
            server.middleware.append(self._call_as_task)
        return server

    @asynccontextmanager
    async def _live(self, _: Any) -> AsyncGenerator[dict[str, Any], None]:
        """What goes on for as long as the server runs."""
        async with self._lifespan(self._toolset) if self._lifespan else nullcontext():
            yield {}

    async def _list(self, asking: "Asking", params: Any) -> "types.ListToolsResult":
        import mcp_types as types

        modern = is_modern(asking.protocol_version)
        has_tasks = self._tasks is not None
        tools = await self._toolset.tools()
        return types.ListToolsResult(tools=[write_tool(tool, modern=modern, has_tasks=has_tasks) for tool in tools])

    async def _call(self, asking: "Asking", params: "types.CallToolRequestParams") -> Any:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS

        tool = await self._find(params.name)
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        modern = is_modern(asking.protocol_version)
        as_task = modern and self._tasks is not None and tool.background and declares_tasks(asking)
        call, outcome = await self._settle(params, asking, as_task=as_task)
        if not isinstance(outcome, Result):
            return outcome
        if as_task and self._tasks is not None and outcome.code == ACCEPTED:
            return await self._tasks.created(call, modern=True)
        return write_result(outcome, tool, modern=modern)

    async def _call_as_task(self, ctx: "Asking", call_next: Any) -> Any:
        """Answer calls of clients of 2025-11-25 that are to be tasks, and pass on all else."""
        import mcp_types as types
        from mcp import MCPError
        from pydantic import ValidationError

        asking = ctx  # the SDK passes it by that name
        wanted = asking.method == "tools/call" and asking.protocol_version == TASKS_REVISION and "task" in (asking.params or {})
        if not wanted or self._tasks is None or asking.session.client_params is None:
            return await call_next(asking)
        try:
            params = types.CallToolRequestParams.model_validate(asking.params, by_name=False)
        except ValidationError:
            return await call_next(asking)  # which says what is wrong
        tool = await self._find(params.name)
        if tool is None or params.task is None:
            return await call_next(asking)
        if not tool.background:
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"{tool.name} cannot be called as a task")
        call, outcome = await self._settle(params, asking, as_task=True)
        if isinstance(outcome, Result) and outcome.code == ACCEPTED:
            return await self._tasks.created(call, modern=False)
        text = outcome.text if isinstance(outcome, Result) else NOT_APPROVED
        raise MCPError(code=types.INVALID_REQUEST, message=text)

    async def _find(self, name: str) -> Tool | None:
        return next((tool for tool in await self._toolset.tools() if tool.name == name), None)

    async def _settle(
        self, params: "types.CallToolRequestParams", asking: "Asking", *, as_task: bool
    ) -> "tuple[Call, Result | types.InputRequiredResult]":
        """Run a call, and ask about it first where that is needed; or begin it, as a task."""
        work = self._taken_up(params, asking)
        while True:
            outcome = await self._run(work, asking, as_task=as_task)
            if isinstance(outcome, Result):
                return work.call, outcome
            if not _can_ask(asking):
                return work.call, make_failure(work.call, "denied", CANNOT_ASK)
            work = replace(work, asked=outcome)
            if is_modern(asking.protocol_version):
                return work.call, self._question(work, outcome)
            form = _form(outcome)
            answer = await asking.session.elicit_form(form.message, form.requested_schema, asking.request_id)
            work = work.with_answer(_word(answer))

    def _taken_up(self, params: "types.CallToolRequestParams", asking: "Asking") -> _ClientCall:
        """The call, and what a person has said about it. An answer counts once, and only for the call that was asked about."""
        fresh = Call(params.name, params.arguments or {}, f"call_{uuid4().hex[:24]}")
        waiting = self._open.pop(params.request_state, None) if params.request_state else None
        if waiting is None or (waiting.call.name, waiting.call.arguments) != (fresh.name, fresh.arguments):
            # Results are never shared between callers: over HTTP a session is one and, without sessions, a request.
            request = asking.request
            here = self._here if request is None else request.headers.get("mcp-session-id") or uuid4().hex
            return _ClientCall(fresh, here)
        return waiting.with_answer(_word((params.input_responses or {}).get(_ANSWER)))

    def _question(self, work: _ClientCall, question: ConfirmationNeeded) -> "types.InputRequiredResult":
        import mcp_types as types

        token = token_urlsafe(24)
        self._open[token] = work
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        form = types.ElicitRequest(params=_form(question))
        return types.InputRequiredResult(input_requests={_ANSWER: form}, request_state=token)

    async def _run(self, work: _ClientCall, asking: "Asking", *, as_task: bool) -> Result | ConfirmationNeeded:
        context, done = Context(conversation=work.conversation, decisions=work.words, asked=work.tools), 0.0
        toolset = JobsToolset(self._toolset, self._tasks.jobs) if as_task and self._tasks is not None else self._toolset
        async with closing(self._run_call(toolset, work.call, context)) as events:
            async for event in events:
                if isinstance(event, ToolFinished):
                    return event.result
                if isinstance(event, ConfirmationNeeded):
                    return event
                if isinstance(event, ToolProgress):
                    wanted = done + 1 if event.current is None else event.current
                    done = wanted if wanted > done else nextafter(done, inf)  # it must grow each time
                    await asking.session.report_progress(done, event.total, event.text or None)
        raise RuntimeError(f"{work.call.name} got no result")  # a toolset that breaks its word


async def over_stdio(server: "Server[Any]") -> None:
    """Serve one client on standard input and output. Whatever else is printed meanwhile goes to standard error."""
    import sys

    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reading, writing):
        try:
            await server.run(reading, writing, server.create_initialization_options())
        finally:
            sys.stdout.flush()  # while it still goes to standard error


def _can_ask(asking: "Asking") -> bool:
    """Whether the client has a user who can fill in a form; one that says nothing of forms but can elicit has."""
    capabilities = asking.session.client_capabilities
    able = capabilities.elicitation if capabilities else None
    forms = able is not None and (able.form is not None or able.url is None)
    return forms and (is_modern(asking.protocol_version) or asking.session.can_send_request)


def _form(question: ConfirmationNeeded) -> "types.ElicitRequestFormParams":
    import mcp_types as types

    reason = f" ({question.reason})" if question.reason else ""
    return types.ElicitRequestFormParams(
        message=f"Run {question.call.name} {question.call.text}?{reason}", requested_schema=_RUN_IT
    )


def _word(answer: Any) -> Decision:
    """A yes is a form that was filled in with one; everything else is a no."""
    import mcp_types as types

    if isinstance(answer, types.ElicitResult) and answer.action == "accept" and (answer.content or {}).get("run") is True:
        return Approved()
    return Denied(NOT_APPROVED)


def _fitting(name: str) -> str:
    """The name, as MCP has them: `[A-Za-z0-9._-]{1,128}`."""
    fit = _UNFIT.sub("_", name)
    return fit if len(fit) <= _LONGEST_NAME else f"{fit[: _LONGEST_NAME - 9]}_{sha256(name.encode()).hexdigest()[:8]}"
