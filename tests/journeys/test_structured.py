"""Structured answers: the real OpenAI client against the real application, and a real model too small to keep to a schema."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from callsmith.core.events import Stopped, Text
from callsmith.core.schema import validate
from callsmith.core.values import Message, Output, Request, Sampling
from callsmith.models.local import LocalModel
from tests.effort import tries
from tests.journeys.scripts import HERMES, HI, app_of, client_of, function, scripted_model
from tests.models.test_output import UNIQUE, model

CITY: Any = function("get_weather", {"type": "object", "properties": {"city": {"enum": ["Bonn", "Ulm"]}}, "required": ["city"]})
QUESTIONS = ("Tell me about the sea.", "Who wrote Faust?", "I am Ada, 36, and like tea and chess.")


class Point(BaseModel):
    x: int
    label: Literal["near", "far"]


class Drawing(BaseModel):
    title: str
    points: list[Point]
    note: str | None


# -- a model that is told what to write


async def test_the_parse_helper_gets_its_own_type():
    value = {"title": "A", "points": [{"x": 1, "label": "near"}], "note": None}
    client = client_of(app_of(scripted_model(HERMES, json.dumps(value), 3)))
    answer = await client.chat.completions.parse(model="m", messages=HI, response_format=Drawing)
    assert answer.choices[0].message.parsed == Drawing.model_validate(value)
    async with client.chat.completions.stream(model="m", messages=HI, response_format=Drawing) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == Drawing.model_validate(value)


async def test_what_was_only_checked_afterwards_is_told_beside_the_answer():
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "list", "schema": UNIQUE}}
    expected = {"unenforced": [{"tool": None, "path": "#", "keyword": "uniqueItems"}], "retries": 1}
    local, _ = model("[1, 1]", "[1, 2]", repeat=True)
    client = client_of(app_of(local))
    whole = await client.chat.completions.create(model="m", messages=HI, response_format=wanted)
    assert whole.choices[0].message.content == "[1, 2]"
    assert (whole.model_extra or {})["callsmith"] == expected
    chunks = [
        chunk async for chunk in await client.chat.completions.create(model="m", messages=HI, response_format=wanted, stream=True)
    ]
    assert [chunk.model_extra["callsmith"] for chunk in chunks if chunk.model_extra] == [expected]
    async with client.chat.completions.stream(model="m", messages=HI, response_format=wanted) as stream:
        assert (await stream.get_final_completion()).choices[0].message.content == "[1, 2]"


@pytest.mark.req("R225")
async def test_a_strict_answer_that_fails_twice_is_an_error_and_no_answer():
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "list", "schema": UNIQUE, "strict": True}}
    local, _ = model("[1, 1]", "[2, 2]")
    with pytest.raises(openai.APIStatusError, match="does not fit the schema"):
        await client_of(app_of(local)).chat.completions.create(model="m", messages=HI, response_format=wanted)


async def test_two_constraints_on_one_answer_are_refused_and_both_are_named():
    client = client_of(app_of(scripted_model(HERMES, "{}", 3)))
    with pytest.raises(openai.BadRequestError, match="response_format") as refused:
        await client.chat.completions.create(
            model="m", messages=HI, response_format={"type": "json_object"}, extra_body={"guided_choice": ["a"]}
        )
    assert refused.value.param == "guided_choice"


async def test_a_policy_travels_as_a_field_of_its_own():
    local, engine = model('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>', "Mild.")
    client = client_of(app_of(local))
    body: Any = {"model": "m", "tools": CITY, "extra_body": {"tool_choice_policy": "required_first_hop"}}
    first = (await client.chat.completions.create(messages=HI, **body)).choices[0].message
    call = (first.tool_calls or [])[0]
    history: Any = [*HI, first.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "18 °C"}]
    await client.chat.completions.create(messages=history, **body)
    assert [request.grammar is not None for request in engine.asked] == [True, False]


# -- a real model


@pytest.fixture
async def client(small: LocalModel) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(app_of(small)) as client:
        yield client


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 15}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "likes": {"type": "array", "items": {"enum": ["tea", "chess", "sea"]}, "minItems": 1, "maxItems": 3},
        "email": {"anyOf": [{"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}[.]org$"}, {"type": "null"}]},
    },
    "required": ["name", "age", "address", "likes", "email"],
    "additionalProperties": False,
}


async def said(model: LocalModel, number: int, output: Output, max_tokens: int = 400) -> str:
    request = Request(
        (Message.user(QUESTIONS[number % len(QUESTIONS)]),),
        output=output,
        sampling=Sampling(temperature=1.2, max_tokens=max_tokens),
    )
    events = [event async for event in model.stream(request)]
    assert isinstance(events[-1], Stopped)
    assert events[-1].reason == "stop"
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.generated
@pytest.mark.weights
@pytest.mark.req("R74")
@pytest.mark.req("R76")
async def test_answers_fit_a_nested_schema(shallow: LocalModel):
    for text in await asyncio.gather(*(said(shallow, number, Output(PERSON)) for number in range(tries(1, 15)))):
        assert validate(PERSON, json.loads(text)) == [], text


@pytest.mark.generated
@pytest.mark.weights
async def test_choices_patterns_and_grammars_are_kept_to(shallow: LocalModel):
    choices = ("yes", "no", "yes, but </answer> <|im_end|>")
    pattern, grammar = r"^[A-Z]{3}-\d{2,4}$", 'start: WORD (" " WORD)~1..3 "."\nWORD: /[a-z]{1,8}/'
    for output, fits in (
        (Output(choices=choices), lambda text: text in choices),
        (Output(pattern=pattern), lambda text: re.fullmatch(r"[A-Z]{3}-\d{2,4}", text, re.ASCII)),
        (Output(grammar=grammar), lambda text: re.fullmatch(r"[a-z]{1,8}( [a-z]{1,8}){1,3}\.", text)),
    ):
        for text in await asyncio.gather(*(said(shallow, number, output) for number in range(tries(1, 10)))):
            assert fits(text), text


@pytest.mark.generated
@pytest.mark.weights
async def test_an_answer_that_runs_out_of_room_is_closed_all_the_same(shallow: LocalModel):
    answers = (said(shallow, number, Output.json_object(), max_tokens=100) for number in range(tries(1, 5)))
    for text in await asyncio.gather(*answers):
        assert isinstance(json.loads(text), dict)


@pytest.mark.weights
@pytest.mark.model
async def test_the_real_client_gets_what_it_asked_of_a_real_model(client: AsyncOpenAI):
    class Card(BaseModel):
        kind: Literal["person", "place"]
        count: int

    ask: Any = {"model": "m", "messages": HI, "temperature": 1.2, "max_tokens": 200}
    parsed = await client.chat.completions.parse(response_format=Card, **ask)
    assert isinstance(parsed.choices[0].message.parsed, Card)
    whole = await client.chat.completions.create(response_format={"type": "json_object"}, **ask)
    assert isinstance(json.loads(whole.choices[0].message.content or ""), dict)
    pieces: list[str] = []
    async for chunk in await client.chat.completions.create(
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}, stream=True, **ask
    ):
        pieces.append(chunk.choices[0].delta.content or "")
    assert len([piece for piece in pieces if piece]) > 5
    assert validate(PERSON, json.loads("".join(pieces))) == []
    chosen = await client.chat.completions.create(extra_body={"structured_outputs": {"choice": ["tea", "coffee"]}}, **ask)
    assert chosen.choices[0].message.content in ("tea", "coffee")


@pytest.mark.weights
@pytest.mark.model
async def test_with_tools_a_real_model_calls_or_answers_and_both_are_valid(client: AsyncOpenAI):
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "sure", "schema": schema}}
    for choice in ("auto", "auto", "auto", "required", "none"):
        answer = await client.chat.completions.create(
            model="m", messages=HI, tools=CITY, response_format=wanted, tool_choice=choice, temperature=1.2, max_tokens=200
        )
        message = answer.choices[0].message
        calls = [json.loads(call.function.arguments) for call in message.tool_calls or ()]
        assert all(arguments["city"] in ("Bonn", "Ulm") for arguments in calls)
        assert bool(calls) != bool(message.content)
        assert calls if choice == "required" else choice == "auto" or not calls
        if message.content:
            assert validate(schema, json.loads(message.content)) == []


@pytest.mark.weights
@pytest.mark.parametrize("fields", [{"guided_grammar": "start: nowhere"}, {"guided_regex": "(a"}])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_grammar_that_does_not_compile_is_a_bad_request(client: AsyncOpenAI, fields: Any, stream: bool):
    with pytest.raises(openai.BadRequestError, match="does not compile"):
        await client.chat.completions.create(model="m", messages=HI, extra_body=fields, stream=stream)
