"""`/v1/responses`: OpenAI's stateful endpoints. Answers are stored, unless a request says otherwise, and can be gone on from."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from callsmith.core.errors import ModelError, UsageError
from callsmith.core.events import Stopped, Text
from callsmith.core.values import Json, Sampling, Usage
from callsmith.server.http.errors import Dialect
from callsmith.server.http.pagination import paginate
from callsmith.server.http.request_context import caller
from callsmith.server.http.streams import EventStream, JsonResponse, collect_items, unless_disconnected
from callsmith.server.routes.responses.background import BackgroundResponse, BackgroundResponses
from callsmith.server.routes.responses.connection import ResponsesConnection
from callsmith.server.routes.responses.conversations import conversation_routes
from callsmith.server.routes.responses.dialect import ReadRequest, ResponsesDialect
from callsmith.server.service import Service
from callsmith.server.tools.planner import ToolPlanner
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import write_error, write_failure, write_response_usage
from callsmith.wire.openai.items import COMPACTION, SUMMARISE, item_id, item_kind, stored_item, write_compaction
from callsmith.wire.openai.responses import CompactFields
from callsmith.wire.openai.responses_events import OPEN_STATUSES

PATH = "/v1/responses"
DIALECT = Dialect(partial(write_error, prompt="input"), write_failure, paths=(PATH,))

_MOST_TOKENS = 1024  # of a summary


def routes(service: Service) -> list[BaseRoute]:
    endpoints = _ResponsesEndpoints(service)
    return [
        Route(PATH, endpoints.create, methods=["POST"]),
        WebSocketRoute(PATH, endpoints.connect),
        Route(f"{PATH}/compact", endpoints.compact, methods=["POST"]),
        Route(f"{PATH}/input_tokens", endpoints.input_tokens, methods=["POST"]),
        Route(f"{PATH}/{{id}}", endpoints.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{id}}", endpoints.delete, methods=["DELETE"]),
        Route(f"{PATH}/{{id}}/cancel", endpoints.cancel, methods=["POST"]),
        Route(f"{PATH}/{{id}}/input_items", endpoints.input_items, methods=["GET"]),
        *conversation_routes(endpoints.dialect),
    ]


class _ResponsesEndpoints:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.dialect = ResponsesDialect(service)
        self._background = BackgroundResponses(self.dialect)

    async def create(self, request: Request) -> Response:
        parsed = await self._read(request)
        if parsed.request.background:
            background = await self._background.start(parsed)
            return self._stream(background) if parsed.request.stream else JsonResponse(background.response())
        answer = self.dialect.answer(parsed, self.dialect.open_stored())
        if parsed.request.stream:
            return self._service.stream(answer.frames(), answer.failure)
        return JsonResponse(await unless_disconnected(request.receive, answer.whole()))

    async def input_tokens(self, request: Request) -> Response:
        parsed = await self._read(request)
        model = parsed.request.model
        counted = await self._service.answers.count(self._service.models.get(model), parsed.request.request, parsed.options)
        if counted is None:
            raise UsageError(f"the model {model!r} cannot count tokens", field="model")
        return JsonResponse({"object": "response.input_tokens", "input_tokens": counted})

    async def compact(self, request: Request) -> Response:
        work = compact(self.dialect, await self._service.bodies.read(request))
        return JsonResponse(await unless_disconnected(request.receive, work))

    async def retrieve(self, request: Request) -> Response:
        id, query = request.path_params["id"], request.query_params
        background = self._background.get(id)
        if query.get("stream") == "true":
            if background is None:
                await self.dialect.open_stored().response(id)
                raise UsageError("stream: only responses in the background are streamed again, for some time", field="stream")
            after = query.get("starting_after", "-1")
            if not after.removeprefix("-").isdecimal() or len(after) > 18:
                raise UsageError(f"starting_after: expected a sequence number, got {after!r}", field="starting_after")
            return self._stream(background, max(0, int(after) + 1))
        if background is not None and background.answer.writer.ended:
            await background.over.wait()  # whoever learns of the end finds it stored
        if background is not None and not background.over.is_set():
            return JsonResponse(background.response())
        answer = self.dialect.running[caller()].get(id)
        return JsonResponse(answer.writer.response() if answer else await self._background.response(id))

    async def delete(self, request: Request) -> Response:
        id = request.path_params["id"]
        approvals = self._service.answers.approvals()
        await self._background.stop(id)
        if answer := self.dialect.running[caller()].get(id):
            await answer.stop()
        await approvals.drop(*await self.dialect.open_stored().forget(id))
        self._background.forget(id)
        await approvals.drop_open(id)
        return JsonResponse({"id": id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        id = request.path_params["id"]
        await self._background.stop(id)
        answer = self.dialect.running[caller()].get(id)
        if answer is not None:
            await answer.stop()
            await self._service.answers.approvals().drop_open(id)
            return JsonResponse(answer.writer.response())
        response = await self._background.response(id)
        if response["status"] in OPEN_STATUSES:
            raise UsageError("another process is giving this response: it can be cancelled only there")
        if response["status"] != "cancelled":  # once more does no harm
            raise UsageError(f"a response that is {response['status']} cannot be cancelled")
        await self._service.answers.approvals().drop_open(id)
        return JsonResponse(response)

    async def input_items(self, request: Request) -> Response:
        items = await self.dialect.open_stored().input_items(request.path_params["id"])
        return JsonResponse(paginate(items, request))

    def _stream(self, background: BackgroundResponse, start: int = 0) -> EventStream:
        return self._service.stream(background.read(start), background.answer.failure)

    async def connect(self, socket: WebSocket) -> None:
        await ResponsesConnection(socket, self.dialect).serve()

    async def _read(self, request: Request) -> ReadRequest:
        return await self.dialect.read(await self._service.bodies.read(request), self.dialect.open_stored())


async def compact(dialect: ResponsesDialect, body: Json) -> Json:
    """What the users of a conversation said, and a summary of all of it."""
    fields = CompactFields.of(body, "")
    name, own = fields.model, [item.data for item in fields.input or ()]
    references = {key: fields.text(key) for key in ("previous_response_id", "instructions", "prompt_cache_key")}
    asking = {"model": name, "store": False, **references, "input": [*own, {"role": "user", "content": SUMMARISE}]}
    read_request = await dialect.read(asking, dialect.open_stored())
    items = [*read_request.before.earlier.values(), *own]
    if not items:
        raise fields.error("input", "there is nothing to compact: give items or a previous_response_id")
    request = replace(read_request.request.request, sampling=Sampling(max_tokens=_MOST_TOKENS), thinking=False)
    service = dialect.service
    answers = service.answers.with_tools(ToolPlanner(service.settings))
    events = await collect_items(answers.answer(service.models.get(name), request))
    summary = "".join(event.text for event in events if isinstance(event, Text)).strip()
    if not summary:
        raise ModelError("the model wrote no summary")
    usage = next((event.usage for event in events if isinstance(event, Stopped)), Usage())
    key = uuid4().hex
    return {
        "id": f"resp_{key}",
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*_user_messages(items, key), write_compaction(item_id(COMPACTION, key, "c"), summary)],
        "usage": write_response_usage(usage),
    }


def _user_messages(items: Sequence[Json], key: str) -> list[Json]:
    messages = [
        item for item in items if item_kind(Fields(cast("Mapping[str, Json]", item))) == "message" and item.get("role") == "user"
    ]
    return [stored_item(item, item_id("message", key, number)) for number, item in enumerate(messages)]
