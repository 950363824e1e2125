"""The real OpenAI client against the real application, over a model that is told what to write and over a real one."""

import json
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from callsmith.formats import format_named
from callsmith.models.local import LocalModel
from tests.journeys.scripts import (
    CALLS,
    FORMATS,
    HERMES,
    HI,
    SAID,
    TIMER,
    TOOLS,
    WHOLE,
    answer_text,
    app_of,
    client_of,
    function,
    scripted_model,
)
from tests.serving import served
from tests.waiting import until

CHUNKS = (1, 2, 3, 5, 11, WHOLE)


def said_and_called(message: Any) -> tuple[str, list[tuple[str, Any]]]:
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    return (message.content or "").strip(), calls


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.sampled
async def test_the_streaming_helper_puts_together_what_the_whole_answer_says(name: str, chunk: int) -> None:
    format = format_named(name)
    client = client_of(app_of(scripted_model(format, answer_text(format), chunk)))
    whole = (await client.chat.completions.create(model="m", messages=HI, tools=TOOLS)).choices[0]
    done: list[tuple[int, str, Any]] = []
    async with client.chat.completions.stream(model="m", messages=HI, tools=TOOLS) as stream:
        async for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                done.append((event.index, event.name, json.loads(event.arguments)))
        final = (await stream.get_final_completion()).choices[0]
    assert said_and_called(whole.message) == (SAID, CALLS)
    assert said_and_called(final.message) == (SAID, CALLS)
    assert final.finish_reason == whole.finish_reason == "tool_calls"
    assert done == [(index, name, arguments) for index, (name, arguments) in enumerate(CALLS)]
    ids = [call.id for call in final.message.tool_calls or ()]
    assert len(set(ids)) == 2
    assert all(ids)


# -- a real model on a real socket


def check_timer(message: Any) -> None:
    text, calls = said_and_called(message)
    assert not text
    ((name, arguments),) = calls
    assert name == "set_timer"
    assert 1 <= arguments["minutes"] <= 60
    assert arguments["label"] in ("tea", "eggs")


@pytest.mark.weights
async def test_a_real_model_on_a_real_socket_calls_when_it_must(shallow: LocalModel) -> None:
    async with served(app_of(shallow)) as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        body: Any = {"model": "m", "messages": HI, "tools": TIMER, "tool_choice": "required", "parallel_tool_calls": False}
        whole = await client.chat.completions.create(**body)
        check_timer(whole.choices[0].message)
        assert whole.choices[0].finish_reason == "tool_calls"
        assert whole.usage is not None
        assert whole.usage.completion_tokens > 0
        async with client.chat.completions.stream(**body) as stream:
            final = await stream.get_final_completion()
        check_timer(final.choices[0].message)


@pytest.mark.weights
async def test_a_client_that_leaves_in_the_middle_frees_the_engine(shallow: LocalModel) -> None:
    async with served(app_of(shallow)) as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        tell: Any = [{"role": "user", "content": "Tell me a very long story about the sea."}]
        engine: Any = shallow.engine
        before = engine.stats.decodes
        stream = await client.chat.completions.create(model="m", messages=tell, stream=True, max_tokens=1500)
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        await stream.close()
        await until(lambda: not engine.working)
        after = await client.chat.completions.create(model="m", messages=HI, max_tokens=2)
        assert after.choices[0].message.content is not None
        assert engine.stats.decodes - before < 1000  # the story would have taken 1500


# -- what is wrong is said, and the server goes on


@pytest.fixture
async def simple() -> AsyncIterator[AsyncOpenAI]:
    client = client_of(app_of(scripted_model(HERMES, "Hello.", WHOLE)))
    yield client
    await client.close()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "nobody", "content": "hi"}]}, "messages.0.role"),
        ({"messages": HI, "temperature": "warm"}, "temperature"),
        ({"messages": HI, "tools": "all"}, "tools"),
        ({"messages": HI, "tools": function("no such name!", {})}, "tools.0.function.name"),
        ({"messages": HI, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
    ],
)
async def test_a_malformed_request_is_told_which_field_is_wrong(simple: AsyncOpenAI, fields: Any, field: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await simple.chat.completions.create(model="m", **fields)
    assert refused.value.param == field
    assert refused.value.type == "invalid_request_error"
    assert refused.value.body


@pytest.mark.parametrize(
    ("parameters", "place", "keyword"),
    [
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "/properties/a", "type"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "/properties/a", "$ref"),
        ({"type": "object", "required": "a"}, "", "required"),
        ({"type": "object", "properties": {"a": {"type": "integer", "minimum": "0"}}}, "/properties/a", "minimum"),
    ],
)
async def test_an_invalid_schema_is_told_its_place_and_keyword(
    simple: AsyncOpenAI, parameters: Any, place: str, keyword: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await simple.chat.completions.create(model="m", messages=HI, tools=function("f", parameters))
    assert refused.value.param == "tools.0.function.parameters"
    assert f"at {place or '#'}, keyword {keyword!r}" in refused.value.message


async def test_no_garbage_brings_the_server_down() -> None:
    chance = random.Random(20)
    good = {"model": "m", "messages": HI, "tools": TOOLS, "tool_choice": "auto", "stream": False}
    junk = [None, -1, 1e300, "x" * 5000, [], {}, [[[]]], {"a": {"b": None}}, True, "\ud83d", "\x00"]

    def garbage() -> bytes:
        kind = chance.randrange(4)
        if kind == 0:
            return chance.randbytes(chance.randrange(400))
        whole = json.dumps(good).encode()
        if kind == 1:
            return whole[: chance.randrange(len(whole))]
        if kind == 2:
            return b"[" * 100_000
        return json.dumps({**good, **{key: chance.choice(junk) for key in chance.sample(list(good), 2)}}).encode()

    async with served(app_of(scripted_model(HERMES, "Hello.", WHOLE))) as url, httpx2.AsyncClient(base_url=url) as http:
        for _ in range(20):
            answer = await http.post("/v1/chat/completions", content=garbage(), headers={"content-type": "application/json"})
            assert answer.status_code < 500, answer.text
            if answer.status_code >= 400:
                assert answer.json()["error"]["message"]
        assert (await http.get("/health")).json()["status"] == "ok"
        answer = await http.post("/v1/chat/completions", json=good)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello."
