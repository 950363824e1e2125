"""Telemetry: turns read off their events, kept, counted, written down, made into spans, and reported on."""

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from callsmith.core.approval import Approved, Denied
from callsmith.core.closing import closing
from callsmith.core.errors import ModelError, Unavailable
from callsmith.core.events import (
    CallReady,
    CallStarted,
    ModelEvent,
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
from callsmith.core.values import Call, Choice, Request, Result, Tool, Usage
from callsmith.runtime.conversation import Conversation
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.runtime.selection import Confusion, report
from callsmith.runtime.spans import Spans
from callsmith.runtime.telemetry import MADE_UP, UNKNOWN, Asked, CallRecord, Turn, watched
from callsmith.runtime.trace import OTHERS, Counters, Several, Trace
from callsmith.runtime.trace_file import TraceFile, read_trace
from callsmith.tools.functions import Functions
from callsmith.tools.wrap import Confirmed, Timed
from tests.runtime.fakes import ASKED, Handlers, Told, calls, hello, says

SECRET = "hunter2-Ada-Lovelace"
GREET = Tool("greet", "Greet somebody.", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]})
WAVE = Tool("wave")


async def broken(call: Call) -> str:
    raise RuntimeError(f"no such thing as {SECRET}")


async def sleepy(call: Call) -> str:
    time.sleep(0.02)
    return "slept"


async def traced(model: Told, toolset: Any, request: Request = ASKED, *, show: bool = False, **options: Any) -> Turn:
    """What is recorded of a run."""
    trace = Trace()
    asked = Asked("parrot", await toolset.tools(), request.choice)
    async for _ in watched(run(model, toolset, request, **options), trace, asked, show_arguments=show):
        pass
    (turn,) = trace.turns()
    return turn


async def answered(events: Sequence[ModelEvent], *tools: Tool) -> Turn:
    """What is recorded of an answer whose calls go back to whoever asked."""
    trace = Trace()
    async for _ in watched(given(*events), trace, Asked("parrot", tools, external=True)):
        pass
    (turn,) = trace.turns()
    return turn


async def given(*events: Any) -> AsyncIterator[Any]:
    for event in events:
        if isinstance(event, BaseException):
            raise event
        yield event


# Turns


@pytest.mark.req("R221")
async def test_a_turn_tells_what_was_offered_what_was_called_and_how_it_ended():
    began = time.time()
    turn = await traced(Told(calls(Call("greet", {"to": SECRET}, "c1")), says("done")), Handlers(GREET, WAVE, greet=hello))
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
    turn = await traced(Told(calls(Call("nap", {}, "c1")), says("done")), Handlers(nap=sleepy))
    assert turn.calls[0].seconds is not None
    assert 0.02 <= turn.calls[0].seconds <= turn.seconds


async def test_the_hash_of_the_offer_changes_with_any_definition_and_with_nothing_else():
    same = [(await answered(says("hi"), GREET, WAVE)).offer for _ in range(2)]
    other = (await answered(says("hi"), replace(GREET, description="Say hello."), WAVE)).offer
    assert same[0] == same[1] != other
    assert (await answered(says("hi"))).offer == ""


async def test_only_what_the_choice_leaves_counts_as_offered():
    only = replace(ASKED, choice=Choice.only("greet"))
    turn = await traced(Told(calls(Call("greet", {"to": "Ada"}, "c1")), says("hi")), Handlers(GREET, WAVE, greet=hello), only)
    assert (turn.offered, turn.choice) == (("greet",), "required")
    none = replace(ASKED, choice=Choice("none"))
    assert (await traced(Told(says("hi")), Handlers(GREET, greet=hello), none)).offered == ()


@pytest.mark.req("R221")
async def test_each_way_a_call_can_end_has_its_outcome():
    async def slow(call: Call) -> str:
        import asyncio

        await asyncio.sleep(5)
        return ""

    made = [
        Call("greet", {"to": "Ada"}, "c1"), Call("greet", {}, "c2"), Call("greeet", {}, "c3"), Call("fall", {}, "c4"),
        Call("slow", {}, "c5"),
    ]  # fmt: skip
    toolset = Timed(Handlers(GREET, Tool("fall"), Tool("slow"), greet=hello, fall=broken, slow=slow), 0.05)
    turn = await traced(Told(calls(*made), says("done")), toolset)
    assert [(call.outcome, call.code) for call in turn.calls] == [
        ("ok", ""),
        ("invalid", "bad_request"),
        ("unknown", "bad_request"),
        ("failed", "internal_error"),
        ("timeout", "timeout"),
    ]


