"""`POST /v1/completions`: texts that are continued as they stand."""

import time
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.ports import Model, model_info
from callsmith.core.values import Completion
from callsmith.models.router import in_use
from callsmith.server.http.errors import OPENAI
from callsmith.server.http.streams import (
    JsonResponse,
    collect_items,
    encode_frames,
    merge_streams,
    unless_disconnected,
    write_frames,
)
from callsmith.server.service import Service
from callsmith.wire.openai.chat_events import Heading
from callsmith.wire.openai.completions import CompletionWriter, read_request
from callsmith.wire.sse import DONE, write_frame


def routes(service: Service) -> list[Route]:
    bodies = service.bodies

    async def completions(request: Request) -> Response:
        parsed = await bodies.read_with(read_request, await bodies.read(request))
        name = service.models.resolve(parsed.model)
        model = service.models.get(name)
        seeded = [_with_seed(completion, number) for completion in parsed.completions for number in range(parsed.n)]
        answers = [service.answers.complete(model, completion) for completion in seeded]
        prompts = [await prompt_text(model, completion) for completion in parsed.completions] if parsed.echo else ()
        echoed = [prompt for prompt in prompts for _ in range(parsed.n)]
        heading = Heading(f"cmpl-{uuid4().hex}", name, int(time.time()), parsed.include_usage)
        writer = CompletionWriter(heading, len(answers), echoed)
        if parsed.stream:
            frames = write_frames(
                merge_streams(answers),
                lambda item: encode_frames(writer.write(*item)),
                lambda: encode_frames(writer.close()) + write_frame(DONE.encode()),
                encode_frames(writer.begin()),
            )
            return service.stream(frames, OPENAI.write_failure_frame)
        writer.begin()
        for number, event in await unless_disconnected(request.receive, collect_items(merge_streams(answers))):
            writer.write(number, event)
        return JsonResponse(writer.whole())

    return [Route(path, completions, methods=["POST"]) for path in ("/v1/completions", "/completions")]


async def prompt_text(model: Model, completion: Completion) -> str:
    if isinstance(completion.prompt, str):
        return completion.prompt
    async with in_use(model) as opened:
        tokenizer = model_info(opened).tokenizer
        if tokenizer is None:
            raise UsageError("prompt: this model takes text only, no ids of tokens", field="prompt")
        return b"".join(tokenizer.decode(completion.prompt)).decode("utf-8", "replace")


def _with_seed(completion: Completion, number: int) -> Completion:
    """Of several completions of one prompt each has a seed of its own, for the same one would make them the same."""
    sampling = completion.sampling
    return replace(completion, sampling=replace(sampling, seed=None if sampling.seed is None else sampling.seed + number))
