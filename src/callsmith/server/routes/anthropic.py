"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's dialect. Any `anthropic-version` and any beta is welcome.

Its MCP connector reaches the MCP servers that are configured here, by name, and no others. What their tools did is shown in
the answer, with the names they have there; a history that tells of them is read with the names they have here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.values import Choice, Json, Tool
from callsmith.server.http.errors import Dialect
from callsmith.server.http.streams import CachedFrames, JsonResponse, collect_items, encode, unless_disconnected, write_frames
from callsmith.server.service import Service
from callsmith.server.tools.one_answer import AnswerEvent, as_model_reads
from callsmith.server.tools.planner import ToolPlanner
from callsmith.server.tools.tool_selection import (
    check_address,
    local_names,
    original_name,
    source_label,
    with_local_names,
)
from callsmith.wire.anthropic.common import write_error, write_failure, write_model, write_models
from callsmith.wire.anthropic.events import EventWriter, MessagesHeading, write_response
from callsmith.wire.anthropic.mcp import McpServer
from callsmith.wire.anthropic.messages import MessagesRequest, read_request
from callsmith.wire.extensions import MCP, ToolOptions, ToolSource, read_extensions
from callsmith.wire.kinds.toolsets import members_of
from callsmith.wire.sse import write_frame
from callsmith.wire.tools import bare_name

DIALECT = Dialect(
    write_error,
    write_failure,
    paths=("/v1/messages",),
    headers=("anthropic-version",),
    write_model=write_model,
    write_models=write_models,
)


def routes(service: Service) -> list[Route]:
    bodies, models = service.bodies, service.models

    async def parse_request(request: Request, planner: ToolPlanner, *, counting: bool = False) -> "_LocalRequest":
        body = await bodies.read(request)
        parsed = await bodies.read_with(read_request, body, counting=counting)
        options, session = read_extensions(body)
        parsed = replace(parsed, model=models.resolve(parsed.model), request=parsed.request.in_session(session))
        called = {call.name for message in parsed.request.messages for call in message.calls}
        if not parsed.servers and all(bare_name(name) == name for name in called):
            return _LocalRequest(parsed, options, {})
        tools = [tool for tool in await planner.list_offered() if tool.source.startswith(MCP)]
        addresses = {**{source_label(tool): "" for tool in tools}, **planner.configured}
        return _local_request(parsed, options, tools, addresses)

    async def messages(request: Request) -> Response:
        tools = service.tools.for_request()
        parsed = await parse_request(request, tools)
        model, sampling = parsed.body.model, parsed.body.request.sampling
        heading = MessagesHeading(
            f"msg_{uuid4().hex}",
            model,
            parsed.body.shows_thoughts,
            sampling.stop,
            parsed.origins,
            parsed.body.search_tool,
            members_of(parsed.body.request.tools),
        )
        answer = service.answers.with_tools(tools).events(models.get(model), parsed.body.request, parsed.options)
        events = as_model_reads(answer, service.settings.limits.result_characters)
        if parsed.body.stream:
            writer = EventWriter(heading)
            frames = CachedFrames[AnswerEvent](lambda event: _encode_events(writer.write(event)))
            encoded = write_frames(events, frames.encode_event, lambda: _encode_events(writer.close()))
            return service.stream(encoded, DIALECT.write_failure_frame)
        return JsonResponse(write_response(await unless_disconnected(request.receive, collect_items(events)), heading))

    async def count_tokens(request: Request) -> Response:
        tools = service.tools.for_request()
        parsed = await parse_request(request, tools, counting=True)
        answers = service.answers.with_tools(tools)
        counted = await answers.count(models.get(parsed.body.model), parsed.body.request, parsed.options)
        if counted is None:
            raise HTTPException(404, f"the model {parsed.body.model!r} cannot count tokens before it answers")
        return JsonResponse({"input_tokens": counted})

    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ]


@dataclass(frozen=True, slots=True)
class _LocalRequest:
    """A request with its tools' names as they are here, what it wants of the server's own, and the names these are shown by."""

    body: MessagesRequest
    options: ToolOptions
    origins: Mapping[str, tuple[str, str]]


def _local_request(
    body: MessagesRequest, options: ToolOptions, tools: Sequence[Tool], addresses: Mapping[str, str]
) -> _LocalRequest:
    """The request, where there are these tools of MCP servers, and the servers have these addresses."""
    for server in body.servers:
        _check(server, tools, addresses)
    chosen = {
        server.name: [tool for tool in tools if source_label(tool) == server.name and server.allows(original_name(tool))]
        for server in body.servers
    }
    wanted = tuple(ToolSource(MCP + name, tuple(tool.name for tool in some)) for name, some in chosen.items())
    origins = {tool.name: (source_label(tool), original_name(tool)) for some in chosen.values() for tool in some}
    names = local_names(tools)
    used_names = {tool.name for tool in body.request.tools} | origins.keys()
    local = {there: name for name, (_, there) in origins.items() if there not in used_names}
    request = replace(
        body.request,
        messages=tuple(with_local_names(message, names) for message in body.request.messages),
        choice=Choice(body.request.choice.mode, tuple(local.get(name, name) for name in body.request.choice.names)),
    )
    return _LocalRequest(replace(body, request=request), replace(options, sources=wanted), origins)


def _check(server: McpServer, tools: Iterable[Tool], addresses: Mapping[str, str]) -> None:
    if server.name not in addresses:
        known = ", ".join(sorted({source_label(tool) for tool in tools})) or "none"
        why = f"no MCP server {server.name!r} is configured here; there are: {known}"
        raise UsageError(f"{server.at}: {why}", field=server.at)
    check_address(server.name, server.url, addresses, server.at)
    if not any(source_label(tool) == server.name for tool in tools):
        raise Unavailable(f"the MCP server {server.name!r} has no tools at the moment")


def _encode_events(sent: Iterable[Json]) -> bytes:
    return b"".join(write_frame(encode(event), event["type"].encode()) for event in sent)
