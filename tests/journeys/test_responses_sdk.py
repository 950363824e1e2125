"""The real OpenAI client speaks the Responses dialect with the real application, over models that are told what to write."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from callsmith.core.errors import Unavailable
from callsmith.core.events import ModelEvent, Text
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions
from tests.fakes import FakeModel
from tests.journeys.scripts import (
    CALLS,
    CODE,
    HERMES,
    SAID,
    TIMER,
    TOOLS,
    WHOLE,
    answer_text,
    app_of,
    calling,
    client_of,
    scripted_model,
)
from tests.server.asking import says
from tests.serving import killed, served

FORMATS = ("hermes", "generic-xml", "qwen3-coder", "mistral", "pythonic", "harmony", "deepseek-v32")
CHUNKS = (1, 3, WHOLE)
FLAT: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]


def scripted(*replies: str, chunk: int = 4) -> tuple[AsyncOpenAI, Scripted]:
    engine = Scripted(replies, chunk=chunk, repeat=True)
    return client_of(app_of(LocalModel(engine, HERMES, Template(CHATML)))), engine


def said_and_called(response: Any) -> tuple[str, list[tuple[str, Any]]]:
    calls = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]
    return response.output_text.strip(), calls


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", FORMATS)
async def test_the_streaming_helper_puts_together_what_the_whole_answer_says(name: str, chunk: int) -> None:
    format = format_named(name)
    client = client_of(app_of(scripted_model(format, answer_text(format), chunk)))
    whole = await client.responses.create(model="m", input="hi", tools=FLAT)
    types: list[str] = []
    done: list[tuple[str, Any]] = []
    async with client.responses.stream(model="m", input="hi", tools=FLAT) as stream:
        async for event in stream:
            types.append(event.type)
            if event.type == "response.output_item.done" and event.item.type == "function_call":
                done.append((event.item.name, json.loads(event.item.arguments)))
        final = await stream.get_final_response()
    assert said_and_called(whole) == said_and_called(final) == (SAID, CALLS)
    assert done == CALLS
    assert whole.status == final.status == "completed"
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    ids = [item.call_id for item in final.output if item.type == "function_call"]
    assert len(set(ids)) == 2
    assert all(ids)


async def test_calls_go_round_parallel_empty_and_in_all_letters() -> None:
    both = [Call("write_file", {"path": "a", "content": CODE}), Call("now", {})]
    client, engine = scripted(calling(*both, text=SAID), "All done.")
    first = await client.responses.create(model="m", input="Write naïve 東京 🐈.", tools=FLAT)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(item.arguments) for item in calls] == [{"path": "a", "content": CODE}, {}]
    outputs: Any = [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"ok {at} 東京"} for at, item in enumerate(calls)
    ]
    second = await client.responses.create(model="m", input=outputs, tools=FLAT, previous_response_id=first.id)
    assert second.output_text == "All done."
    prompt = engine.asked[1].prompt.text
    for words in ("naïve 東京 🐈", SAID, "write_file", "ok 0 東京", "ok 1 東京"):
        assert words in prompt


async def test_a_history_the_client_keeps_itself_says_the_same_as_one_the_server_keeps() -> None:
    client, engine = scripted(f"<think>\nhm\n</think>\n\n{calling(Call('now', {}), text=SAID)}", "Noon.")
    body: Any = {"model": "m", "tools": FLAT, "instructions": "Be brief."}
    first = await client.responses.create(**body, input="What time is it?")
    (call,) = [item for item in first.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "12:00"}
    await client.responses.create(**body, input=[output], previous_response_id=first.id)
    engine._next = 1  # type: ignore[attr-defined]  # the same reply again
    kept: Any = [{"role": "user", "content": "What time is it?"}, *(item.to_dict() for item in first.output), output]
    await client.responses.create(**body, input=kept, store=False)
    again, before = engine.asked[2].prompt, engine.asked[1].prompt
    assert again == replace(before, origin=again.origin)


async def test_reasoning_comes_as_an_item_of_its_own() -> None:
    client, _ = scripted("<think>\nLet me see.\n</think>\n\nIt is noon.", chunk=3)
    thought = ""
    async with client.responses.stream(model="m", input="hi") as stream:
        async for event in stream:
            if event.type == "response.reasoning_text.delta":
                thought += event.delta
        final = await stream.get_final_response()
    reasoning, message = final.output
    assert reasoning.type == "reasoning"
    assert [part.text for part in reasoning.content or ()] == [thought]
    assert thought.strip() == "Let me see."
    assert (message.type, final.output_text) == ("message", "It is noon.")


async def test_an_answer_that_is_cut_is_incomplete() -> None:
    client, _ = scripted("one two three four five six")
    whole = await client.responses.create(model="m", input="hi", max_output_tokens=3)
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.output_text == "one two thre"
    assert whole.usage is not None
    assert whole.usage.output_tokens == 3
    last = ""
    async with client.responses.stream(model="m", input="hi", max_output_tokens=3) as stream:
        async for event in stream:
            last = event.type
    assert last == "response.incomplete"


class City(BaseModel):
    name: str
    people: int


async def test_an_answer_is_parsed_into_the_clients_own_model() -> None:
    client, engine = scripted('{"name": "Köln", "people": 1}')
    parsed = await client.responses.parse(model="m", input="hi", text_format=City)
    assert parsed.output_parsed == City(name="Köln", people=1)
    assert engine.asked[0].grammar is not None
    async with client.responses.stream(model="m", input="hi", text_format=City) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == City(name="Köln", people=1)


async def test_strict_tools_arrive_parsed() -> None:
    client, _ = scripted(calling(Call("City", {"name": "Bonn", "people": 2})))
    tool: Any = openai.pydantic_function_tool(City)
    parsed = await client.responses.parse(model="m", input="hi", tools=[tool])
    (call,) = parsed.output
    assert call.type == "function_call"
    assert cast(Any, call).parsed_arguments == City(name="Bonn", people=2)


async def test_what_is_stored_is_retrieved_listed_and_deleted() -> None:
    client, _ = scripted("Hello.")
    first = await client.responses.create(model="m", input="one", metadata={"a": "b"})
    again = await client.responses.retrieve(first.id)
    assert again == first
    second = await client.responses.create(model="m", input="two", previous_response_id=first.id)
    texts = [cast(Any, item).content[0].text async for item in client.responses.input_items.list(second.id, order="asc", limit=2)]
    assert texts == ["one", "Hello.", "two"]  # over two pages
    counted = await client.responses.input_tokens.count(model="m", input="two", previous_response_id=first.id)
    assert second.usage is not None
    assert counted.input_tokens == second.usage.input_tokens
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        await client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="m", input="three", previous_response_id=first.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_an_answer_can_be_cancelled_from_elsewhere() -> None:
    model = FakeModel([Text("so far"), 30.0, *says("never")])
    async with served(create_app({"m": model})) as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        async with client.responses.stream(model="m", input="hi") as stream:
            id, last = "", None
            async for event in stream:
                if event.type == "response.created":
                    id = event.response.id
                if event.type == "response.output_text.delta":
                    cancelled = await asyncio.wait_for(client.responses.cancel(id), 25)
                    assert cancelled.status == "cancelled"
                last = event
        assert last is not None
        assert last.type == "response.incomplete"
        assert last.response.output_text == "so far"


async def test_a_model_that_fails_in_the_middle_of_a_stream_ends_it_as_failed() -> None:
    events: list[ModelEvent | Exception | float] = [Text("so far"), Unavailable("gone")]
    client = client_of(create_app({"m": FakeModel(events)}))
    seen: list[Any] = []
    async with client.responses.stream(model="m", input="hi") as stream:
        async for event in stream:
            seen.append(event)
        with pytest.raises(RuntimeError):
            await stream.get_final_response()
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.error.message == "gone"
    assert seen[-1].response.output_text == "so far"


async def test_the_servers_own_tools_run_unseen() -> None:
    def now() -> str:
        """The time."""
        return "noon"

    engine = Scripted([calling(Call("now", {})), "It is noon."])
    client = client_of(create_app({"m": LocalModel(engine, HERMES, Template(CHATML))}, tools=Functions(now)))
    answer = await client.responses.create(model="m", input="What time is it?")
    assert [item.type for item in answer.output] == ["message"]
    assert answer.output_text == "It is noon."
    assert "noon" in engine.asked[1].prompt.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": [{"role": "nobody", "content": "hi"}]}, "input.0.role"),
        ({"input": "hi", "truncation": "auto"}, "truncation"),
        ({"input": "hi", "tools": [{"type": "function", "name": "no such name!"}]}, "tools.0.name"),
        (
            {"input": "hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "strin"}}}},
            "text.format.schema",
        ),
    ],
)
async def test_a_malformed_request_is_told_which_field_is_wrong(fields: Any, field: str) -> None:
    client, _ = scripted("Hello.")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="m", **fields)
    assert refused.value.param == field


async def test_a_conversation_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    with killed(tmp_path, "Noon.") as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        async with client.responses.stream(model="m", input="What time is it?") as stream:
            first = await stream.get_final_response()
    with killed(tmp_path, "Tea time.") as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        assert (await client.responses.retrieve(first.id)).output_text == "Noon."
        second = await client.responses.create(model="m", input="And now?", previous_response_id=first.id)
        assert second.output_text == "Tea time."
        output = [cast(Any, item).content[0].text async for item in client.responses.input_items.list(second.id, order="asc")]
        assert output == ["What time is it?", "Noon.", "And now?"]


@pytest.mark.weights
@pytest.mark.model
async def test_a_real_model_calls_when_it_must_and_goes_on_from_there(small: LocalModel) -> None:
    client = client_of(app_of(small))
    flat: Any = [{"type": "function", **tool["function"]} for tool in TIMER]
    body: Any = {"model": "m", "tools": flat, "parallel_tool_calls": False}
    async with client.responses.stream(**body, input="Tea, please.", tool_choice="required") as stream:
        first = await stream.get_final_response()
    ((name, arguments),) = said_and_called(first)[1]
    assert name == "set_timer"
    assert 1 <= arguments["minutes"] <= 60
    output: Any = [{"type": "function_call_output", "call_id": cast(Any, first.output[-1]).call_id, "output": "the timer is set"}]
    second = await client.responses.create(**body, input=output, previous_response_id=first.id, max_output_tokens=4)
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
