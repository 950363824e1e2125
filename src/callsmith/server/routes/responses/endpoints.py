"""`/v1/responses`: OpenAI's stateful dialect. Answers are stored, unless a request says otherwise, and can be gone on from.

Not covered: answers in the background, replaying a stream, WebSocket.
"""

import time
from collections import defaultdict
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.ports import model_info
from callsmith.core.values import Json
from callsmith.engines.port import with_defaults
from callsmith.server.http.body_reader import BodyReader
from callsmith.server.http.pagination import paginate
from callsmith.server.http.request_context import caller
from callsmith.server.http.streams import EventStream, JsonResponse, unless_disconnected
from callsmith.server.routes.responses.answer import Answer
from callsmith.server.routes.responses.mcp import answer_events, decided_in, sources_of, with_outcomes
from callsmith.server.routes.responses.stored import EarlierItems, StoredResponses
from callsmith.server.service import Service
from callsmith.tools.wrap import Limited
from callsmith.wire.extensions import ToolOptions, read_extensions
from callsmith.wire.openai.mcp_events import McpWriter
from callsmith.wire.openai.responses import ResponsesRequest, read_references, read_request
from callsmith.wire.openai.responses_events import Heading

PATH = "/v1/responses"


def routes(service: Service) -> list[Route]:
    """The routes of this dialect."""
    dialect = _Dialect(service)
    return [
        Route(PATH, dialect.create, methods=["POST"]),
        Route(f"{PATH}/input_tokens", dialect.input_tokens, methods=["POST"]),
        Route(f"{PATH}/{{id}}", dialect.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{id}}", dialect.delete, methods=["DELETE"]),
        Route(f"{PATH}/{{id}}/cancel", dialect.cancel, methods=["POST"]),
        Route(f"{PATH}/{{id}}/input_items", dialect.input_items, methods=["GET"]),
    ]


class _Dialect:
    """The endpoints, and the answers that are being given."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = BodyReader(service.settings.largest_body)
        self._running: dict[str, dict[str, Answer]] = defaultdict(dict)  # by who asked, and by their ids

    async def create(self, request: Request) -> Response:
        asked, before, options = await self._read(request)
        answer = self._answer(asked, before, options)
        if asked.stream:
            return EventStream(answer.frames(), answer.failure, keep_alive=self._service.settings.keep_alive)
        return JsonResponse(await unless_disconnected(request.receive, answer.whole()))

    async def input_tokens(self, request: Request) -> Response:
        asked, _, options = await self._read(request)
        counted = await self._service.count(self._service.model(asked.model), asked.request, options)
        if counted is None:
            raise UsageError(f"the model {asked.model!r} cannot count tokens", field="model")
        return JsonResponse({"object": "response.input_tokens", "input_tokens": counted})

    async def retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream") == "true":
            raise UsageError("stream: a stored response is not streamed again", field="stream")
        id = request.path_params["id"]
        answer = self._running[caller()].get(id)
        return JsonResponse(answer.writer.response() if answer else await self._kept().response(id))

    async def delete(self, request: Request) -> Response:
        id = request.path_params["id"]
        await self._service.approvals().drop(*await self._kept().forget(id))
        return JsonResponse({"id": id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        id = request.path_params["id"]
        answer = self._running[caller()].get(id)
        if answer is None:
            status = (await self._kept().response(id))["status"]
            raise UsageError(f"a response that is {status} cannot be cancelled")
        await answer.stop()
        return JsonResponse(answer.writer.response())

    async def input_items(self, request: Request) -> Response:
        items = await self._kept().input_items(request.path_params["id"])
        return JsonResponse(paginate(items, request))

    def _kept(self) -> StoredResponses:
        return StoredResponses(self._service.store, caller())

    async def _read(self, request: Request) -> tuple[ResponsesRequest, EarlierItems, ToolOptions]:
        body = await self._bodies.read(request)
        before, approvals = await self._kept().before(read_references(body)), self._service.approvals()
        decided = decided_in(body)
        earlier = await with_outcomes(list(before.earlier.values()), approvals, decided)
        if isinstance(body.get("input"), list):
            body["input"] = await with_outcomes(body["input"], approvals, decided)
        asked = read_request(body, earlier, before.known)
        options, session = read_extensions(body)
        asked = replace(asked, request=replace(asked.request, session=session or before.conversation))
        return asked, before, replace(options, sources=sources_of(asked.servers), shows_tool_items=bool(asked.servers))

    def _answer(self, asked: ResponsesRequest, before: EarlierItems, options: ToolOptions) -> Answer:
        service = self._service.for_request()
        if service.tools is not None and asked.max_tool_calls is not None:
            service = replace(service, tools=Limited(service.tools, budgets={"*": asked.max_tool_calls}))
        sampling = with_defaults(asked.request.sampling, model_info(service.model(asked.model)).sampling)
        heading = Heading(
            f"resp_{uuid4().hex}", asked.model, int(time.time()), asked.repeated, asked.namespaces, sampling, time.time
        )
        writer, kept = McpWriter(heading), self._kept()
        if not asked.request.session:  # the first response of a conversation names it
            asked = replace(asked, request=replace(asked.request, session=heading.id))
        events = answer_events(service, asked, replace(options, response_id=heading.id), writer, self._down)

        async def keep(response: Json) -> None:
            if asked.store:
                await kept.keep(response, before, asked.input)

        return Answer(events, writer, keep, self._running[caller()])

    def _down(self) -> dict[str, str]:
        """The MCP servers that do not run, and why."""
        states = self._service.mcp.status() if self._service.mcp else ()
        return {one.name: one.error or f"it is {one.state}" for one in states if one.state != "ready"}
