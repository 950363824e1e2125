"""`/v1/tools`: the server's own tools, and calls of them that a person makes without a model; `/v1/prompts`: of MCP servers.

    GET  /v1/tools                            the tools that the caller's key allows, and the state of the MCP servers
    GET  /v1/tools?starter_tools=true         where the server was given none: its starter tools
    POST /v1/tools/read_file   {"arguments": {"path": "notes.txt"}, "approve": true}
    GET  /v1/prompts                          prompts that MCP servers have written, for a person to choose
    POST /v1/prompts/files/review   {"arguments": {"language": "Python"}}

A call by hand is handled like a model's: checked against the schema, judged by the policy, under the same limits, and in the
audit log. One that needs an approval is refused with status 409 unless `approve` is true: whoever sends that has approved it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.approval import Approved, ConfirmationRequired, Judgement
from callsmith.core.errors import CallsmithError
from callsmith.core.ports import Context, model_info
from callsmith.core.values import Call, Json, Tool
from callsmith.models.router import model_status
from callsmith.runtime.dispatch import Dispatcher
from callsmith.runtime.jobs.background import BackgroundTools
from callsmith.server.http.errors import write_response
from callsmith.server.http.keys import check_may_approve
from callsmith.server.http.request_context import caller, current_request, is_admin, request_id
from callsmith.server.http.streams import JsonResponse, unless_disconnected
from callsmith.server.service import Service
from callsmith.server.settings import EVERYTHING
from callsmith.server.tools.tool_selection import original_name, source_label
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.resources import Prompt
from callsmith.tools.wrap.wrapper import judgements
from callsmith.wire.extensions import ToolOptions
from callsmith.wire.openai.common import write_failure
from callsmith.wire.schemas.own import CallToolFields, PromptFields

PATH, PROMPTS = "/v1/tools", "/v1/prompts"
_PATIENCE = 2.0  # seconds that MCP servers which are just starting may take to say what they have


def routes(service: Service) -> list[Route]:
    async def list_tools(request: Request) -> Response:
        toolset = service.tools.open_tools(ToolOptions(starter=request.query_params.get("starter_tools") == "true"))
        tools: Sequence[Tool] = ()
        judged: Mapping[str, Judgement] = {}
        with suppress(TimeoutError):  # what is starting is among the servers: whoever wants the tools asks again
            async with asyncio.timeout(_PATIENCE):
                tools, judged = await toolset.tools(), await judgements(toolset)
        tokens = await _count_tokens(service, tools)
        asks = {name for name, judgement in judged.items() if judgement.verdict == "ask"}
        data = [_view(tool, tool.name in asks, tokens.get(tool.name)) for tool in tools]
        return JsonResponse({"object": "list", "data": data, "servers": _list_servers(service, tools)})

    async def call_tool(request: Request) -> Response:
        fields = CallToolFields.of(await service.bodies.read(request), "")
        arguments, approves = fields.arguments, fields.approve or False
        options = ToolOptions(starter=fields.starter_tools or False)
        if approves:
            check_may_approve(Approved())
        name = request.path_params["name"]
        call = Call(name, arguments.data if arguments else {}, f"call_{uuid4().hex[:24]}")
        try:
            return await unless_disconnected(request.receive, _run(service, call, approves, options))
        except ConfirmationRequired as error:
            why = f'{error.needed.reason or name}: send "approve": true with the call to approve it'
            return write_response(write_failure(409, why, param="approve", code="confirmation_required"))

    async def list_prompts(request: Request) -> Response:
        data, errors = list[Json](), list[Json]()
        for label in filter(_may_use_prompts, service.tools.configured):
            try:
                prompts, notices = await _mcp(service).prompts(label)
                data += map(_view_prompt, prompts)
                errors += ({"server": label, "message": notice} for notice in notices)
            except CallsmithError as error:
                errors.append({"server": label, "message": str(error) if is_admin() else "it cannot be asked just now"})
        return JsonResponse({"object": "list", "data": data, "errors": errors})

    async def get_prompt(request: Request) -> Response:
        fields = PromptFields.of(await service.bodies.read(request), "")
        label, prompt = request.path_params["server"], request.path_params["name"]
        if label not in service.tools.configured or not _may_use_prompts(label):
            return write_response(write_failure(404, f"there is no MCP server {label!r} for this caller", code="not_found"))
        arguments = {name: fields.arguments.required_text(name) for name in fields.arguments.data} if fields.arguments else {}
        async with service.answers.admission() as place:
            messages = await place.deadline.wait_for(_mcp(service).prompt(label, prompt, arguments))
        return JsonResponse({"messages": [{"role": message.role, "content": message.content} for message in messages]})

    return [
        Route(PATH, list_tools),
        Route(f"{PATH}/{{name}}", call_tool, methods=["POST"]),
        Route(PROMPTS, list_prompts),
        Route(f"{PROMPTS}/{{server}}/{{name}}", get_prompt, methods=["POST"]),
    ]


def _mcp(service: Service) -> McpHost:
    assert service.tools.mcp is not None  # there are servers
    return service.tools.mcp


def _may_use_prompts(server: str) -> bool:
    """Whether the caller's key allows a tool of this name: there is none, but keys have patterns of tools."""
    http = current_request()
    return http is None or any(fnmatchcase(f"{server}_get_prompt", pattern) for pattern in http.tools)


