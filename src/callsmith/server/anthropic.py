"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's dialect. Any `anthropic-version` and any beta is welcome."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol, runtime_checkable
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core import values
from callsmith.core.closing import closing
from callsmith.core.events import ModelEvent
from callsmith.server.service import Service
from callsmith.server.transport import EventStream, JsonResponse, read_json, unless_gone
from callsmith.wire.anthropic import write_error, write_failure
from callsmith.wire.anthropic_events import EventWriter, Heading, write_response
from callsmith.wire.anthropic_messages import read_request
from callsmith.wire.sse import write_frame


@runtime_checkable
class Counts(Protocol):
    """A model that can tell how long a request is before it answers."""

    def count(self, request: values.Request) -> int: ...


def routes(service: Service) -> list[Route]:
    """The routes of this dialect."""

    async def messages(request: Request) -> Response:
        asked = read_request(await read_json(request, service.settings.largest_body))
        events = service.answer(service.model(asked.model), asked.request)
        heading = Heading(f"msg_{uuid4().hex}", asked.model, asked.thoughts, asked.request.sampling.stop)
        if asked.stream:
            return EventStream(_frames(events, heading), _failure_frame, keep_alive=service.settings.keep_alive)
        return JsonResponse(write_response(await unless_gone(request.receive, _all(events)), heading))

    async def count_tokens(request: Request) -> Response:
        asked = read_request(await read_json(request, service.settings.largest_body), counting=True)
        model, wanted = service.model(asked.model), asked.request
        if not isinstance(model, Counts):
            failure = write_failure(404, f"the model {asked.model!r} cannot count tokens before it answers")
            return JsonResponse(failure.body, status_code=failure.status)
        if not wanted.tools and service.tools is not None:
            wanted = replace(wanted, tools=tuple(await service.tools.tools()))  # what the model will be told of
        return JsonResponse({"input_tokens": model.count(wanted)})

    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ]


async def _frames(events: AsyncIterator[ModelEvent], heading: Heading) -> AsyncIterator[bytes]:
    writer, encoder = EventWriter(heading), msgspec.json.Encoder()
    async with closing(events) as items:
        async for event in items:
            for sent in writer.write(event):
                yield write_frame(encoder.encode(sent), sent["type"].encode())
    for sent in writer.close():
        yield write_frame(encoder.encode(sent), sent["type"].encode())


async def _all(events: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    async with closing(events) as items:
        return [event async for event in items]


def _failure_frame(error: BaseException) -> bytes:
    return write_frame(msgspec.json.encode(write_error(error).body), b"error")
