"""Ask, call, run the tool, tell the result, answer: the whole way, over a model that is told what to write."""

import json

import pytest

from callsmith.core.events import CallReady, RunEvent, Text, ToolFinished, ToolStarted, TurnEnded
from callsmith.core.values import Call, Message, Request
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions

ASKED = Request((Message.user("How warm is it in Bonn and in Köln?"),))


async def weather(city: str) -> dict[str, object]:
    """The weather in a city."""
    return {"city": city, "celsius": {"Bonn": 21, "Köln": 19}[city]}


async def everything(engine: Scripted, format: str, request: Request = ASKED) -> list[RunEvent]:
    model = LocalModel(engine, format_named(format), Template(CHATML))
    return [event async for event in run(model, Functions(weather), request)]


@pytest.mark.parametrize("format", ["hermes", "generic-xml", "qwen3-coder", "pythonic", "mistral", "llama3-json"])
async def test_a_question_leads_to_calls_their_results_and_an_answer(format: str) -> None:
    calls = [Call("weather", {"city": "Bonn"}, "aaaaaaaa1"), Call("weather", {"city": "Köln"}, "aaaaaaaa2")]
    engine = Scripted([write(format_named(format), calls), "21 degrees in Bonn, 19 in Köln."], chunk=3)
    events = await everything(engine, format)

    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [{"city": "Bonn"}, {"city": "Köln"}]
    assert sum(isinstance(event, ToolStarted) for event in events) == 2
    results = [event.result for event in events if isinstance(event, ToolFinished)]
    assert [(result.ok, result.content["celsius"]) for result in results] == [(True, 21), (True, 19)]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "21 degrees in Bonn, 19 in Köln."
    ended = events[-1]
    assert isinstance(ended, TurnEnded)
    assert [message.role for message in ended.messages] == ["assistant", "tool", "tool", "assistant"]

    first, second = (request.prompt.text for request in engine.asked)
    assert "weather" in first
    assert ASKED.messages[0].content in first
    assert "celsius" not in first
    for result in results:
        assert json.dumps(result.content, ensure_ascii=False) in second
    assert second.index("Bonn") < second.rindex('"celsius": 19')


async def test_a_call_with_wrong_arguments_is_told_to_the_model_which_mends_it() -> None:
    hermes = format_named("hermes")
    wrong, right = Call("weather", {"town": "Bonn"}), Call("weather", {"city": "Bonn"})
    engine = Scripted([write(hermes, [wrong]), write(hermes, [right]), "21 degrees."], chunk=5)
    events = await everything(engine, "hermes")
    results = [event.result for event in events if isinstance(event, ToolFinished)]
    assert [result.ok for result in results] == [False, True]
    assert results[0].text in engine.asked[1].prompt.text
    assert "city" in results[0].text
    assert '"celsius": 21' in engine.asked[2].prompt.text
    ended = events[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.messages[-1].content == "21 degrees."


async def test_a_conversation_stored_between_call_and_result_is_taken_up_where_it_stopped() -> None:
    call = Call("weather", {"city": "Köln"}, "c1")
    stored = Request((*ASKED.messages, Message.assistant(calls=[call])))
    engine = Scripted(["19 degrees."])
    events = await everything(engine, "hermes", stored)
    assert [type(event) for event in events[:2]] == [ToolStarted, ToolFinished]
    assert '"celsius": 19' in engine.asked[0].prompt.text