async def test_calls_beyond_a_limit_are_refused_and_those_of_the_last_answer_ignored():
    again = calls(Call("greet", {"to": "Ada"}, "c1"))
    turn = await traced(Told(again), Handlers(GREET, greet=hello), limits=Limits(iterations=1))
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
    made = [Call("greet", {"to": "Ada"}, "c1"), Call("greet", {"to": 5}, "c2"), Call("dance", {}, "c3")]
    turn = await answered(calls(*made), GREET)
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
    conversation = Conversation(Told(calls(Call("greet", {"to": "Ada"}, "c1")), says("done")), toolset)
    asked = Asked("parrot", await toolset.tools())
    async for _ in watched(conversation.stream("go"), trace, asked):
        pass
    async for _ in watched(conversation.stream_resume({"c1": word}), trace, asked):
        pass
    first, second = trace.turns()
    assert (first.reason, first.calls[0].outcome, first.calls[0].resumed) == ("confirmation", "waiting", False)
    assert (second.calls[0].outcome, second.calls[0].resumed, second.calls[0].step) == (outcome, True, 0)
    counts = trace.counters().tools["greet"]
    assert (counts.offered, counts.called, counts.outcomes) == (2, 1, {"waiting": 1, outcome: 1})


async def test_an_id_that_comes_again_is_another_call():
    again = calls(Call("greet", {"to": "Ada"}, "c1"))
    turn = await traced(Told(again, again, says("done")), Handlers(GREET, greet=hello))
    assert [(call.id, call.step, call.outcome) for call in turn.calls] == [("c1", 1, "ok"), ("c1", 2, "ok")]


async def test_a_run_that_is_left_is_recorded_as_cancelled_and_its_source_closed():
    model, trace = Told(calls(Call("greet", {"to": "Ada"}, "c1"))), Trace()
    events = watched(run(model, Handlers(GREET, greet=hello), ASKED), trace, Asked("parrot", [GREET]))
    async with closing(events):
        async for event in events:
            if isinstance(event, CallReady):
                break
    (turn,) = trace.turns()
    assert (turn.reason, turn.calls[0].outcome, model.closed) == ("cancelled", "cancelled", 1)


async def test_a_failure_is_recorded_by_its_kind_alone_and_goes_on_to_whoever_asked():
    trace = Trace()
    with pytest.raises(ModelError):
        async for _ in watched(given(Text("hm"), ModelError(SECRET)), trace, Asked("parrot", external=True)):
            pass
    (turn,) = trace.turns()
    assert (turn.reason, turn.error) == ("error", "ModelError")
    assert SECRET not in repr(turn)


async def test_a_turn_is_recorded_before_its_last_event_is_seen_and_only_once():
    trace = Trace()
    events = watched(given(Text("hi"), TurnEnded((), "stop")), trace, Asked("parrot"))
    async with closing(events):
        async for event in events:
            if isinstance(event, TurnEnded):
                assert len(trace.turns()) == 1
                break
    assert [turn.reason for turn in trace.turns()] == ["stop"]


async def test_watching_changes_no_event():
    happening: list[RunEvent] = [
        Text("hi"), CallStarted(0, "x"), ToolStarted(Call("x", {}, "c9")), ToolFinished(Result("c9", "x", {"a": 1})),
        ToolFinished(Result("c8", "y", object())), Notice("n"), Stopped("stop"), TurnEnded((), "stop"),
    ]  # fmt: skip
    assert [event async for event in watched(given(*happening), Trace(), Asked("parrot"))] == happening


# Redaction


