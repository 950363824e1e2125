"""What LocalModel asks of the engine where an answer must be something, and what it does with what no grammar enforces."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.errors import ModelError, Unavailable, UnsupportedSchema
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    Text,
    Thought,
    Unenforced,
    Unreadable,
)
from callsmith.core.values import Choice, Message, Output, Request, Sampling, Tool
from callsmith.engines.scripted import Reply, Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
HI = Message.user("Hi")
ASK = Request((HI,), output=Output(SCHEMA))
WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
# A grammar cannot tell that the two differ.
MOVE = Tool(
    "move",
    "",
    {
        "type": "object",
        "properties": {"from": {"type": "integer"}, "to": {"type": "integer"}},
        "required": ["from", "to"],
        "if": {"properties": {"from": {"const": 1}}},
        "then": {"properties": {"to": {"not": {"const": 1}}}},
    },
)
LEFT = Unenforced("move", "#", "if"), Unenforced("move", "#", "then")
MOVING = Request((HI,), (MOVE, WEATHER), Choice("required"))


def model(*replies: Reply, format: str = "hermes", repeat: bool = False, chunk: int = 4, **traits: Any):
    engine = Scripted(replies, repeat=repeat, chunk=chunk)
    return LocalModel(engine, format_named(format), Template(CHATML), Traits(**traits)), engine


async def events(model: LocalModel, request: Request) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def calls_of(events: Sequence[ModelEvent]) -> list[tuple[int, str, dict[str, Any]]]:
    return [(event.index, event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)]


def ended(events: Sequence[ModelEvent]) -> Stopped:
    assert sum(isinstance(event, Stopped) for event in events) == 1
    assert isinstance(events[-1], Stopped)
    return events[-1]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def move(start: int, to: int) -> str:
    return call("move", **{"from": start, "to": to})


# What is asked of the engine


async def test_an_output_is_constrained_from_the_start_and_the_model_is_told_of_the_schema():
    local, engine = model('{"a": 1}')
    answer = await events(local, ASK)
    assert text_of(answer) == '{"a": 1}'
    grammar = engine.asked[0].grammar
    assert grammar is not None and not grammar.triggers
    prompt = engine.asked[0].prompt.text
    assert "Answer with JSON that fits the schema below only" in prompt and json.dumps(SCHEMA) in prompt
    assert ended(answer).report == Report()


async def test_the_model_is_told_of_an_object_after_the_system_message_and_of_nothing_else():
    local, engine = model("{}", repeat=True)
    system = (Message.system("Be brief."), HI)
    await events(local, Request(system, output=Output.json_object()))
    assert "Be brief.\n\nAnswer with a JSON object only, without any other text." in engine.asked[0].prompt.text
    for output in (Output(choices=("a",)), Output(pattern="a"), Output(grammar='start: "a"')):
        await events(local, Request(system, output=output))
        assert "Answer with" not in engine.asked[-1].prompt.text


async def test_with_tools_the_answer_is_calls_or_the_output():
    local, engine = model(call("get_weather", city="Bonn"), '{"a": 1}')
    request = replace(ASK, tools=(WEATHER,))
    assert calls_of(await events(local, request)) == [(0, "get_weather", {"city": "Bonn"})]
    assert text_of(await events(local, request)) == '{"a": 1}'
    assert "Unless you call a tool, answer with JSON" in engine.asked[0].prompt.text
    assert engine.asked[0].grammar is not None and not engine.asked[0].grammar.triggers


async def test_what_looks_like_a_call_is_the_output_where_no_call_may_be_made():
    text = '{"name": "get_weather", "arguments": {"city": "Bonn"}}'
    local, _ = model(text, repeat=True, format="json")
    for request in (Request((HI,)), Request((HI,), (WEATHER,), Choice("none"))):
        answer = await events(local, replace(request, output=Output.json_object()))
        assert text_of(answer) == text
        assert ended(answer).reason == "stop"


async def test_a_thought_before_the_output_is_told_from_it():
    local, _ = model('<think>\nHm.\n</think>\n\n{"a": 1}', thinks=True)
    answer = await events(local, ASK)
    assert ["".join(event.text for event in answer if isinstance(event, kind)) for kind in (Thought, Text)] == ["Hm.", '{"a": 1}']


async def test_a_schema_that_is_none_is_refused_before_anything_is_said():
    local, engine = model("{}")
    with pytest.raises(UnsupportedSchema, match="at /properties/a"):
        await events(local, Request((HI,), output=Output({"properties": {"a": {"type": "strin"}}})))
    assert not engine.asked


# Calls that no grammar could hold


@pytest.mark.req("R224")
@pytest.mark.req("R72")
async def test_an_invalid_call_is_not_shown_and_the_second_attempt_takes_its_place():
    local, _ = model(f"{move(1, 1)}\n{call('get_weather', city='Bonn')}", move(1, 2))
    answer = await events(local, MOVING)
    assert calls_of(answer) == [(1, "get_weather", {"city": "Bonn"}), (0, "move", {"from": 1, "to": 2})]
    assert ended(answer).report == Report(LEFT, 1)
    assert ended(answer).reason == "calls"
    started = {event.index: event.id for event in answer if isinstance(event, CallStarted)}
    ready = {event.index: event.call.id for event in answer if isinstance(event, CallReady)}
    assert started == ready and len(set(ready.values())) == 2
    for index in (0, 1):
        pieces = "".join(event.text for event in answer if isinstance(event, CallArguments) and event.index == index)
        assert pieces == next(event.call.text for event in answer if isinstance(event, CallReady) and event.index == index)


async def test_the_model_is_asked_again_with_its_call_and_the_complaint_and_held_to_that_tool():
    local, engine = model(move(1, 1), move(1, 2))
    answer = await events(local, MOVING)
    first, second = engine.asked
    assert '"to": 1' in second.prompt.text and "invalid_arguments: at /to:" in second.prompt.text
    assert "get_weather" in first.prompt.text and "get_weather" not in second.prompt.text
    assert second.grammar is not None
    count = engine.count
    assert ended(answer).usage.completion == await count(move(1, 1)) + await count(move(1, 2))
    assert ended(answer).usage.prompt == await count(first.prompt.text) + await count(second.prompt.text)


async def test_a_valid_call_is_shown_whole_and_what_is_in_no_doubt_streams():
    local, engine = model(f"{call('get_weather', city='Bonn')}\n{move(1, 2)}")
    answer = await events(local, MOVING)
    assert len(engine.asked) == 1
    assert ended(answer).report == Report(LEFT, 0)
    first = [event for event in answer if isinstance(event, CallArguments) and event.index == 0]
    assert len(first) > 1
    assert answer.index(first[0]) < next(at for at, event in enumerate(answer) if isinstance(event, CallReady))


@pytest.mark.parametrize("second", ["I will not.", Unavailable("no room"), move(1, 1)])
async def test_where_the_second_attempt_is_no_better_a_call_is_passed_on(second: Reply):
    local, _ = model(move(1, 1), second)
    answer = await events(local, MOVING)
    assert calls_of(answer) == [(0, "move", {"from": 1, "to": 1})]
    assert ended(answer).report.retries == 1


async def test_two_invalid_calls_are_each_asked_for_once():
    local, _ = model(f"{move(1, 1)}\n{move(1, 1)}", move(1, 2), move(1, 3))
    answer = await events(local, MOVING)
    assert [arguments["to"] for _, _, arguments in calls_of(answer)] == [2, 3]
    assert ended(answer).report.retries == 2


async def test_an_id_the_model_wrote_stays_when_it_is_asked_again():
    spelling = '[TOOL_CALLS]move[CALL_ID]{}[ARGS]{{"from": 1, "to": {}}}'
    local, _ = model(spelling.format("aB3dE6gH9", 1), spelling.format("zzzzzzzzz", 2), format="mistral-args")
    answer = await events(local, MOVING)
    assert [(item.call.id, item.call.arguments["to"]) for item in answer if isinstance(item, CallReady)] == [("aB3dE6gH9", 2)]


async def test_a_call_that_is_cut_off_is_told_as_ever():
    local, _ = model(move(1, 1))
    answer = await events(local, replace(MOVING, sampling=Sampling(max_tokens=14)))
    assert [type(event) for event in answer if not isinstance(event, CallArguments)] == [
        Started,
        CallStarted,
        Unreadable,
        Stopped,
    ]


async def test_where_the_model_may_choose_only_strict_tools_and_guarded_models_are_checked():
    free = replace(MOVING, choice=Choice())
    for request, traits, attempts in (
        (free, {}, 1),
        (replace(free, tools=(replace(MOVE, strict=True), WEATHER)), {}, 2),
        (free, {"auto_guarded": True}, 2),
    ):
        local, engine = model(f"Well. {move(1, 1)}", move(1, 2), **traits)
        answer = await events(local, request)
        assert len(engine.asked) == attempts
        assert [arguments["to"] for _, _, arguments in calls_of(answer)] == [attempts]
        assert text_of(answer).strip() == "Well."


# An output that no grammar could hold

UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


async def test_an_output_that_is_invalid_is_not_shown_and_asked_for_again():
    local, engine = model("[1, 1]", "[1, 2]")
    answer = await events(local, Request((HI,), output=Output(UNIQUE)))
    assert text_of(answer) == "[1, 2]"
    assert ended(answer).report == Report((Unenforced("", "#", "uniqueItems"),), 1)
    assert "[1, 1]" in engine.asked[1].prompt.text and "not valid" in engine.asked[1].prompt.text


async def test_an_output_that_fails_twice_is_passed_on_unless_it_is_strict():
    local, _ = model("[1, 1]", "[2, 2]", "[1, 1]", "[2, 2]")
    assert text_of(await events(local, Request((HI,), output=Output(UNIQUE)))) == "[2, 2]"
    with pytest.raises(ModelError, match="does not fit the schema"):
        await events(local, Request((HI,), output=Output(UNIQUE, strict=True)))


async def test_an_output_that_is_cut_off_is_shown_as_far_as_it_went():
    local, engine = model("[1, 1, 1, 1, 1, 1]")
    answer = await events(local, Request((HI,), output=Output(UNIQUE, strict=True), sampling=Sampling(max_tokens=2)))
    assert text_of(answer) == "[1, 1, 1"
    assert ended(answer).reason == "length"
    assert len(engine.asked) == 1


async def test_a_second_attempt_that_is_cut_off_is_shown_as_far_as_it_went():
    local, _ = model("[1, 1]", "[2, 3, 4, 5, 6]")
    answer = await events(local, Request((HI,), output=Output(UNIQUE, strict=True), sampling=Sampling(max_tokens=2)))
    assert (text_of(answer), ended(answer).reason) == ("[2, 3, 4", "length")
