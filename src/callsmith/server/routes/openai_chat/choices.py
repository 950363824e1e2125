"""Several answers to one chat completion (`n`): all of them at once, each a choice with a number of its own."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent
from callsmith.server.http.frames import encode, failure_frame
from callsmith.server.http.streams import JsonResponse, merge_streams, unless_disconnected
from callsmith.server.service import Service
from callsmith.wire.extensions import ToolOptions
from callsmith.wire.openai.chat import ChatRequest
from callsmith.wire.openai.chat_events import ChoicesWriter, Heading, write_choices
from callsmith.wire.sse import DONE, write_frame


async def answer_choices(
    service: Service, chat: ChatRequest, heading: Heading, options: ToolOptions, request: Request
) -> Response:
    """The response to a request that wants more than one answer."""
    answers = _answers(service, chat, options)
    if chat.stream:
        return service.stream(_frames(answers, heading), failure_frame)
    return JsonResponse(write_choices(await unless_disconnected(request.receive, _all(answers)), heading))


def _answers(service: Service, chat: ChatRequest, options: ToolOptions) -> list[AsyncIterator[ModelEvent]]:
    """Each with a seed of its own: the same one would make them the same."""
    model, request = service.models.get(chat.model), chat.request
    if not service.tools.runs_no_tools(request, options):
        raise UsageError("n: the server's own tools must not run twice, so there can be only 1 answer", field="n")
    seed = request.sampling.seed
    seeds = [None if seed is None else seed + number for number in range(chat.n)]
    return [
        service.answers.answer(model, replace(request, sampling=replace(request.sampling, seed=seed)), options) for seed in seeds
    ]


async def _frames(answers: Sequence[AsyncIterator[ModelEvent]], heading: Heading) -> AsyncIterator[bytes]:
    writer = ChoicesWriter(heading, len(answers))
    async with closing(merge_streams(answers)) as items:
        async for number, event in items:
            for chunk in writer.write(number, event):
                yield write_frame(encode(chunk))
    for chunk in writer.close():
        yield write_frame(encode(chunk))
    yield write_frame(DONE.encode())


async def _all(answers: Sequence[AsyncIterator[ModelEvent]]) -> list[list[ModelEvent]]:
    whole: list[list[ModelEvent]] = [[] for _ in answers]
    async with closing(merge_streams(answers)) as items:
        async for number, event in items:
            whole[number].append(event)
    return whole
