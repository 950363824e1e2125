"""Log probabilities of a real model's tokens, as the clients of each dialect read them."""

import math
from typing import Any

import httpx
import ollama
import openai
import pytest

from callsmith.formats import format_named
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.journeys.scripts import HI, TOOLS, app_of, client_of, scripted_model

pytestmark = pytest.mark.weights

LIMITS: dict[str, Any] = {"model": "m", "temperature": 0.0, "seed": 1}


def spelled(tokens: Any) -> str:
    return b"".join(bytes(token.bytes) for token in tokens).decode()


async def test_chat_completions_give_each_token_with_the_likeliest_ones(shallow: LocalModel) -> None:
    client = client_of(app_of(shallow))
    body = {**LIMITS, "messages": HI, "max_completion_tokens": 12, "logprobs": True, "top_logprobs": 3}
    choice = (await client.chat.completions.create(**body)).choices[0]
    assert choice.logprobs and choice.logprobs.content
    assert spelled(choice.logprobs.content) == choice.message.content
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # the likeliest was chosen
        assert token.top_logprobs[0].logprob == token.logprob <= 0
        assert sum(math.exp(top_logprob.logprob) for top_logprob in token.top_logprobs) <= 1.0001
    streamed: list[Any] = []
    async for chunk in await client.chat.completions.create(**body, stream=True):
        for item in chunk.choices:
            streamed += (item.logprobs.content or ()) if item.logprobs else ()
            assert spelled((item.logprobs.content or ()) if item.logprobs else ()) == (item.delta.content or "")
    assert [item.token for item in streamed] == [item.token for item in choice.logprobs.content]
    assert streamed[0].logprob == pytest.approx(choice.logprobs.content[0].logprob, abs=1e-3)


async def test_they_are_those_of_the_model_whatever_is_done_to_its_choice(shallow: LocalModel) -> None:
    client = client_of(app_of(shallow))
    body = {**LIMITS, "messages": HI, "max_completion_tokens": 1, "logprobs": True, "top_logprobs": 1}
    plain = (await client.chat.completions.create(**body)).choices[0].logprobs
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["Bonn", "Rome"]}}}
    held = (await client.chat.completions.create(**body, response_format=format)).choices[0].logprobs
    assert plain and plain.content and held and held.content
    assert held.content[0].token.startswith('"')
    assert held.content[0].top_logprobs[0].token != held.content[0].token  # the grammar did not let it
    assert held.content[0].logprob < held.content[0].top_logprobs[0].logprob


async def test_a_call_has_none(shallow: LocalModel) -> None:
    body = {**LIMITS, "messages": HI, "max_completion_tokens": 80, "logprobs": True}
    choice = (await client_of(app_of(shallow)).chat.completions.create(**body, tools=TOOLS, tool_choice="required")).choices[0]
    assert choice.message.tool_calls
    assert choice.logprobs is None


async def test_responses_give_them_where_they_are_included(shallow: LocalModel) -> None:
    client = client_of(app_of(shallow))
    body = {**LIMITS, "input": "Hi", "max_output_tokens": 16, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    del body["seed"]
    response = await client.responses.create(**body)
    part: Any = response.output[0]
    assert spelled(part.content[0].logprobs) == response.output_text
    assert all(len(token.top_logprobs) == 2 for token in part.content[0].logprobs)
    assert response.top_logprobs == 2
    deltas: list[str] = []
    async with client.responses.stream(**body) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                assert "".join(token.token for token in event.logprobs) == event.delta
                deltas.append(event.delta)
    assert "".join(deltas) == response.output_text


async def test_ollama_has_them_beside_the_message(shallow: LocalModel) -> None:
    transport = httpx.ASGITransport(app=create_app({"m": shallow}))
    client = ollama.AsyncClient("http://localhost", transport=transport)
    options = {"num_predict": 8, "temperature": 0.0}
    answer = await client.chat("m", HI, options=options, logprobs=True, top_logprobs=2)
    assert answer.logprobs
    assert "".join(token.token for token in answer.logprobs) == answer.message.content
    assert all(len(token.top_logprobs or ()) == 2 for token in answer.logprobs)
    parts = [part async for part in await client.generate("m", "Hi", options=options, logprobs=True, stream=True)]
    assert "".join(token.token for part in parts for token in part.logprobs or ()) == "".join(part.response for part in parts)


async def test_a_model_that_has_none_says_so() -> None:
    client = client_of(app_of(scripted_model(format_named("hermes"), "Hello", 1)))
    with pytest.raises(openai.BadRequestError, match="does not give log probabilities"):
        await client.chat.completions.create(model="m", messages=HI, logprobs=True)
