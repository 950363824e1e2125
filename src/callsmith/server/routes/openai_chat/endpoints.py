"""`POST /v1/chat/completions` and the list of models, which is given in the caller's own dialect."""

import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.closing import closing
from callsmith.core.events import ModelEvent, Stopped
from callsmith.core.values import Json
from callsmith.server.http.dialects import dialect_of
from callsmith.server.http.frames import CachedFrames, encode, failure_frame
from callsmith.server.http.streams import JsonResponse, unless_disconnected
from callsmith.server.routes.openai_chat.choices import answer_choices
from callsmith.server.service import Service
from callsmith.server.tools.one_answer import AnswerEvent
from callsmith.wire.extensions import TOOL_EVENTS, AnswerExtensions, read_extensions
from callsmith.wire.model_list import QUERY, write_codex_models
from callsmith.wire.openai.chat import read_request
from callsmith.wire.openai.chat_events import ChunkWriter, Heading, write_response
from callsmith.wire.openai.common import write_failure
from callsmith.wire.sse import DONE, write_frame

# What other servers have and this one has not.
_NOT_HERE = "no embeddings are computed here: only text is generated"
_EMBEDDINGS = ("/v1/embeddings", "/embeddings", "/embedding")


def routes(service: Service) -> list[Route]:
    """The routes of this dialect."""
    bodies = service.bodies

    async def completions(request: Request) -> Response:
        body = await bodies.read(request)
        chat = await bodies.read_with(read_request, body)
        chat = replace(chat, model=service.models.resolve(chat.model))
        options, session = read_extensions(body)
        model_request = replace(chat.request, session=session)
        heading = Heading(
            f"chatcmpl-{uuid4().hex}", chat.model, int(time.time()), chat.include_usage, chat.legacy, chat.shows_thoughts
        )
        extensions = AnswerExtensions(options.shows_events)
        if chat.n > 1:
            return await answer_choices(service, replace(chat, request=model_request), heading, options, request)
        events = service.answers.events(service.models.get(chat.model), model_request, options)
        if chat.stream:
            return service.stream(_frames(events, heading, extensions), failure_frame)
        said = await unless_disconnected(request.receive, _all(events, extensions))
        return JsonResponse(extensions.end(write_response(said, heading), whole=True))

    async def models(request: Request) -> Response:
        listed = service.models.list_visible()
        body = dialect_of(request).write_models(listed)
        is_codex = QUERY in request.query_params
        return JsonResponse({**body, "models": write_codex_models(listed)} if is_codex else body)

    async def model(request: Request) -> Response:
        return JsonResponse(dialect_of(request).write_model(service.models.describe(request.path_params["name"])))

    async def elsewhere(request: Request) -> Response:
        return JsonResponse(write_failure(404, f"{request.url.path} is not served here: {_NOT_HERE}").body, status_code=404)

    return [
        # Without /v1 as well, as llama-server has them.
        *(Route(path, completions, methods=["POST"]) for path in ("/v1/chat/completions", "/chat/completions")),
        *(Route(path, models) for path in ("/v1/models", "/models")),
        Route("/v1/models/{name:path}", model),
        *(Route(path, elsewhere, methods=["GET", "POST"]) for path in _EMBEDDINGS),
    ]


async def _frames(events: AsyncIterator[AnswerEvent], heading: Heading, extensions: AnswerExtensions) -> AsyncIterator[bytes]:
    writer = ChunkWriter(heading)
    frames = CachedFrames[AnswerEvent](lambda event: _encode_chunks(_chunks(event, writer, extensions)))
    async with closing(events) as items:
        async for event in items:
            if frame := frames.encode_event(event):
                yield frame
    yield _encode_chunks(writer.close()) + write_frame(DONE.encode())


def _encode_chunks(chunks: Iterable[Json]) -> bytes:
    return b"".join(write_frame(encode(chunk)) for chunk in chunks)


def _chunks(event: AnswerEvent, writer: ChunkWriter, extensions: AnswerExtensions) -> list[dict[str, Json]]:
    if isinstance(event, TOOL_EVENTS):
        added = extensions.add(event)
        if added is None:
            return []
        *opening, last = writer.pause()
        return [*opening, {**last, "callsmith": added}]
    chunks = writer.write(event)
    if isinstance(event, Stopped):
        chunks[0] = extensions.end(chunks[0], whole=False)
    return chunks


async def _all(events: AsyncIterator[AnswerEvent], extensions: AnswerExtensions) -> list[ModelEvent]:
    said: list[ModelEvent] = []
    async with closing(events) as items:
        async for event in items:
            if isinstance(event, TOOL_EVENTS):
                extensions.add(event)
            else:
                said.append(event)
    return said
