"""`POST /v1/chat/completions` and the list of models, which is given in the caller's own dialect."""

import time
from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.events import ModelEvent
from callsmith.runtime.closing import closing
from callsmith.server.dialects import dialect_of
from callsmith.server.service import Service
from callsmith.server.transport import EventStream, JsonResponse, read_json, unless_gone
from callsmith.wire.openai import write_error
from callsmith.wire.openai_chat import read_request
from callsmith.wire.openai_chat_events import ChunkWriter, Heading, write_response
from callsmith.wire.sse import DONE, write_frame


def routes(service: Service) -> list[Route]:
    """The routes of this dialect."""
    began = int(time.time())

    async def completions(request: Request) -> Response:
        chat = read_request(await read_json(request, service.settings.largest_body))
        events = service.answer(service.model(chat.model), chat.request)
        heading = Heading(f"chatcmpl-{uuid4().hex}", chat.model, int(time.time()), chat.include_usage, chat.legacy)
        if chat.stream:
            return EventStream(_frames(events, heading), _failure_frame, keep_alive=service.settings.keep_alive)
        return JsonResponse(write_response(await unless_gone(request.receive, _all(events)), heading))

    async def models(request: Request) -> Response:
        return JsonResponse(dialect_of(request).models(service.models, began))

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        service.model(name)
        return JsonResponse(dialect_of(request).model(name, began))

    return [
        Route("/v1/chat/completions", completions, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
    ]


async def _frames(events: AsyncIterator[ModelEvent], heading: Heading) -> AsyncIterator[bytes]:
    writer, encoder = ChunkWriter(heading), msgspec.json.Encoder()
    async with closing(events) as items:
        async for event in items:
            for chunk in writer.write(event):
                yield write_frame(encoder.encode(chunk))
    for chunk in writer.close():
        yield write_frame(encoder.encode(chunk))
    yield write_frame(DONE.encode())


async def _all(events: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    async with closing(events) as items:
        return [event async for event in items]


def _failure_frame(error: BaseException) -> bytes:
    return write_frame(msgspec.json.encode(write_error(error).body))
