"""`POST /v1/chat/completions` and the list of models, which is given in the caller's own dialect."""

import time
from collections.abc import Iterable
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Stopped
from callsmith.core.values import Json
from callsmith.server.http.errors import OPENAI, dialect_of
from callsmith.server.http.streams import (
    CachedFrames,
    JsonResponse,
    collect_items,
    encode_frames,
    merge_streams,
    unless_disconnected,
    write_frames,
)
from callsmith.server.service import Service
from callsmith.server.tools.one_answer import AnswerEvent
from callsmith.wire.extensions import TOOL_EVENTS, AnswerExtensions, ToolOptions, read_extensions
from callsmith.wire.kinds import kinds_of
from callsmith.wire.model_list import QUERY, write_codex_models
from callsmith.wire.openai.chat import ChatRequest, read_request
from callsmith.wire.openai.chat_events import ChatHeading, ChoicesWriter, ChunkWriter, write_choices, write_response
from callsmith.wire.sse import DONE, write_frame


def routes(service: Service) -> list[Route]:
    bodies = service.bodies

    async def completions(request: Request) -> Response:
        body = await bodies.read(request)
        chat = await bodies.read_with(read_request, body)
        chat = replace(chat, model=service.models.resolve(chat.model))
        options, session = read_extensions(body)
        model_request = chat.request.in_session(session)
        heading = ChatHeading(
            f"chatcmpl-{uuid4().hex}",
            chat.model,
            int(time.time()),
            chat.include_usage,
            chat.legacy,
            chat.shows_thoughts,
            kinds_of(model_request.tools),
        )
        extensions = AnswerExtensions(options.shows_events)
        if chat.n > 1:
            return await _answer_choices(service, replace(chat, request=model_request), heading, options, request)
        events = service.answers.events(service.models.get(chat.model), model_request, options)
        if chat.stream:
            writer = ChunkWriter(heading)
            cached = CachedFrames[AnswerEvent](lambda event: encode_frames(_chunks(event, writer, extensions)))
            frames = write_frames(events, cached.encode_event, lambda: _encode_end(writer.close()))
            return service.stream(frames, OPENAI.write_failure_frame)
        model_events: list[ModelEvent] = []
        for event in await unless_disconnected(request.receive, collect_items(events)):
            if isinstance(event, TOOL_EVENTS):
                extensions.add(event)
            else:
                model_events.append(event)
        return JsonResponse(extensions.end(write_response(model_events, heading), whole=True))

    async def models(request: Request) -> Response:
        listed = service.models.list_visible()
        body = dialect_of(request).write_models(listed)
        is_codex = QUERY in request.query_params
        return JsonResponse({**body, "models": write_codex_models(listed)} if is_codex else body)

    async def model(request: Request) -> Response:
        return JsonResponse(dialect_of(request).write_model(service.models.describe(request.path_params["name"])))

    return [
        # Without /v1 as well, as llama-server has them.
        *(Route(path, completions, methods=["POST"]) for path in ("/v1/chat/completions", "/chat/completions")),
        *(Route(path, models) for path in ("/v1/models", "/models")),
        Route("/v1/models/{name:path}", model),
    ]


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


async def _answer_choices(
    service: Service, chat: ChatRequest, heading: ChatHeading, options: ToolOptions, request: Request
) -> Response:
    """The response to a request that wants several answers (`n`): all at once, each a choice with a number of its own."""
    model, sampling = service.models.get(chat.model), chat.request.sampling
    if not service.tools.runs_no_tools(chat.request, options):
        raise UsageError("n: the server's own tools must not run twice, so there can be only 1 answer", field="n")
    # Each with a seed of its own: the same one would make them the same.
    seeds = [None if sampling.seed is None else sampling.seed + number for number in range(chat.n)]
    requests = [replace(chat.request, sampling=replace(sampling, seed=seed)) for seed in seeds]
    events = merge_streams([service.answers.answer(model, model_request, options) for model_request in requests])
    if chat.stream:
        writer = ChoicesWriter(heading, chat.n)
        frames = write_frames(events, lambda item: encode_frames(writer.write(*item)), lambda: _encode_end(writer.close()))
        return service.stream(frames, OPENAI.write_failure_frame)
    items = await unless_disconnected(request.receive, collect_items(events))
    choices = [[event for number, event in items if number == choice] for choice in range(chat.n)]
    return JsonResponse(write_choices(choices, heading))


def _encode_end(chunks: Iterable[Json]) -> bytes:
    return encode_frames(chunks) + write_frame(DONE.encode())