@pytest.mark.req("R221")
async def test_nothing_that_was_said_is_kept():
    made = [
        Call("greet", {"to": SECRET, SECRET: 1}, "c1"), Call(SECRET, {}, "c2"), Call("fall", {}, SECRET * 9),
        Call("greet", {"to": [SECRET]}, "c4"),
    ]  # fmt: skip
    told = Told([Text(SECRET), *calls(*made)], [Unreadable(SECRET, SECRET), *says(SECRET)])
    turn = await traced(told, Handlers(GREET, Tool("fall"), greet=hello, fall=broken), limits=Limits(result_characters=5))
    assert [call.tool for call in turn.calls] == ["greet", UNKNOWN, "fall", "greet"]
    assert turn.calls[0].keys == ("to", MADE_UP)
    assert turn.notices > 0
    assert SECRET not in repr(turn)


async def test_a_code_that_is_a_sentence_is_not_kept():
    finished = ToolFinished(Result("c1", "greet", "", ok=False, code=f"the reason is {SECRET}"))
    trace = Trace()
    async for _ in watched(given(finished, TurnEnded((), "stop")), trace, Asked("parrot", [GREET])):
        pass
    assert (trace.turns()[0].calls[0].outcome, trace.turns()[0].calls[0].code) == ("failed", "")


async def test_arguments_and_results_are_kept_where_that_is_asked_for():
    told = Told(calls(Call("greet", {"to": "Ada"}, "c1")), says("done"))
    turn = await traced(told, Handlers(GREET, greet=hello), show=True, limits=Limits(result_characters=5))
    assert (turn.calls[0].arguments, turn.calls[0].result) == ('{"to": "Ada"}', "hello Ada")
    assert len(turn.noticed) == 1


# The trace


def test_the_trace_keeps_the_latest_turns_and_counts_all():
    trace = Trace(3)
    for number in range(10):
        trace.add(Turn(float(number), "parrot", ("greet",)))
    assert [turn.when for turn in trace.turns()] == [7.0, 8.0, 9.0]
    assert trace.counters().tools["greet"].offered == 10


