"""`/api/chat`, `/api/generate` and the descriptions of models: Ollama's dialect. Streams are lines of JSON."""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.closing import closing
from callsmith.core.events import ModelEvent
from callsmith.core.values import Json
from callsmith.models.router import LazyModel
from callsmith.server.http.errors import Dialect
from callsmith.server.http.streams import CachedFrames, JsonResponse, encode, unless_disconnected, write_frames
from callsmith.server.service import Service
from callsmith.wire.extensions import read_extensions
from callsmith.wire.model_list import write_running, write_show, write_tag
from callsmith.wire.ollama.events import LineWriter, OllamaHeading, merge_lines, write_loaded
from callsmith.wire.ollama.requests import OllamaRequest, OllamaShowFields, read_chat, read_generate, write_error, write_failure

SPOKEN = "0.13.4"  # the release of Ollama whose API this is: clients look at it to know what they may send
_LATEST = ":latest"  # what Ollama's clients put behind names that have no tag
_LINES = "application/x-ndjson"

DIALECT = Dialect(write_error, write_failure, paths=("/api",))


def routes(service: Service) -> list[Route]:
    dialect = _Dialect(service)
    return [
        Route("/api/chat", dialect.chat, methods=["POST"]),
        Route("/api/generate", dialect.generate, methods=["POST"]),
        Route("/api/tags", dialect.tags),
        Route("/api/ps", dialect.running),
        Route("/api/show", dialect.show, methods=["POST"]),
        Route("/api/version", dialect.version),
    ]


@dataclass(frozen=True, slots=True)
class _Dialect:
    service: Service

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, read_chat, chat=True)

    async def generate(self, request: Request) -> Response:
        return await self._answer(request, read_generate, chat=False)

    async def tags(self, _: Request) -> Response:
        return JsonResponse({"models": [write_tag(model) for model in self.service.models.list_visible()]})

    async def running(self, _: Request) -> Response:
        listed = self.service.models.list_visible()
        return JsonResponse({"models": [write_running(model) for model in listed if model.is_loaded and not model.alias_of]})

    async def show(self, request: Request) -> Response:
        fields = OllamaShowFields.of(await self.service.bodies.read(request), "")
        name = fields.model or fields.name or ""  # `name` is what it was called once
        return JsonResponse(write_show(self.service.models.describe(self._resolve(name))))

    async def version(self, _: Request) -> Response:
        return JsonResponse({"version": SPOKEN, "callsmith": version("callsmith")})

    async def _answer(self, request: Request, read: Callable[[Json], OllamaRequest], *, chat: bool) -> Response:
        service, arrived = self.service, time.perf_counter_ns()
        body = await self.service.bodies.read(request)
        parsed = await self.service.bodies.read_with(read, body)
        name = self._resolve(parsed.model)
        model = service.models.get(name)
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        heading = OllamaHeading(parsed.model or name, now, time.perf_counter_ns, arrived, chat)
        if not parsed.request.messages and parsed.stays and parsed.stay_seconds == 0 and isinstance(model, LazyModel):
            model.unload_when_idle()
            return JsonResponse(write_loaded(heading, is_loaded=False))
        if parsed.stays and isinstance(model, LazyModel):
            model.stay_for(parsed.stay_seconds)
        if not parsed.request.messages:
            await unless_disconnected(request.receive, service.answers.load(model))
            return JsonResponse(write_loaded(heading))
        options, session = read_extensions(body)
        events = service.answers.answer(model, parsed.request.in_session(session), options)
        if parsed.stream:
            writer = LineWriter(heading)
            lines = CachedFrames[ModelEvent](lambda event: _encode_lines(writer.write(event)))
            encoded = write_frames(events, lines.encode_event, lambda: _encode_lines(writer.close()))
            return service.stream(encoded, _failure_line, alive=_encode_lines([heading.line()]), media_type=_LINES)
        return JsonResponse(await unless_disconnected(request.receive, _whole(events, heading)))

    def _resolve(self, name: str) -> str:
        """The name as it is known here."""
        known = self.service.models.all
        plain = self.service.models.resolve(name.removesuffix(_LATEST))
        return plain if name not in known and plain in known else name


async def _whole(events: AsyncIterator[ModelEvent], heading: OllamaHeading) -> Json:
    """The whole answer, written while it comes: the durations are those of the model."""
    writer, lines = LineWriter(heading), list[dict[str, Json]]()
    async with closing(events) as items:
        async for event in items:
            lines += writer.write(event)
    return merge_lines(lines + writer.close(), heading)


def _encode_lines(values: Iterable[Json]) -> bytes:
    return b"".join(encode(value) + b"\n" for value in values)


def _failure_line(error: BaseException) -> bytes:
    return _encode_lines([write_error(error).body])
