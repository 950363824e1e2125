"""What a model was given and what it wrote, for whoever asks: each step once, in its order, and nothing where nobody does."""

import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.events import Text
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool
from callsmith.engines.scripted import Reply, Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits
from callsmith.runtime.guards.guards import guard_model

WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
ASK = Request((Message.user("Hi"),), (WEATHER,))


def model(*replies: Reply, **traits: Any) -> tuple[LocalModel, Scripted]:
    engine = Scripted(replies)
    return LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(**traits)), engine


async def steps_of(model: Any, request: Request) -> list[ModelStep]:
    steps: list[ModelStep] = []
    async for _ in model.stream(replace(request, explain=steps.append)):
        pass
    return steps


async def test_a_step_has_the_exact_prompt_and_what_the_model_wrote():
    local, engine = model(f"One moment.{CALL}")
    [step] = await steps_of(local, ASK)
    assert step.prompt == engine.asked[0].prompt.text
    assert (step.text, step.grammar, step.repairs) == (f"One moment.{CALL}", "", ())
    assert step.seconds > 0 and step.tokens > 0 and step.prompt_tokens > step.tokens


async def test_the_grammar_is_shown_as_the_engine_is_told_it():
    local, _ = model(CALL)
    [step] = await steps_of(local, replace(ASK, choice=Choice("required")))
    assert "start:" in step.grammar and "get_weather" in step.grammar


async def test_of_many_tools_the_grammar_of_their_names_is_shown():
    many = tuple(replace(WEATHER, name=f"tool_{number}") for number in range(30))
    engine = Scripted([CALL.replace("get_weather", "tool_7")])
    engine.info = replace(engine.info, relays=True)
    local = LocalModel(engine, format_named("hermes"), Template(CHATML))
    [step] = await steps_of(local, replace(ASK, tools=many, choice=Choice("required")))
    assert step.grammar.startswith("// which tool is called") and "29" in step.grammar


async def test_repairs_and_what_could_not_be_read_are_named():
    local, _ = model(
        '<tool_call>\n{"name": "get_weather", "arguments": {"CITY": "Bonn"}}\n</tool_call>', '<tool_call>\n{"name": "'
    )
    [step] = await steps_of(local, ASK)
    assert step.repairs == ("key-case",)
    [step] = await steps_of(local, ASK)
    assert step.repairs and step.repairs[0].startswith("unreadable: ")


async def test_an_answer_that_is_asked_for_once_more_has_two_steps():
    unlike = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 1}}}, "required": ["a"]}
    tool = Tool("move", "", unlike, strict=True)
    wrong, right = (CALL.replace("get_weather", "move").replace('{"city": "Bonn"}', f'{{"a": {number}}}') for number in (1, 2))
    local, engine = model(wrong, right)
    steps = await steps_of(local, replace(ASK, tools=(tool,), choice=Choice("required")))
    assert [step.text for step in steps] == [wrong, right]
    assert [step.prompt for step in steps] == [request.prompt.text for request in engine.asked]


async def test_a_step_that_a_guard_takes_back_is_shown_too():
    call = Call("get_weather", {"city": "Bonn"}, "c1")
    history = (*ASK.messages, Message.assistant(calls=[call]), Message.tool(Result("c1", "get_weather", '{"sun": true}')))
    local, _ = model('{"sun": true}', "The sun shines.")
    steps = await steps_of(guard_model(local, ["answers"]), replace(ASK, messages=history))
    assert [step.text for step in steps] == ['{"sun": true}', "The sun shines."]
    assert steps[0].prompt != steps[1].prompt


async def test_an_answer_that_is_broken_off_is_a_step_with_what_was_written():
    steps: list[ModelStep] = []
    local, _ = model("A long answer that nobody reads to its end.")
    async with aclosing(local.stream(replace(ASK, explain=steps.append))) as events:
        async for event in events:
            if isinstance(event, Text):
                break
    [step] = steps
    assert step.text and "A long answer that nobody reads to its end.".startswith(step.text)


async def test_nothing_is_made_for_a_request_that_does_not_ask(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callsmith.models.local.grammar_text", None)
    monkeypatch.setattr("callsmith.models.local.ModelStep", None)
    local, _ = model(CALL)
    assert [event async for event in local.stream(replace(ASK, choice=Choice("required")))]


async def test_of_a_model_on_another_server_the_request_and_its_answer_are_shown():
    pytest.importorskip("aiohttp")
    from tests.models.remote.scripted import ASK, call_delta, chat, remote
    from tests.scripted_server import scripted

    call = call_delta("weather", '{"city": "Bonn"}')
    async with scripted(chat({"content": "One moment."}, call, finish="tool_calls", usage={"prompt_tokens": 9})) as server:
        [step] = await steps_of(remote(server), ASK)
    sent = json.loads(step.prompt)
    assert sent["messages"][-1]["content"] == ASK.messages[-1].content and sent["tools"]
    assert step.text == 'One moment.\nweather {"city": "Bonn"}'
    assert step.prompt_tokens == 9
