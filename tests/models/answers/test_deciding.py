"""Whether an answer calls tools is decided before it is written, by what the model would write first, and then held."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Call, Choice, Message, Output, Sampling, Tool
from callsmith.formats.prompt.tool_prompt import ToolPrompt
from callsmith.grammar.nodes import Grammar
from callsmith.models.answers.deciding import WITHOUT_TOOLS
from callsmith.models.tool_prompts import tool_prompt_named
from tests.models.answers.deciding_engine import (
    DECIDING,
    FIND,
    PARIS,
    SEND,
    WEATHER,
    WRITING,
    after,
    answer,
    asking,
    calls_of,
    model,
    next_of,
    pairs,
    rest_of,
    started,
    stopped,
    text_of,
)

NAMES = ("json-array", "python-calls")
EACH = pytest.mark.parametrize("name", NAMES)
ASK = asking("Weather in Paris?", WEATHER)
LIKELY, UNLIKELY = {"```": 0.9, "The": 0.1}, {"```": 0.1, "The": 0.9}
MORE = {"json-array": {",": 0.9, "]": 0.1}, "python-calls": {"send": 0.9, "```": 0.1}}
DONE = {"json-array": {",": 0.1, "]": 0.9}, "python-calls": {"send": 0.1, "```": 0.9}}


def odds(chance: float) -> float:
    return math.log(chance / (1 - chance))


def prompt_of(name: str) -> ToolPrompt:
    return tool_prompt_named(name)


# -- the first calls


@EACH
async def test_a_score_above_the_threshold_makes_calls_required(name: str):
    local, engine = model([LIKELY], rest_of(PARIS, name=name), name=name)
    events = await answer(local, ASK)
    assert pairs(events) == [("get_weather", {"city": "Paris"})] and not text_of(events)
    assert stopped(events).reason == "calls"
    [decision], [generated] = engine.decided, engine.written
    assert decision.grammar is None and decision.prompt.text + prompt_of(name).opening == generated.prompt.text
    assert generated.grammar is not None and not generated.grammar.triggers


@EACH
async def test_a_score_below_the_threshold_means_words_and_a_prompt_without_a_trace_of_calls(name: str):
    local, engine = model([UNLIKELY], "It is sunny.", name=name)
    events = await answer(local, ASK)
    assert text_of(events) == "It is sunny." and not calls_of(events) and stopped(events).reason == "stop"
    [generated] = engine.written
    assert generated.grammar is None and "```" not in generated.prompt.text and "arguments" not in generated.prompt.text


@pytest.mark.parametrize(
    ("threshold", "calls"), [(odds(0.7) - 0.01, True), (odds(0.7) + 0.01, False), (-50.0, True), (50.0, False)]
)
async def test_the_threshold_of_the_tool_prompt_is_what_counts(threshold: float, calls: bool):
    local, _ = model([{"```": 0.7, "No": 0.3}], rest_of(PARIS) if calls else "No.", threshold=threshold)
    assert bool(calls_of(await answer(local, ASK))) == calls


async def test_who_says_not_to_use_tools_gets_words_however_much_the_model_wants_to_call():
    sure = {"```": 1.0}
    local, _ = model([sure, sure], "I cannot know.", rest_of(PARIS))
    refused = asking("Weather in Paris? Don't use any tools.", WEATHER)
    assert not calls_of(await answer(local, refused))
    more = (Message.assistant("I cannot know."), Message.user("Then look up Paris."))
    later = replace(refused, messages=(*refused.messages, *more))
    assert calls_of(await answer(local, later))


@pytest.mark.parametrize(("chance", "is_told"), [(0.8, True), (0.5, False), (0.1, False)])
async def test_who_wants_no_tools_is_told_that_it_takes_one_where_it_does(chance: float, is_told: bool):
    local, engine = model([{"```": chance, "The": 1 - chance}], "I cannot know.", threshold=0.0)
    await answer(local, asking("Weather in Paris? Don't use any tools.", WEATHER))
    [generated] = engine.written
    assert (WITHOUT_TOOLS in generated.prompt.text) == is_told


@pytest.mark.parametrize("bias", [-3.0, 3.0])
async def test_a_call_bias_shifts_the_threshold_that_of_the_request_before_that_of_the_model(bias: float):
    wanted = rest_of(PARIS) if bias > 0 else "No."
    for of_request, of_model in ((bias, 0.0), (None, bias), (bias, -bias)):
        local, _ = model([{"```": 0.5, "No": 0.5}], wanted, threshold=0.0, call_bias=of_model)
        events = await answer(local, replace(ASK, call_bias=of_request))
        assert bool(calls_of(events)) == (bias > 0)
        assert stopped(events).report.decision.threshold == pytest.approx(-bias)


@pytest.mark.parametrize(
    ("chances", "score"),
    [
        ({"`": 0.2, "``": 0.2, "```": 0.2, "```json\n[{": 0.2, "No": 0.2}, odds(0.8)),
        ({"```python": 0.9, "No": 0.1}, None),
        ({"No": 1.0}, None),
    ],
)
async def test_every_beginning_of_the_opening_counts_and_nothing_else(chances: Mapping[str, float], score: float | None):
    local, _ = model([chances], rest_of(PARIS) if score else "No.")
    decision = stopped(await answer(local, ASK)).report.decision
    assert decision.calls == (score is not None)
    assert decision.score == pytest.approx(score) if score else decision.score < -10


@pytest.mark.parametrize(("chances", "text"), [(LIKELY, rest_of(PARIS)), (UNLIKELY, "No.")])
async def test_the_decision_is_told_at_the_start_at_the_end_and_in_the_step(chances: Mapping[str, float], text: str):
    local, _ = model([chances], text)
    steps: list[ModelStep] = []
    events = await answer(local, replace(ASK, explain=steps.append))
    decision = started(events).decision
    assert decision is not None and decision.calls == (chances is LIKELY)
    assert decision.score == pytest.approx(odds(chances["```"])) and decision.threshold == 0.0
    assert stopped(events).report.decision == decision
    assert [step.decision for step in steps] == [decision]


async def test_words_cost_what_deciding_and_writing_them_cost():
    local, _ = model([UNLIKELY], "No.")
    events = await answer(local, ASK)
    assert stopped(events).usage == DECIDING + WRITING
    assert started(events).usage.prompt == DECIDING.prompt + WRITING.prompt


# -- what is not decided


@pytest.mark.parametrize(
    "fields",
    [{"choice": Choice("required")}, {"choice": Choice.only("get_weather")}, {"policy": "required_always"}],
    ids=["required", "named", "policy"],
)
async def test_a_call_that_is_asked_for_is_not_decided(fields: dict[str, Any]):
    local, engine = model([], rest_of(PARIS))
    events = await answer(local, replace(ASK, **fields))
    assert pairs(events) == [("get_weather", {"city": "Paris"})] and not engine.decided
    assert stopped(events).report.decision is None and started(events).decision is None


@pytest.mark.parametrize(
    "fields",
    [{"choice": Choice("none")}, {"tools": ()}, {"messages": (*ASK.messages, Message.assistant("It")), "prefill": True}],
    ids=["none", "no tools", "prefilled"],
)
async def test_words_that_are_asked_for_are_not_decided(fields: dict[str, Any]):
    local, engine = model([], "is sunny.")
    events = await answer(local, replace(ASK, **fields))
    assert text_of(events) == "is sunny." and not engine.decided and stopped(events).report.decision is None


@pytest.mark.parametrize(
    "options",
    [{"logprobs": False}, {"threshold": None}, {"thinks": True}],
    ids=["no log probabilities", "no threshold", "a model that reasons"],
)
async def test_where_nothing_can_be_decided_the_model_chooses(options: dict[str, Any]):
    local, engine = model([], "```json\n[" + rest_of(PARIS), **options)
    events = await answer(local, ASK)
    assert pairs(events) == [("get_weather", {"city": "Paris"})] and not engine.decided
    assert engine.written[0].grammar is None and stopped(events).report.decision is None


async def test_a_structured_output_is_written_where_nothing_is_called():
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    local, engine = model([UNLIKELY], '{"name": "x"}')
    events = await answer(local, replace(ASK, output=Output(schema)))
    assert text_of(events) == '{"name": "x"}' and engine.written[0].grammar is not None


async def test_the_log_probabilities_of_the_request_are_not_those_of_the_decision():
    local, engine = model([UNLIKELY], "No.")
    await answer(local, replace(ASK, sampling=Sampling(logprobs=2, max_tokens=50)))
    assert engine.written[0].sampling.logprobs == 2 and engine.written[0].sampling.max_tokens == 50


async def test_a_choice_among_some_tools_stays_one_among_these():
    local, engine = model([LIKELY], rest_of(PARIS))
    await answer(local, replace(ASK, tools=(WEATHER, FIND), choice=Choice("auto", ("get_weather",))))
    assert "find_contact" not in engine.decided[0].prompt.text + engine.written[0].prompt.text


async def test_a_schema_that_no_grammar_can_hold_leaves_the_calls_of_its_tool_free_and_is_told():
    seats = {"type": "integer", "enum": ["1"]}
    book = Tool("look_at", "", {"type": "object", "properties": {"seats": seats}, "required": ["seats"]})
    local, engine = model([LIKELY], rest_of(PARIS))
    events = await answer(local, replace(ASK, tools=(WEATHER, book)))
    assert pairs(events) == [("get_weather", {"city": "Paris"})]
    grammar = engine.written[0].grammar
    assert isinstance(grammar, Grammar) and grammar.unenforced == (("#/properties/seats", "enum"),)
    assert "#/properties/seats" in stopped(events).report.notices[0]
    strict, _ = model([LIKELY], rest_of(PARIS))
    with pytest.raises(UnsupportedSchema):  # that its calls are constrained was asked for
        await answer(strict, replace(ASK, tools=(WEATHER, replace(book, strict=True))))


async def test_words_that_begin_like_a_call_are_taken_back():
    local, engine = model([UNLIKELY], '{"name": "sing", "arguments": {}}', "I cannot sing.")
    events = await answer(local, ASK)
    assert text_of(events) == "I cannot sing." and stopped(events).report.taken_back == ("invented_call",)
    assert "get weather" not in engine.written[1].prompt.text


# -- calls that stand on nothing


@pytest.mark.parametrize("chance", [0.6, 0.9999])
async def test_a_call_whose_values_stand_nowhere_is_taken_back_and_the_answer_comes_in_words(chance: float):
    made_up = Call("send_message", {"to": "john@doe.org", "text": "See you in 2031"})
    local, engine = model([{"```": chance, "No": 1 - chance}], rest_of(made_up), "To whom?")
    steps: list[ModelStep] = []
    events = await answer(local, asking("Write to somebody.", SEND, explain=steps.append))
    assert not calls_of(events) and text_of(events) == "To whom?" and stopped(events).reason == "stop"
    decision = stopped(events).report.decision
    assert stopped(events).report.taken_back == ("unfounded_call",)
    assert decision is not None and not decision.calls and decision.score < odds(chance)
    assert len(steps) == len(engine.written) == 2
    assert "```" not in engine.written[1].prompt.text and engine.written[1].grammar is None
    assert stopped(events).usage.prompt >= DECIDING.prompt + 2 * WRITING.prompt
    rest = engine.written[1].prompt.text.partition("Write to somebody.")[2]
    assert ("Ask" in rest) == (chance > 0.99), "one that is sure lacks something, and is told to ask for it"


async def test_a_call_that_takes_its_values_from_the_question_is_made():
    call = Call("send_message", {"to": "ann@lee.org", "text": "See you in 2031"})
    local, _ = model([LIKELY | {"```": 0.999}], rest_of(call))
    events = await answer(local, asking("Write to ann@lee.org: See you in 2031", SEND))
    assert pairs(events) == [("send_message", dict(call.arguments))] and not stopped(events).report.taken_back


async def test_what_speaks_against_a_call_is_taken_from_its_score():
    local, _ = model([{"```": 0.99999, "No": 0.00001}], rest_of(Call("get_weather", {"city": "Oslo"})))
    events = await answer(local, ASK)
    begun, ended = started(events).decision, stopped(events).report.decision
    assert begun is not None and ended is not None and begun.calls and ended.calls and ended.score < begun.score


# -- after results


@EACH
async def test_after_results_the_calls_that_were_made_begin_the_answer_again_without_the_results(name: str):
    local, engine = model([DONE[name]], "Sunny it is.", name=name)
    events = await answer(local, after(ASK, (PARIS, "22 and sunny")))
    assert text_of(events) == "Sunny it is." and not calls_of(events)
    [decision], [generated] = engine.decided, engine.written
    beginning = prompt_of(name).opening + next_of(PARIS, name)
    assert decision.prompt.text.rstrip("\n").endswith(beginning) and "22 and sunny" not in decision.prompt.text
    assert "22 and sunny" in generated.prompt.text and beginning not in generated.prompt.text


@EACH
async def test_the_next_call_is_asked_for_by_its_name_with_the_results_in_view(name: str):
    call = Call("find_contact", {"name": "Ann"}, "c1")
    request = after(asking("Find Ann and send her: hello", FIND, SEND), (call, "ann@lee.org"))
    planned = Call("send_message", {"to": "123", "text": "hello"})
    true = Call("send_message", {"to": "ann@lee.org", "text": "hello"})
    local, engine = model([MORE[name]], next_of(planned, name), rest_of(true, name=name), name=name)
    events = await answer(local, request)
    assert pairs(events) == [("send_message", dict(true.arguments))] and stopped(events).reason == "calls"
    naming, writing = engine.written
    assert "ann@lee.org" not in naming.prompt.text and naming.prompt.text.startswith(engine.decided[0].prompt.text.rstrip("\n"))
    assert "ann@lee.org" in writing.prompt.text and writing.prompt.text.endswith(prompt_of(name).opening)
    assert writing.prompt.text.startswith(engine.decided[0].prompt.text.rstrip("\n"))  # nothing of it is read again
    assert "send_message" in repr(writing.grammar) and "find_contact" not in repr(writing.grammar)
    assert stopped(events).report.decision.calls


@EACH
async def test_a_call_that_would_only_be_repeated_ends_the_turn(name: str):
    local, engine = model([MORE[name]], next_of(PARIS, name), "Sunny it is.", name=name)
    events = await answer(local, after(ASK, (PARIS, "sunny")))
    assert not calls_of(events) and text_of(events) == "Sunny it is."
    assert not stopped(events).report.decision.calls and len(engine.written) == 2


async def test_the_same_tool_with_other_values_is_no_repetition():
    rome = Call("get_weather", {"city": "Rome"})
    local, _ = model([MORE["json-array"]], next_of(rome), rest_of(rome))
    events = await answer(local, after(asking("Weather in Paris and Rome?", WEATHER), (PARIS, "sunny")))
    assert pairs(events) == [("get_weather", {"city": "Rome"})]


async def test_a_call_that_was_denied_is_not_tried_again():
    local, engine = model([DONE["json-array"]], "You did not want it.")
    events = await answer(local, after(ASK, (PARIS, "denied: the user said no")))
    assert not calls_of(events) and engine.decided[0].prompt.text.endswith(next_of(PARIS))
    local, _ = model([MORE["json-array"]], next_of(PARIS), "You did not want it.")
    assert not calls_of(await answer(local, after(ASK, (PARIS, "denied: the user said no"))))


async def test_a_call_that_failed_may_be_tried_again():
    local, engine = model([LIKELY], rest_of(PARIS))
    events = await answer(local, after(ASK, (PARIS, "unavailable: try again")))
    assert pairs(events) == [("get_weather", {"city": "Paris"})]
    assert "unavailable: try again" in engine.decided[0].prompt.text


async def test_a_model_that_goes_on_calling_is_made_to_answer():
    answered = [(Call("get_weather", {"city": f"Town {number}"}, f"c{number}"), "sunny") for number in range(50)]
    local, engine = model([MORE["json-array"]], "Enough.")
    events = await answer(local, after(ASK, *answered))
    assert text_of(events) == "Enough." and len(engine.written) == 1


async def test_a_new_question_is_decided_afresh():
    local, engine = model([LIKELY], rest_of(Call("get_weather", {"city": "Rome"})))
    first = after(ASK, (PARIS, "sunny"))
    later = replace(first, messages=(*first.messages, Message.assistant("Sunny."), Message.user("And in Rome?")))
    assert pairs(await answer(local, later)) == [("get_weather", {"city": "Rome"})]
    assert engine.decided[0].prompt.text.endswith("assistant\n")


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_with_side_effects_waits_for_what_is_read_before_it_and_comes_with_true_values(name: str):
    """Of a client that runs its own tools, the history is all there is: another model answers the second request."""
    request = asking("Find Ann and send her: hello", FIND, SEND)
    call = Call("find_contact", {"name": "Ann"})
    guessed, true = (Call("send_message", {"to": to, "text": "hello"}) for to in ("Ann", "ann@lee.org"))
    local, _ = model([LIKELY], rest_of(call, guessed, name=name), name=name)
    events = await answer(local, request)
    assert pairs(events) == [("find_contact", {"name": "Ann"})] and stopped(events).reason == "calls"
    assert not stopped(events).report.taken_back
    [call] = calls_of(events)
    other, engine = model([MORE[name]], next_of(guessed, name), rest_of(true, name=name), name=name)
    second = await answer(other, after(request, (call, "ann@lee.org")))
    assert pairs(second) == [("send_message", dict(true.arguments))]
    assert not engine.texts and not engine.chances
    last, _ = model([DONE[name]], "Done.", name=name)
    assert text_of(await answer(last, after(request, (call, "ann@lee.org"), (replace(true, id="c2"), "sent")))) == "Done."
