"""`POST /v1/completions`: texts that are continued as they stand; and what clients of llama-server and vLLM ask for besides:
`/completion`, which is llama-server's own, tokens, and properties."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.ports import Model, ModelTokenizer, model_info
from callsmith.core.values import Completion, Json
from callsmith.models.router import in_use
from callsmith.server.http.errors import OPENAI
from callsmith.server.http.streams import (
    JsonResponse,
    collect_items,
    encode_frames,
    encode_in_parts,
    merge_streams,
    unless_disconnected,
    write_frames,
)
from callsmith.server.service import Service
from callsmith.wire.llama_server import (
    LlamaCompletionWriter,
    read_completion,
    read_detokenize,
    read_tokenize,
    write_props,
    write_text,
    write_tokens,
)
from callsmith.wire.openai.chat_events import ChatHeading
from callsmith.wire.openai.completions import CompletionWriter, read_request
from callsmith.wire.sse import DONE, write_frame


def routes(service: Service) -> list[Route]:
    """The routes of completions and of tokens. A request of llama-server's clients that names no model means the one there is."""
    return [*_completion_routes(service), *_token_routes(service)]


def _completion_routes(service: Service) -> list[Route]:
    bodies = service.bodies

    async def completions(request: Request) -> Response:
        parsed = await bodies.read_with(read_request, await bodies.read(request))
        name = service.models.resolve(parsed.model)
        model = service.models.get(name)
        seeded = [_with_seed(completion, number) for completion in parsed.completions for number in range(parsed.n)]
        answers = [service.answers.complete(model, completion) for completion in seeded]
        prompts = [await _prompt_text(model, completion) for completion in parsed.completions] if parsed.echo else ()
        echoed = [prompt for prompt in prompts for _ in range(parsed.n)]
        heading = ChatHeading(f"cmpl-{uuid4().hex}", name, int(time.time()), parsed.include_usage)
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

    async def native_completion(request: Request) -> Response:
        parsed = await bodies.read_with(read_completion, await bodies.read(request))
        name = service.models.resolve(parsed.model)
        model = service.models.get(name)
        writer = LlamaCompletionWriter(name, await _prompt_text(model, parsed.completion))
        events = service.answers.complete(model, parsed.completion)
        if parsed.stream:
            frames = write_frames(events, lambda event: encode_frames(writer.write(event)))
            return service.stream(frames, OPENAI.write_failure_frame)
        for event in await unless_disconnected(request.receive, collect_items(events)):
            writer.write(event)
        return JsonResponse(writer.whole())

    return [
        *(Route(path, completions, methods=["POST"]) for path in ("/v1/completions", "/completions")),
        Route("/completion", native_completion, methods=["POST"]),
    ]


def _token_routes(service: Service) -> list[Route]:
    bodies, most = service.bodies, service.settings.requests.tokenize_bytes
    workers = ThreadPoolExecutor(2, thread_name_prefix="callsmith-tokens")

    async def respond_with_tokens(name: str, work: Callable[[ModelTokenizer], dict[str, Json]]) -> Response:
        """What is made of a model's tokens: admitted like an answer, and made and written in a thread, two at a time."""

        async def compute() -> bytes:
            async with in_use(service.models.get(name)) as opened:
                tokenizer, loop = model_info(opened).tokenizer, asyncio.get_running_loop()
                if tokenizer is None:
                    raise UsageError(f"model: the tokens of {name!r} are not known here", field="model")
                return await loop.run_in_executor(workers, lambda: encode_in_parts(work(tokenizer)))

        async with service.answers.admission() as place:
            return Response(await place.deadline.wait_for(compute()), media_type=JsonResponse.media_type)

    async def tokenize(request: Request) -> Response:
        parsed = await bodies.read_with(read_tokenize, await bodies.read(request, most))
        name = service.models.resolve(parsed.model)

        def work(tokenizer: ModelTokenizer) -> dict[str, Json]:
            if parsed.request is not None:
                tokens = tokenizer.encode_request(parsed.request)
            else:
                tokens = tokenizer.encode(parsed.text, bos=parsed.bos, specials=parsed.specials)
            texts = tokenizer.decode(tokens) if parsed.pieces else ()
            return write_tokens(parsed, tokens, texts, model_info(service.models.get(name)).context)

        return await respond_with_tokens(name, work)

    async def detokenize(request: Request) -> Response:
        name, tokens = await bodies.read_with(read_detokenize, await bodies.read(request, most))

        def work(tokenizer: ModelTokenizer) -> dict[str, Json]:
            return write_text(b"".join(tokenizer.decode(tokens)).decode("utf-8", "replace"))

        return await respond_with_tokens(service.models.resolve(name), work)

    async def props(request: Request) -> Response:
        name = service.models.resolve(request.query_params.get("model", ""))
        return JsonResponse(write_props(name, model_info(service.models.get(name))))

    return [
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/props", props),
    ]


async def _prompt_text(model: Model, completion: Completion) -> str:
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