def test_the_trace_may_be_written_and_read_by_many_threads():
    trace = Trace(100)

    def add(name: str) -> None:
        for number in range(500):
            trace.add(Turn(0.0, "parrot", (f"{name}{number}",), calls=(CallRecord(f"{name}{number}", "ok"),)))
            if number % 50 == 0:
                trace.counters()

    threads = [Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counters = trace.counters()
    assert sum(counts.called for counts in counters.tools.values()) == 2000
    assert counters.models["parrot"].reasons["stop"] == 2000


def test_tools_of_any_number_of_names_do_not_fill_the_memory():
    counters = Counters()
    for number in range(3000):
        counters.add(Turn(0.0, "parrot", (f"tool{number}",)))
    assert len(counters.tools) <= 1001
    assert counters.tools[OTHERS].offered == 2000


async def test_of_a_great_many_tools_only_some_names_are_kept():
    turn = await answered(calls(Call("tool999", {}, "c1")), *(Tool(f"tool{number}") for number in range(1000)))
    assert len(turn.offered) == 128
    assert turn.calls[0].outcome == "passed_on"


def test_counters_tell_what_became_of_each_tool():
    made = (
        CallRecord("a", "ok", repairs=("x",), arguments_size=8, result_size=9, seconds=0.02), CallRecord("a", "invalid"),
        CallRecord("a", "failed", seconds=400.0), CallRecord("a", "timeout"), CallRecord("a", "declined", resumed=True),
        CallRecord("aa", "unknown", meant="a"), CallRecord(UNKNOWN, "unknown"),
    )  # fmt: skip
    counters = Counters()
    counters.add(Turn(0.0, "parrot", ("a", "b"), calls=made, usage=Usage(5, 6), first=0.1, seconds=0.2))
    a = counters.tools["a"]
    assert (a.offered, a.called, a.invalid, a.repaired, a.declined, a.failed, a.timeouts) == (1, 5, 2, 1, 1, 1, 1)
    assert (a.tokens, a.seconds.total, sum(a.seconds.counts), a.seconds.counts[-1]) == (5, 400.02, 2, 1)
    assert counters.tools[UNKNOWN].invalid == 1
    assert counters.models["parrot"].usage == Usage(5, 6)


def test_keeping_a_turn_costs_a_few_microseconds():
    trace, times = Trace(), 500
    turn = Turn(0.0, "parrot", ("greet", "wave"), calls=(CallRecord("greet", "ok", seconds=0.1), CallRecord("wave", "failed")))

    def spent() -> float:
        began = time.process_time()
        for _ in range(times):
            trace.add(turn)
        return (time.process_time() - began) / times

    assert min(spent() for _ in range(10)) < 20e-6


async def test_watching_a_turn_costs_next_to_nothing_beside_the_model():
    call, words = Call("greet", {"to": "Ada"}, "c1"), [Text("word ")] * 100
    happening: list[RunEvent] = [
        CallStarted(0, "greet", "c1"), CallReady(0, call), Stopped("calls"), ToolStarted(call),
        ToolFinished(Result("c1", "greet", "hello Ada")), *words, Stopped("stop"), TurnEnded((), "stop"),
    ]  # fmt: skip
    trace, asked, turns = Trace(), Asked("parrot", [GREET, WAVE]), 50

    async def spent(watch: bool) -> float:
        began = time.process_time()
        for _ in range(turns):
            events = given(*happening)
            async for _ in watched(events, trace, asked) if watch else events:
                pass
        return (time.process_time() - began) / turns

    costs = [await spent(True) - await spent(False) for _ in range(10)]
    assert min(costs) < 250e-6


# Files


@pytest.mark.req("R221")
async def test_what_is_written_to_a_file_is_read_back_the_same(tmp_path: Path):
    path, trace = tmp_path / "trace.jsonl", Trace()
    recorder = Several(trace, TraceFile(path), TraceFile(path))  # as two programs would
    toolset = Handlers(GREET, WAVE, greet=hello)
    for _ in range(2):
        told = Told(calls(Call("greet", {"to": SECRET}, "c1"), Call("greeet", {}, "c2")), says(SECRET))
        async for _ in watched(run(told, toolset, ASKED), recorder, Asked("parrot", await toolset.tools())):
            pass
    text = path.read_text("utf-8")
    assert SECRET not in text
    back = list(read_trace(path))
    assert len(back) == 4 and back[0] == back[1]
    for turn, kept in zip(back[::2], trace.turns(), strict=True):
        assert turn is not None
        times = {"when": turn.when, "first": turn.first, "seconds": turn.seconds}
        ran = [replace(call, at=other.at, seconds=other.seconds) for call, other in zip(kept.calls, turn.calls, strict=True)]
        assert turn == replace(kept, **times, calls=tuple(ran))
        assert turn.seconds == pytest.approx(kept.seconds, abs=1e-5)


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", "{}", '{"when":"x","model":"m"}', '{"when":1,"model":"m","calls":[{"tool":"a","outcome":"great"}]}']
)
def test_a_line_that_is_no_turn_is_passed_over(tmp_path: Path, line: str):
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{{"when":1,"model":"m","later":[]}}\n{line}\n\n', "utf-8")
    assert list(read_trace(path)) == [Turn(1.0, "m"), None]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk here that is always full")
def test_a_file_that_cannot_be_written_is_told_at_once_and_later_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with pytest.raises(Unavailable):
        TraceFile(tmp_path / "missing" / "trace.jsonl")
    full = TraceFile("/dev/full")
    full.add(Turn(1.0, "m"))
    full.add(Turn(2.0, "m"))
    assert [record.message for record in caplog.records] == ["turns are no longer recorded in /dev/full: No space left on device"]


# The report


def of(*made: CallRecord, offered: tuple[str, ...] = ("find", "search", "wave")) -> Turn:
    return Turn(0.0, "parrot", offered, calls=made)


@pytest.mark.req("R221")
def test_the_report_names_tools_that_are_never_called_and_those_often_called_wrongly():
    told = report([of(CallRecord("find", "ok")), *(of(CallRecord("search", how)) for how in ("ok", "ok", "invalid"))])
    assert told.turns == 4
    assert told.never_called == ("wave",)
    assert told.often_invalid == ("search",)
    assert told.confused == ()


@pytest.mark.req("R221")
@pytest.mark.parametrize("outcome", ["failed", "declined", "invalid", "timeout"])
def test_a_tool_called_in_vain_and_then_another_is_a_confusion(outcome: Any):
    turn = of(CallRecord("find", outcome, step=1), CallRecord("search", "ok", step=2))
    assert report([turn, turn]).confused == (Confusion("find", "search", "instead", 2),)


