"""What clients of llama-server and vLLM ask for besides OpenAI's dialects: tokens, plain completions, properties."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.ports import ModelTokenizer, model_info
from callsmith.core.values import Json
from callsmith.models.router import in_use
from callsmith.server.http.errors import OPENAI
from callsmith.server.http.streams import (
    JsonResponse,
    collect_items,
    encode_frames,
    encode_in_parts,
    unless_disconnected,
    write_frames,
)
from callsmith.server.routes.openai_completions import prompt_text
from callsmith.server.service import Service
from callsmith.wire.llama_server import (
    CompletionWriter,
    read_completion,
    read_detokenize,
    read_tokenize,
    write_props,
    write_text,
    write_tokens,
)


def routes(service: Service) -> list[Route]:
    """The routes of these servers. A request that names no model means the one there is."""
    bodies, most = service.bodies, service.settings.requests.tokenize_bytes
    workers = ThreadPoolExecutor(2, thread_name_prefix="callsmith-tokens")

    @asynccontextmanager
    async def tokenizer_of(name: str) -> AsyncGenerator[ModelTokenizer, None]:
        async with in_use(service.models.get(name)) as opened:
            tokenizer = model_info(opened).tokenizer
            if tokenizer is None:
                raise UsageError(f"model: the tokens of {name!r} are not known here", field="model")
            yield tokenizer

    async def completion(request: Request) -> Response:
        parsed = await bodies.read_with(read_completion, await bodies.read(request))
        name = service.models.resolve(parsed.model)
        model = service.models.get(name)
        writer = CompletionWriter(name, await prompt_text(model, parsed.completion))
        events = service.answers.complete(model, parsed.completion)
        if parsed.stream:
            frames = write_frames(events, lambda event: encode_frames(writer.write(event)))
            return service.stream(frames, OPENAI.write_failure_frame)
        for event in await unless_disconnected(request.receive, collect_items(events)):
            writer.write(event)
        return JsonResponse(writer.whole())

    async def respond_with_tokens(name: str, work: Callable[[ModelTokenizer], dict[str, Json]]) -> Response:
        """What is made of a model's tokens: admitted like an answer, and made and written in a thread, two at a time."""

        async def compute() -> bytes:
            async with tokenizer_of(name) as tokenizer:
                loop = asyncio.get_running_loop()
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
        Route("/completion", completion, methods=["POST"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/props", props),
    ]
