"""MCP servers in the Responses dialect: the operator's own, by their labels, and approvals as items of the conversation.

An approval can be answered in a request or over `/v1/approvals`. Where it was answered there, a later request finds in its
conversation what came of it.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import dropwhile
from typing import cast

from callsmith.core.approval import Denied
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.ports import Model
from callsmith.core.values import Choice, Json, Message, Request, Result, Tool
from callsmith.runtime.conversation.journal import add_results
from callsmith.runtime.loop import list_unanswered
from callsmith.server.admission import Deadline
from callsmith.server.approvals.approvals import AlreadyAnswered, Approval, Approvals
from callsmith.server.http.keys import check_may_approve
from callsmith.server.pipeline import AnswerPipeline
from callsmith.server.settings import EVERYTHING
from callsmith.server.tools.one_answer import as_model_reads
from callsmith.server.tools.planner import ToolPlanner
from callsmith.server.tools.tool_selection import (
    check_address,
    local_names,
    original_name,
    source_label,
    with_local_names,
)
from callsmith.wire.extensions import ToolOptions, ToolSource
from callsmith.wire.openai.items import write_items
from callsmith.wire.openai.mcp import WAITING, McpServer, write_mcp_call
from callsmith.wire.openai.mcp_events import ListedTools, McpEvent, McpWriter
from callsmith.wire.openai.responses import ResponsesRequest

_UNNAMED = "tools"  # the label of tools that say not where they come from


def sources_of(servers: Iterable[McpServer]) -> tuple[ToolSource, ...]:
    """The tools a request wants by naming these servers."""
    return tuple(
        ToolSource(
            server.label,
            EVERYTHING if server.allowed.names is None else server.allowed.names,
            server.policy,
            bool(server.allowed.read_only),
        )
        for server in servers
    )


def decided_in(body: Json) -> frozenset[str]:
    """The approvals a request itself answers."""
    sent: Json = body.get("input")
    items = cast("list[Json]", sent) if isinstance(sent, list) else []
    return frozenset(_texts(items, "mcp_approval_response", "approval_request_id"))


async def with_outcomes(items: Sequence[Json], approvals: Approvals, decided: frozenset[str]) -> list[Json]:
    """The items with what became of approvals that were answered elsewhere."""
    called = decided.union(_texts(items, "mcp_call", "approval_request_id"))
    question_ids = _texts(items, "mcp_approval_request", "id")
    known = await _with_successors(approvals, await approvals.get(*question_ids) if question_ids else {})
    replaced = {id for id, approval in known.items() if id != approval.id and approval.id in question_ids}
    known = {id: approval for id, approval in known.items() if id not in called}
    last = {approval.run: approval.id for approval in known.values()}
    items_so_far: list[Json] = []
    for item in items:
        about = (*_texts([item], "mcp_approval_request", "id"), *_texts([item], "mcp_approval_response", "approval_request_id"))
        if replaced.intersection(about):  # the question that replaced it follows
            continue
        items_so_far.append(item)
        approval = next((known[id] for id in _texts([item], "mcp_approval_request", "id") if id in known), None)
        if approval is not None and approval.result is not None:
            items_so_far.append(_outcome(item, approval, approval.result))
            if last[approval.run] == approval.id:
                items_so_far += await _items_since(approvals, approval.run)
    return items_so_far


async def _with_successors(approvals: Approvals, known: Mapping[str, Approval]) -> dict[str, Approval]:
    """The approvals by these ids; where a tool had changed and the person was asked anew, the last one that was asked."""
    latest = dict(known)
    while following := {id: approval.replaced_by for id, approval in latest.items() if approval.replaced_by}:
        newer = await approvals.get(*following.values())
        latest |= {id: newer[by] if by in newer else replace(latest[id], replaced_by="") for id, by in following.items()}
    return latest


def _texts(items: Sequence[Json], kind: str, key: str) -> list[str]:
    """What items of this kind have there. Items are read here before anybody has looked whether they are right."""
    objects = (cast("Mapping[str, Json]", item) for item in items if isinstance(item, Mapping))
    return [item[key] for item in objects if item.get("type") == kind and isinstance(item.get(key), str)]


def _outcome(item: Mapping[str, Json], approval: Approval, result: Result) -> Json:
    if isinstance(approval.decision, Denied):
        decision = {"approve": False, "reason": approval.decision.message or None}
        return {"type": "mcp_approval_response", "approval_request_id": approval.id, **decision}
    about = {key: item.get(key) for key in ("server_label", "name", "arguments")}
    return {"id": f"mcp_{approval.id}", "approval_request_id": approval.id, **about, **write_mcp_call(result)}


async def _items_since(approvals: Approvals, run: str) -> list[Json]:
    """What the model said and did after the approvals of a run were answered, as items."""
    paused = await approvals.get_run(run)
    since = tuple(dropwhile(lambda message: message.role == "tool", paused.since)) if paused else ()
    waiting = (Message("tool", WAITING, call_id=call.id, name=call.name) for call in list_unanswered(since))
    return write_items(add_results(since, *waiting))


async def answer_events(
    answers: AnswerPipeline, model: Model, response_request: ResponsesRequest, options: ToolOptions, writer: McpWriter
) -> AsyncIterator[McpEvent]:
    """An answer: the tools of the servers it names, or why there are none, if that is news; then all that happens."""
    tools = await _tools(answers.tools, response_request.servers, options)
    approvals = answers.approvals()
    async with AsyncExitStack() as leases:
        deadline = Deadline(answers.settings.request_seconds)  # whoever has the lease may take long
        approvals_by_id = await deadline.wait_for(_enter_decisions(approvals, response_request, leases))
        request = _with_local_names(response_request.request, tools, approvals_by_id)
        if options.shows_tool_items:
            writer.set_tools({tool.name: (source_label(tool) or _UNNAMED, original_name(tool)) for tool in tools})
            writer.set_approvals({id: approval.call for id, approval in approvals_by_id.items()})
        for server in response_request.servers:
            if server.label not in response_request.listed:
                own = tuple(tool for tool in tools if source_label(tool) == server.label)
                yield ListedTools(server.label, own, "" if own else answers.tools.why_down(server.label))
        answer = answers.events(model, request, replace(options, approvals=tuple(approvals_by_id)))
        async with closing(as_model_reads(answer, answers.settings.limits.result_characters)) as events:
            async for event in events:
                yield event


async def _tools(planner: ToolPlanner, servers: Sequence[McpServer], options: ToolOptions) -> tuple[Tool, ...]:
    offered = await planner.list_offered(replace(options, sources=()))
    known = {source_label(tool) for tool in offered} | planner.configured.keys()
    for server in servers:
        if server.label not in known:
            there = ", ".join(sorted(known)) or "none"
            why = "; only those can be used, and server_url is not followed" if server.url else ""
            raise UsageError(f"tools: there is no MCP server {server.label!r} here; there are: {there}{why}", field="tools")
        check_address(server.label, server.url, planner.configured, "tools")
    return await planner.list_offered(options)


async def _enter_decisions(approvals: Approvals, request: ResponsesRequest, leases: AsyncExitStack) -> dict[str, Approval]:
    """Enter the decisions of this request and take the leases on their runs; the approvals it is about."""
    approvals_by_id = await approvals.get(*request.decisions)
    for id, decision in request.decisions.items():
        if decision is None:
            continue
        if id not in approvals_by_id:
            raise UsageError(f"input: there is no approval {id!r} to be answered", field="input")
        check_may_approve(decision)
        if approvals_by_id[id].status == "pending":
            with suppress(AlreadyAnswered):  # by somebody else, at the same time: theirs counts
                await approvals.decide(approvals_by_id[id], decision)
    if decided := [id for id, decision in request.decisions.items() if decision is not None]:
        await approvals.take_leases(decided, leases)
    return await approvals.get(*request.decisions)


def _with_local_names(request: Request, tools: Iterable[Tool], approvals_by_id: Mapping[str, Approval]) -> Request:
    """The request with tools called as they are here, and with the calls that wait as they were made."""
    names = local_names(tools)
    waiting = {id: approval.call for id, approval in approvals_by_id.items()}

    messages: list[Message] = []
    for message in request.messages:
        local = with_local_names(message, names)
        messages.append(replace(local, calls=tuple(waiting.get(call.id, call) for call in local.calls)))
    return replace(request, messages=tuple(messages), choice=_local_choice(request.choice, names))


def _local_choice(choice: Choice, names: Mapping[str, str]) -> Choice:
    chosen: list[str] = []
    for name in choice.names:
        whole = [local for known, local in names.items() if name.endswith("/*") and known.startswith(name[:-1])]
        chosen += whole or [names.get(name, name)]
    return replace(choice, names=tuple(chosen))