def _view_prompt(prompt: Prompt) -> Json:
    arguments: list[Json] = [
        {"name": item.name, "description": item.description, "required": item.required} for item in prompt.arguments
    ]
    return {"server": prompt.server, "name": prompt.name, "description": prompt.description, "arguments": arguments}


async def _run(service: Service, call: Call, approves: bool, options: ToolOptions) -> Response:
    subject = caller()
    toolset = BackgroundTools(service.tools.open_tools(options), service.tools.jobs, service.settings.llm.tools_background)
    decisions = {call.id: Approved(by=subject)} if approves else {}
    context = Context(request_id(), subject, decisions=decisions, authority=service.tools.authority_of(subject))
    dispatcher = Dispatcher(toolset, limits=service.settings.limits, context=context)
    async with service.answers.admission() as place:
        known = await place.deadline.wait_for(dispatcher.definitions())
        if all(tool.name != call.name for tool in known):
            return write_response(write_failure(404, f"there is no tool {call.name!r} for this caller", code="tool_not_found"))
        began = time.perf_counter()
        result = await place.deadline.wait_for(dispatcher.dispatch(call))
        code = {"code": result.code} if result.code else {}
        seconds = round(time.perf_counter() - began, 6)
        return JsonResponse({"result": {"ok": result.ok, "content": result.text, **code, "seconds": seconds}})


async def _count_tokens(service: Service, tools: Sequence[Tool]) -> Mapping[str, int]:
    """What each tool takes of the prompt of the default model; nothing where that is not loaded, or cannot count."""
    name = service.models.resolve("")
    model = service.models.all[name] if name in service.models.visible() else None
    if model is None or model_info(model).count is None or model_status(model).state != "loaded":
        return {}
    try:
        return await service.tools.costs.of(model, tools)
    except CallsmithError:  # a server that counts and is away, a template that takes no such tools: it is not known then
        return {}


def _list_servers(service: Service, tools: Sequence[Tool]) -> Sequence[Json]:
    """The MCP servers: all of them for a key that may use every tool, else those that have one for it. Why a server has
    failed is for an admin."""
    http, seen, shows_errors = current_request(), {source_label(tool) for tool in tools}, is_admin()
    sees_all = http is None or http.tools == EVERYTHING or shows_errors
    servers = service.tools.mcp.status() if service.tools.mcp else ()
    return [
        {"label": server.name, "state": server.state, "error": (shows_errors and server.error) or None, "tools": server.tools}
        for server in servers
        if sees_all or server.name in seen
    ]


def _view(tool: Tool, needs_approval: bool, tokens: int | None) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "source": tool.source,
        "original": original_name(tool),
        "side_effects": tool.side_effects,
        "needs_approval": needs_approval,
        "tokens": tokens,
    }
