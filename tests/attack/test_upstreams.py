"""An upstream that floods, and one that lies about what its answers cost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse
from starlette.routing import Route

from callsmith.core.errors import UsageError
from callsmith.core.values import Message, Request, Usage
from callsmith.engines.completions.server import choose_model
from callsmith.wire.anthropic.common import read_usage as read_anthropic
from callsmith.wire.capability.chat import read_usage as read_capability
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import read_usage as read_openai
from tests.models.remote.scripted import answer, chat, end_of, lines, remote
from tests.scripted_server import scripted
from tests.serving import served

ASKED = Request((Message.user("hi"),))
FRAME = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
MOST = 300  # events that one stream may take in a row


async def test_a_stream_without_pause_lets_others_have_their_turn():
    async def flood(_: HttpRequest) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield FRAME * 2_000
            yield END

        return StreamingResponse(pieces(), media_type="text/event-stream")

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with served(Starlette(routes=[Route("/v1/chat/completions", flood, methods=["POST"])])) as url:
        others = asyncio.create_task(other())
        most = row = seen = 0
        model = remote(f"{url}/v1", "chat")
        async with aclosing(model.stream(ASKED)) as events:
            async for _ in events:
                row = row + 1 if turns == seen else 0
                seen, most = turns, max(most, row)
        others.cancel()
        await model.close()
    assert turns > 100
    assert most < MOST


ABSURD = [-3 * 10**30, 3 * 10**30, -1, 10**10]


@pytest.mark.parametrize("number", ABSURD)
async def test_numbers_of_tokens_that_cannot_be_are_not_believed(number: int):
    details = {"prompt_tokens_details": {"cached_tokens": number}, "completion_tokens_details": {"reasoning_tokens": number}}
    sent = chat({"content": "hi"}, usage={"prompt_tokens": number, "completion_tokens": number, **details})
    done = {"message": {"content": "hi"}, "done": True, "prompt_eval_count": number, "eval_count": number}
    async with scripted(sent) as server:
        assert end_of(await answer(remote(server))).usage == Usage()
    async with scripted(lines(done)) as server:
        assert end_of(await answer(remote(server, "ollama"))).usage == Usage()
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert read_anthropic(Fields(dict.fromkeys(names, number))) == Usage()
    assert read_capability({"tokens_in": number, "tokens_out": number}) == Usage()


def test_a_part_of_the_tokens_is_no_more_than_all():
    sent = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 900}}
    assert read_openai(Fields(sent)) == Usage(5, 0, 5)
    believed = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    assert read_openai(Fields(believed)) == Usage(5, 3, 2)


def test_a_list_of_very_many_or_very_long_models_makes_no_endless_message():
    many = [{"id": f"model {number}\x1b[2J"} for number in range(100_000)]
    long = [{"id": f"{number}" + "x" * 1_000_000} for number in range(60)]
    for models in (many, long, [*long, *many]):
        for wanted in ("", "another"):
            with pytest.raises(UsageError) as raised:
                choose_model("http://there", models, wanted)
            assert "more" in str(raised.value) and len(str(raised.value)) < 15_000


@pytest.mark.parametrize(
    "models", [[{}], [{"id": None}], [{"id": ["a"]}], [{"id": "a"}, {"id": "a"}], [{"id": "a", "parent": "a"}]]
)
def test_a_list_of_models_that_makes_no_sense_still_has_one_or_says_what_is_wrong(models: list[Any]):
    try:
        assert choose_model("http://there", models, "") in models
    except UsageError as error:
        assert "several models" in str(error)