def test_a_call_denied_in_an_earlier_turn_and_then_another_is_a_confusion():
    turn = of(CallRecord("find", "declined", step=0, resumed=True), CallRecord("search", "ok", step=1))
    assert report([turn]).confused == (Confusion("find", "search", "instead", 1),)


@pytest.mark.parametrize(
    "made",
    [
        (CallRecord("find", "ok", step=1), CallRecord("search", "ok", step=2)),
        (CallRecord("find", "failed", step=1), CallRecord("search", "ok", step=1)),  # side by side
        (CallRecord("find", "failed", step=1), CallRecord("find", "ok", step=2), CallRecord("search", "ok", step=2)),
        (CallRecord("find", "failed", step=1), CallRecord("search", "ok", step=3)),
        (CallRecord(UNKNOWN, "unknown", step=1),),
    ],
)
def test_what_need_not_be_a_confusion_is_none(made: tuple[CallRecord, ...]):
    assert report([of(*made)]).confused == ()


@pytest.mark.req("R221")
async def test_a_name_that_is_almost_that_of_a_tool_is_a_confusion():
    turn = await traced(Told(calls(Call("gret", {}, "c1"), Call("fly", {}, "c2")), says("hm")), Handlers(GREET, greet=hello))
    assert report([turn]).confused == (Confusion("gret", "greet", "name", 1),)


# Spans


@pytest.fixture
def spans() -> tuple[Spans, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider), exporter


async def spanned(recorder: Spans, exporter: InMemorySpanExporter, *, show: bool = False) -> Any:
    toolset = Functions(greet, fall)
    made = calls(Call("greet", {"to": SECRET}, "c1"), Call("fall", {}, "c2"))
    events = run(Told(made, says(SECRET)), toolset, ASKED)
    async for _ in watched(events, recorder, Asked("parrot", await toolset.tools()), show_arguments=show):
        pass
    return exporter.get_finished_spans()


def greet(to: str) -> str:
    return f"hello {to}"


def fall() -> str:
    raise RuntimeError(SECRET)


@pytest.mark.req("R221")
async def test_a_turn_is_a_span_and_each_call_one_inside_it(spans: tuple[Spans, InMemorySpanExporter]):
    greeted, fell, turn = await spanned(*spans)
    assert [one.name for one in (greeted, fell, turn)] == ["execute_tool greet", "execute_tool fall", "invoke_agent parrot"]
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["gen_ai.request.model"] == "parrot"
    assert (turn.attributes["gen_ai.usage.input_tokens"], turn.attributes["gen_ai.usage.output_tokens"]) == (30, 8)
    assert greeted.parent.span_id == fell.parent.span_id == turn.context.span_id
    assert turn.start_time <= greeted.start_time <= greeted.end_time <= turn.end_time
    assert {name: value for name, value in greeted.attributes.items() if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "greet",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
    }
    assert greeted.status.is_ok and not fell.status.is_ok
    assert fell.attributes["error.type"] == "internal_error"


@pytest.mark.req("R221")
async def test_spans_show_arguments_only_where_that_is_asked_for(spans: tuple[Spans, InMemorySpanExporter]):
    assert not any(SECRET in one.to_json() for one in await spanned(*spans))
    shown = (await spanned(*spans, show=True))[3]
    assert shown.attributes["gen_ai.tool.call.arguments"] == json.dumps({"to": SECRET})
    assert shown.attributes["gen_ai.tool.call.result"] == f"hello {SECRET}"


async def test_an_answer_whose_calls_go_back_is_a_chat_without_tools_run(spans: tuple[Spans, InMemorySpanExporter]):
    recorder, exporter = spans
    made = calls(Call("greet", {"to": "Ada"}, "c1"))
    async for _ in watched(given(*made), recorder, Asked("parrot", [GREET], external=True)):
        pass
    (chat,) = exporter.get_finished_spans()
    assert (chat.name, chat.attributes["gen_ai.operation.name"]) == ("chat parrot", "chat")


def test_the_names_of_spans_are_those_of_the_conventions():
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as known

    from callsmith.runtime import spans as ours

    names = {value for value in vars(ours).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert len(names) > 10
    assert names <= {value for value in vars(known).values() if isinstance(value, str)}
