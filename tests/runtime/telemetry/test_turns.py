"""Telemetry: turns read off their events, and nothing kept that was said."""

import asyncio
import json
import time
from dataclasses import replace

import pytest

from callsmith.core.approval import Approved, Denied
from callsmith.core.closing import closing
from callsmith.core.errors import ModelError
from callsmith.core.events import (
    CallReady,
    CallStarted,
    Notice,
    Report,
    RunEvent,
    Stopped,
    Text,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.values import Call, Choice, Result, Tool, Usage
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.runtime.telemetry.trace import Trace
from callsmith.runtime.telemetry.turns import MADE_UP, UNKNOWN, TurnInfo, record_turn
from callsmith.tools.wrap import Confirmed, Timed
from tests.fakes import ASKED, FakeModel, Handlers, calls, hello, says
from tests.runtime.telemetry.traced import GREET, SECRET, WAVE, answered, broken, given, traced
from tests.virtual_time import virtual_time
from tests.work import count_calls


async def sleepy(call: Call) -> str:
    time.sleep(0.02)  # at least that long; more is no matter
    return "slept"


# Turns


@pytest.mark.req("R221")
async def test_a_turn_tells_what_was_offered_what_was_called_and_how_it_ended():
    began = time.time()
    turn = await traced(FakeModel(calls(Call("greet", {"to": SECRET}, "c1")), says("done")), Handlers(GREET, WAVE, greet=hello))
    (call,) = turn.calls
    assert (turn.model, turn.offered, turn.choice, turn.reason) == ("parrot", ("greet", "wave"), "auto", "stop")
    assert (turn.usage, turn.answers, turn.external) == (Usage(30, 8, 2, 1), 2, False)
    assert began <= turn.when <= time.time()
    assert turn.first is not None and 0 <= turn.first <= turn.seconds
    assert (call.tool, call.outcome, call.id, call.step, call.keys) == ("greet", "ok", "c1", 1, ("to",))
    assert call.arguments_size == len(json.dumps({"to": SECRET}))
    assert call.result_size == len(f"hello {SECRET}")
    assert call.seconds is not None and call.at + call.seconds <= turn.seconds


async def test_the_time_a_tool_takes_is_told():
    turn = await traced(FakeModel(calls(Call("nap", {}, "c1")), says("done")), Handlers(nap=sleepy))
    assert turn.calls[0].seconds is not None
    assert 0.02 <= turn.calls[0].seconds <= turn.seconds


async def test_the_hash_of_the_offer_changes_with_any_definition_and_with_nothing_else():
    same = [(await answered(says("hi"), GREET, WAVE)).offer for _ in range(2)]
    other = (await answered(says("hi"), replace(GREET, description="Say hello."), WAVE)).offer
    assert same[0] == same[1] != other
    assert (await answered(says("hi"))).offer == ""


async def test_only_what_the_choice_leaves_counts_as_offered():
    only = replace(ASKED, choice=Choice.only("greet"))
    turn = await traced(
        FakeModel(calls(Call("greet", {"to": "Ada"}, "c1")), says("hi")), Handlers(GREET, WAVE, greet=hello), only
    )
    assert (turn.offered, turn.choice) == (("greet",), "required")
    none = replace(ASKED, choice=Choice("none"))
    assert (await traced(FakeModel(says("hi")), Handlers(GREET, greet=hello), none)).offered == ()


@pytest.mark.req("R221")
@virtual_time
async def test_each_way_a_call_can_end_has_its_outcome():
    async def slow(call: Call) -> str:
        await asyncio.sleep(5)
        return ""

    tool_calls = [
        Call("greet", {"to": "Ada"}, "c1"), Call("greet", {}, "c2"), Call("greeet", {}, "c3"), Call("fall", {}, "c4"),
        Call("slow", {}, "c5"),
    ]  # fmt: skip
    toolset = Timed(Handlers(GREET, Tool("fall"), Tool("slow"), greet=hello, fall=broken, slow=slow), 0.05)
    turn = await traced(FakeModel(calls(*tool_calls), says("done")), toolset)
    assert [(call.outcome, call.code) for call in turn.calls] == [
        ("ok", ""),
        ("invalid", "bad_request"),
        ("unknown", "bad_request"),
        ("failed", "internal_error"),
        ("timeout", "timeout"),
    ]


async def test_calls_beyond_a_limit_are_refused_and_those_of_the_last_answer_ignored():
    again = calls(Call("greet", {"to": "Ada"}, "c1"))
    turn = await traced(FakeModel(again), Handlers(GREET, greet=hello), limits=Limits(iterations=1))
    assert [(call.step, call.outcome) for call in turn.calls] == [(1, "ok"), (2, "refused"), (3, "ignored")]
    assert (turn.reason, turn.notices, turn.noticed) == ("stop", 1, ())


async def test_repairs_retries_and_unreadable_calls_are_told():
    events = [
        CallStarted(0, "greet", "c1"), CallReady(0, Call("greet", {"to": "Ada"}, "c1"), ("missing-close",)),
        CallStarted(1, "wave"), Unreadable('{"x', "cut", 1), Unreadable("<tool", "cut"),
        Stopped("calls", Usage(1, 1), Report(retries=2)),
    ]  # fmt: skip
    turn = await answered(events, GREET, WAVE)
    assert (turn.retries, turn.unreadable) == (2, 2)
    assert [(call.tool, call.outcome, call.repairs) for call in turn.calls] == [
        ("greet", "passed_on", ("missing-close",)),
        ("wave", "unreadable", ()),
    ]


@pytest.mark.req("R221")
async def test_calls_that_go_back_to_whoever_asked_are_checked_here_for_nobody_else_will():
    tool_calls = [Call("greet", {"to": "Ada"}, "c1"), Call("greet", {"to": 5}, "c2"), Call("dance", {}, "c3")]
    turn = await answered(calls(*tool_calls), GREET)
    assert [call.outcome for call in turn.calls] == ["passed_on", "invalid", "unknown"]
    assert (turn.external, turn.reason) == (True, "calls")


async def test_a_schema_nobody_can_check_makes_no_call_invalid_and_no_answer_fail():
    odd = Tool("odd", "", {"type": "object", "properties": {"x": {"type": "strnig"}}})
    turn = await answered(calls(Call("odd", {"x": "y"}, "c1")), odd)
    assert turn.calls[0].outcome == "passed_on"


@pytest.mark.req("R221")
@pytest.mark.parametrize(
    ("word", "outcome"), [(Approved(), "ok"), (Denied(f"because {SECRET}"), "declined")], ids=["approved", "denied"]
)
async def test_a_call_that_waits_for_a_person_is_called_once_and_ends_in_the_turn_that_takes_it_up(word, outcome: str):
    send = replace(GREET, side_effects=True)
    toolset, trace = Confirmed(Handlers(send, greet=hello)), Trace()
    conversation = Conversation(FakeModel(calls(Call("greet", {"to": "Ada"}, "c1")), says("done")), toolset)
    turn_info = TurnInfo("parrot", await toolset.tools())
    async for _ in record_turn(conversation.stream("go"), trace, turn_info):
        pass
    async for _ in record_turn(conversation.stream_resume({"c1": word}), trace, turn_info):
        pass
    first, second = trace.turns()
    assert (first.reason, first.calls[0].outcome, first.calls[0].resumed) == ("confirmation", "waiting", False)
    assert (second.calls[0].outcome, second.calls[0].resumed, second.calls[0].step) == (outcome, True, 0)
    counts = trace.counters().tools["greet"]
    assert (counts.offered, counts.called, counts.outcomes) == (2, 1, {"waiting": 1, outcome: 1})


async def test_an_id_that_comes_again_is_another_call():
    again = calls(Call("greet", {"to": "Ada"}, "c1"))
    turn = await traced(FakeModel(again, again, says("done")), Handlers(GREET, greet=hello))
    assert [(call.id, call.step, call.outcome) for call in turn.calls] == [("c1", 1, "ok"), ("c1_2", 2, "ok")]


async def test_a_run_that_is_left_is_recorded_as_cancelled_and_its_source_closed():
    model, trace = FakeModel(calls(Call("greet", {"to": "Ada"}, "c1"))), Trace()
    events = record_turn(run(model, Handlers(GREET, greet=hello), ASKED), trace, TurnInfo("parrot", [GREET]))
    async with closing(events):
        async for event in events:
            if isinstance(event, CallReady):
                break
    (turn,) = trace.turns()
    assert (turn.reason, turn.calls[0].outcome, model.closed) == ("cancelled", "cancelled", 1)


async def test_a_failure_is_recorded_by_its_kind_alone_and_goes_on_to_whoever_asked():
    trace = Trace()
    with pytest.raises(ModelError):
        async for _ in record_turn(given(Text("hm"), ModelError(SECRET)), trace, TurnInfo("parrot", external=True)):
            pass
    (turn,) = trace.turns()
    assert (turn.reason, turn.error) == ("error", "ModelError")
    assert SECRET not in repr(turn)


async def test_a_turn_is_recorded_before_its_last_event_is_seen_and_only_once():
    trace = Trace()
    events = record_turn(given(Text("hi"), TurnEnded((), "stop")), trace, TurnInfo("parrot"))
    async with closing(events):
        async for event in events:
            if isinstance(event, TurnEnded):
                assert len(trace.turns()) == 1
                break
    assert [turn.reason for turn in trace.turns()] == ["stop"]


async def test_watching_changes_no_event():
    expected: list[RunEvent] = [
        Text("hi"), CallStarted(0, "x"), ToolStarted(Call("x", {}, "c9")), ToolFinished(Result("c9", "x", {"a": 1})),
        ToolFinished(Result("c8", "y", object())), Notice("n"), Stopped("stop"), TurnEnded((), "stop"),
    ]  # fmt: skip
    assert [event async for event in record_turn(given(*expected), Trace(), TurnInfo("parrot"))] == expected


async def test_of_a_great_many_tools_only_some_names_are_kept():
    turn = await answered(calls(Call("tool999", {}, "c1")), *(Tool(f"tool{number}") for number in range(1000)))
    assert len(turn.offered) == 128
    assert turn.calls[0].outcome == "passed_on"


def test_watching_a_turn_is_little_work_beside_the_models():
    call, words = Call("greet", {"to": "Ada"}, "c1"), [Text("word ")] * 100
    expected: list[RunEvent] = [
        CallStarted(0, "greet", "c1"), CallReady(0, call), Stopped("calls"), ToolStarted(call),
        ToolFinished(Result("c1", "greet", "hello Ada")), *words, Stopped("stop"), TurnEnded((), "stop"),
    ]  # fmt: skip
    trace, turn_info = Trace(), TurnInfo("parrot", [GREET, WAVE])

    async def turn(watch: bool) -> None:
        events = given(*expected)
        async for _ in record_turn(events, trace, turn_info) if watch else events:
            pass

    seen, unseen = (count_calls(lambda watch=watch: asyncio.run(turn(watch))) for watch in (True, False))
    assert seen - unseen < 10 * len(expected)


# Redaction


@pytest.mark.req("R221")
async def test_nothing_that_was_said_is_kept():
    tool_calls = [
        Call("greet", {"to": SECRET, SECRET: 1}, "c1"), Call(SECRET, {}, "c2"), Call("fall", {}, SECRET * 9),
        Call("greet", {"to": [SECRET]}, "c4"),
    ]  # fmt: skip
    scripted = FakeModel([Text(SECRET), *calls(*tool_calls)], [Unreadable(SECRET, SECRET), *says(SECRET)])
    turn = await traced(scripted, Handlers(GREET, Tool("fall"), greet=hello, fall=broken), limits=Limits(result_characters=5))
    assert [call.tool for call in turn.calls] == ["greet", UNKNOWN, "fall", "greet"]
    assert turn.calls[0].keys == ("to", MADE_UP)
    assert turn.notices > 0
    assert SECRET not in repr(turn)


async def test_a_code_that_is_a_sentence_is_not_kept():
    finished = ToolFinished(Result("c1", "greet", "", ok=False, code=f"the reason is {SECRET}"))
    trace = Trace()
    async for _ in record_turn(given(finished, TurnEnded((), "stop")), trace, TurnInfo("parrot", [GREET])):
        pass
    assert (trace.turns()[0].calls[0].outcome, trace.turns()[0].calls[0].code) == ("failed", "")


async def test_arguments_and_results_are_kept_where_that_is_asked_for():
    scripted = FakeModel(calls(Call("greet", {"to": "Ada"}, "c1")), says("done"))
    turn = await traced(scripted, Handlers(GREET, greet=hello), show=True, limits=Limits(result_characters=5))
    assert (turn.calls[0].arguments, turn.calls[0].result) == ('{"to": "Ada"}', "hello Ada")
    assert len(turn.noticed) == 1
