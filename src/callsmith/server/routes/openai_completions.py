"""`POST /v1/completions`: texts that are continued as they stand."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent
from callsmith.core.ports import Model, model_info
from callsmith.core.values import Completion, Json, Sampling
from callsmith.models.router import in_use
from callsmith.server.http.frames import encode, failure_frame
from callsmith.server.http.streams import JsonResponse, merge_streams, unless_disconnected
from callsmith.server.service import Service
from callsmith.wire.openai.chat_events import Heading
from callsmith.wire.openai.completions import CompletionsRequest, CompletionWriter, read_request
from callsmith.wire.sse import DONE, write_frame


def routes(service: Service) -> list[Route]:
    """The routes of this dialect."""
    bodies = service.bodies

    async def completions(request: Request) -> Response:
        parsed = await bodies.read_with(read_request, await bodies.read(request))
        name = service.models.resolve(parsed.model)
        model = service.models.get(name)
        answers = [service.answers.complete(model, completion) for completion in _seed_completions(parsed)]
        prompts = [await prompt_text(model, completion) for completion in parsed.completions] if parsed.echo else ()
        echoed = [prompt for prompt in prompts for _ in range(parsed.n)]
        heading = Heading(f"cmpl-{uuid4().hex}", name, int(time.time()), parsed.include_usage)
        writer = CompletionWriter(heading, len(answers), echoed)
        if parsed.stream:
            return service.stream(_frames(answers, writer), failure_frame)
        await unless_disconnected(request.receive, _all(answers, writer))
        return JsonResponse(writer.whole())

    return [Route(path, completions, methods=["POST"]) for path in ("/v1/completions", "/completions")]


async def prompt_text(model: Model, completion: Completion) -> str:
    """The prompt as text."""
    if isinstance(completion.prompt, str):
        return completion.prompt
    async with in_use(model) as opened:
        tokenizer = model_info(opened).tokenizer
        if tokenizer is None:
            raise UsageError("prompt: this model takes text only, no ids of tokens", field="prompt")
        return b"".join(tokenizer.decode(completion.prompt)).decode("utf-8", "replace")


def _seed_completions(parsed: CompletionsRequest) -> list[Completion]:
    """All completions: those of one prompt with seeds of their own, for the same one would make them the same."""
    numbered = [(completion, number) for completion in parsed.completions for number in range(parsed.n)]
    return [replace(completion, sampling=_with_seed(completion.sampling, number)) for completion, number in numbered]


def _with_seed(sampling: Sampling, number: int) -> Sampling:
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + number)


async def _chunks(answers: Sequence[AsyncIterator[ModelEvent]], writer: CompletionWriter) -> AsyncIterator[Json]:
    for chunk in writer.begin():
        yield chunk
    async with closing(merge_streams(answers)) as items:
        async for number, event in items:
            for chunk in writer.write(number, event):
                yield chunk
    for chunk in writer.close():
        yield chunk


async def _frames(answers: Sequence[AsyncIterator[ModelEvent]], writer: CompletionWriter) -> AsyncIterator[bytes]:
    async with closing(_chunks(answers, writer)) as chunks:
        async for chunk in chunks:
            yield write_frame(encode(chunk))
    yield write_frame(DONE.encode())


async def _all(answers: Sequence[AsyncIterator[ModelEvent]], writer: CompletionWriter) -> None:
    async with closing(_chunks(answers, writer)) as chunks:
        async for _ in chunks:
            pass
