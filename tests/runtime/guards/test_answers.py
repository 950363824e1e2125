"""The answer after tool results: what is of no use is taken back, and asked for again."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Report, Stopped, Text, Thought
from callsmith.core.failures import make_failure
from callsmith.core.values import Call, Choice, Message, Output, Request, Usage
from callsmith.runtime.guards.answers import ANSWER, LINE
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.guards.loop_detectors import RecentCalls
from tests.fakes import FakeModel
from tests.runtime.guards.histories import CLOCK, JSON, QUESTION, SAYS, WEATHER, bonn, calls, history


async def answered(
    *answers: Sequence[ModelEvent], result: Any = JSON, guards: Sequence[str] = ("answers",), **request: Any
) -> tuple[list[ModelEvent], FakeModel]:
    model = FakeModel(*answers)
    question = Request(history((bonn(), result)), (WEATHER, CLOCK), **request)
    return [event async for event in guard_model(model, guards).stream(question)], model


def pieces(text: str, size: int = 3) -> list[ModelEvent]:
    return [*(Text(text[start : start + size]) for start in range(0, len(text), size)), Stopped("stop", Usage(5, 1))]


def making(call: Call) -> list[ModelEvent]:
    return [CallStarted(0, call.name), CallArguments(0, call.text), CallReady(0, call), Stopped("calls", Usage(5, 1))]


def after(*taken_back: str) -> list[ModelEvent]:
    """The good answer, when these were taken back before it."""
    return [*SAYS[:-1], Stopped("stop", Usage(10 + 5 * len(taken_back), 2 + len(taken_back)), Report(taken_back=taken_back))]


@pytest.mark.req("R102")
@pytest.mark.parametrize(
    ("copy", "name"),
    [
        (JSON, "copy"),
        ('{"name": "weather", "arguments": {"city": "Bonn"}}\n', "copy"),
        ('{"celsius":14,\n "sky":"mild"}', "copy"),
        (f"```json\n{JSON}\n```", "copy"),
        (f"```\n{JSON}```", "copy"),
        (LINE, "copy"),
        ("Now answer the user in plain words, without calling a tool.", "copy"),
        ("", "empty"),
        ("\n", "empty"),
    ],
)
async def test_an_answer_that_says_nothing_is_asked_for_again_behind_a_line(copy: str, name: str):
    events, model = await answered(pieces(copy), SAYS)
    assert events == after(name)
    assert model.asked[1].messages[-1].content == f"{JSON}\n{LINE}"
    assert (model.asked[1].choice, model.asked[1].tools) == (Choice(), model.asked[0].tools)
    assert model.closed == 2


@pytest.mark.req("R102")
async def test_a_call_that_has_its_result_is_never_seen_nor_run_again():
    again = Call("weather", {"city": " bonn "}, "new")
    events, model = await answered(making(again), SAYS)
    assert events == after("repeated_call")
    assert len(model.asked) == 2


async def test_a_new_call_is_passed_on_as_it_comes():
    clock = making(calls("clock", zone="CET"))
    assert (await answered(clock))[0] == clock
    rome = making(bonn("Rome"))
    question = Message.user("Is it warmer in Bonn or in Rome?")
    model = FakeModel(rome)
    request = Request(history((bonn(), "mild"), question=question), (WEATHER,))
    assert [event async for event in guard_model(model, ["answers"]).stream(request)] == rome


async def test_of_several_calls_only_the_repeated_ones_are_left_out():
    old, new = bonn(), calls("clock")
    both = [CallStarted(0, "weather"), CallReady(0, old), CallStarted(1, "clock"), CallReady(1, new), Stopped("calls")]
    events, _ = await answered(both)
    assert events == [*both[2:4], Stopped("calls", report=Report(taken_back=("repeated_call",)))]


async def test_text_before_a_repeated_call_stays_and_ends_the_answer():
    events, model = await answered([Text("It is mild."), *making(bonn())])
    assert events[0] == Text("It is mild.")
    assert events[1:] == [Stopped("stop", Usage(5, 1), Report(taken_back=("repeated_call",)))]
    assert len(model.asked) == 1


@pytest.mark.req("R102")
async def test_the_last_attempt_has_the_results_in_the_question_and_no_tools():
    events, model = await answered(making(bonn()), making(bonn()), SAYS)
    assert events == after("repeated_call", "call")
    last = model.asked[2]
    assert last.messages == (Message.user(f"{QUESTION.content}\n\n(system: tool results — weather -> {JSON}. {ANSWER})"),)
    assert last.choice == Choice("none")
    events, model = await answered(pieces(""))
    assert [type(event) for event in events] == [Stopped]
    assert len(model.asked) == 3


async def test_an_answer_that_begins_like_the_result_or_follows_none_is_left_as_it_is():
    longer = pieces(f"{JSON} means mild.")
    assert (await answered(longer))[0] == longer
    plain = pieces("14 degrees")
    assert (await answered(plain, result="14 degrees"))[0] == plain
    model = FakeModel(pieces(JSON))
    assert [event async for event in guard_model(model, ["answers"]).stream(Request((QUESTION,)))] == pieces(JSON)


async def test_json_is_an_answer_where_it_is_wanted():
    assert (await answered(pieces(JSON), output=Output.json_object()))[0] == pieces(JSON)


async def test_a_call_that_is_required_is_not_judged():
    again = making(bonn())
    assert (await answered(again, choice=Choice.only("weather")))[0] == again


async def test_an_ordinary_answer_is_not_withheld():
    async def slowly(request: Request) -> AsyncIterator[ModelEvent]:
        yield Thought("hm")
        yield Text("It")
        raise AssertionError("nothing more was asked for")

    model = FakeModel()
    model.stream = slowly
    events = guard_model(model, ["answers"]).stream(Request(history((bonn(), JSON)), (WEATHER,)))
    assert [await anext(events), await anext(events)] == [Thought("hm"), Text("It")]
    await events.aclose()


# which calls are new


def is_new(call: Call, *rounds: tuple[Call, Any], question: str) -> bool:
    return RecentCalls.of(Request(history(*rounds, question=Message.user(question)))).is_new(call)


def test_a_result_that_is_fed_back_makes_no_new_call_and_what_the_user_said_does():
    first = (calls("convert", amount=50, to="EUR"), "45.0")
    assert not is_new(calls("convert", amount=45.0, to="EUR"), first, question="How much are 50 USD?")
    assert is_new(calls("convert", amount=45, to="EUR"), first, question="How much are 50 USD, and 45 USD?")
    assert is_new(calls("convert", amount=50, to="JPY"), first, question="How much are 50 USD in EUR and JPY?")


async def test_an_argument_that_the_tool_does_not_have_makes_no_new_call():
    events, _ = await answered(making(calls("weather", city="Bonn", celsius=14)), SAYS)
    assert events == after("repeated_call")


def test_an_invented_name_makes_no_new_call_and_one_of_a_result_does():
    first = (calls("read", path="todo.txt"), "Water the orchids; see plants.txt")
    assert not is_new(calls("read", path="orchids.txt"), first, question="What does todo.txt say?")
    assert is_new(calls("read", path="plants.txt"), first, question="What does todo.txt say?")
    assert not is_new(calls("read", path="water the orchids;  see plants.txt"), first, question="What does todo.txt say?")
    assert is_new(calls("list", path="orchids"), first, question="What does todo.txt say?")


def test_after_a_failure_every_other_call_is_new():
    first = (calls("read", path="todo"), "not_found: no such file")
    assert is_new(calls("read", path="todo.md"), first, question="What is to do?")
    assert not is_new(calls("read", path="todo"), first, question="What is to do?")
    assert not is_new(calls("read", path="not_found: no such file"), first, question="What is to do?")


@pytest.mark.parametrize("wrong", ["It is 140,000 degrees warm. So much for that.", "14000 degrees"])
async def test_a_number_that_was_never_seen_is_taken_back(wrong: str):
    events, model = await answered(pieces(""), pieces(wrong), SAYS)
    assert events[:-1] == SAYS[:-1]
    assert isinstance(events[-1], Stopped) and events[-1].report.taken_back == ("empty", "unknown_number")
    assert len(model.asked) == 3


async def test_behind_the_line_the_first_sentence_is_withheld_and_its_short_and_seen_numbers_are_fine():
    events, _ = await answered(pieces(""), pieces("In 2 days: 14 degrees, it says. Then 99999 more."))
    assert (
        "".join(event.text for event in events if isinstance(event, Text)) == "In 2 days: 14 degrees, it says. Then 99999 more."
    )


async def test_a_number_that_was_misread_is_shown_in_groups():
    result = '{"people": 97310, "area": 12.50001, "code": "A-97310"}'
    _, model = await answered(pieces(""), pieces("It has 973,100 people."), SAYS, result=result)
    assert '{"people": 97,310, "area": 12.50001, "code": "A-97310"}' in model.asked[2].messages[-1].content


async def test_a_refusal_after_a_result_is_taken_back_and_one_after_a_failure_is_not():
    refusal = "I'm sorry, but I can't assist with that."
    events, _ = await answered(pieces(""), pieces(refusal), SAYS)
    assert events == after("empty", "refusal")
    events, _ = await answered(pieces(""), pieces(refusal), result=make_failure(bonn(), "failed", "no such city").text)
    assert "".join(event.text for event in events if isinstance(event, Text)) == refusal
