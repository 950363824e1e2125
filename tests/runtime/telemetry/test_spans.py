"""Turns as spans."""

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from callsmith.core.events import TurnEnded
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call
from callsmith.runtime.loop import run
from callsmith.runtime.telemetry.spans import Spans
from callsmith.runtime.telemetry.turns import TurnInfo, record_turn
from callsmith.tools.functions import Functions
from tests.fakes import ASKED, FakeModel, calls, decided, says
from tests.runtime.telemetry.traced import GREET, SECRET, given


@pytest.fixture
def spans() -> tuple[Spans, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider), exporter


async def spanned(recorder: Spans, exporter: InMemorySpanExporter, *, show: bool = False) -> Any:
    toolset = Functions(greet, fall)
    answer = calls(Call("greet", {"to": SECRET}, "c1"), Call("fall", {}, "c2"))
    events = run(FakeModel(answer, says(SECRET)), toolset, ASKED)
    async for _ in record_turn(events, recorder, TurnInfo("parrot", await toolset.tools()), show_arguments=show):
        pass
    return exporter.get_finished_spans()


def greet(to: str) -> str:
    return f"hello {to}"


def fall() -> str:
    raise RuntimeError(SECRET)


@pytest.mark.req("R221")
async def test_a_turn_is_a_span_and_each_call_one_inside_it(spans: tuple[Spans, InMemorySpanExporter]):
    greeted, fell, turn = await spanned(*spans)
    assert [item.name for item in (greeted, fell, turn)] == ["execute_tool greet", "execute_tool fall", "invoke_agent parrot"]
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
    assert not any(SECRET in item.to_json() for item in await spanned(*spans))
    span = (await spanned(*spans, show=True))[3]
    assert span.attributes["gen_ai.tool.call.arguments"] == json.dumps({"to": SECRET})
    assert span.attributes["gen_ai.tool.call.result"] == f"hello {SECRET}"


async def test_an_answer_whose_calls_go_back_is_a_chat_without_tools_run(spans: tuple[Spans, InMemorySpanExporter]):
    recorder, exporter = spans
    answer = calls(Call("greet", {"to": "Ada"}, "c1"))
    async for _ in record_turn(given(*answer), recorder, TurnInfo("parrot", [GREET], external=True)):
        pass
    (chat,) = exporter.get_finished_spans()
    assert (chat.name, chat.attributes["gen_ai.operation.name"]) == ("chat parrot", "chat")


@pytest.mark.parametrize("at_start", [True, False])
async def test_a_span_has_the_first_decision_of_its_turn(spans: tuple[Spans, InMemorySpanExporter], at_start: bool):
    recorder, exporter = spans
    first, later = decided("", CallDecision(True, 1.3, -1.5), at_start=at_start), decided("so", CallDecision(False, -2.0, -1.5))
    async for _ in record_turn(given(*first, *later, TurnEnded((), "stop")), recorder, TurnInfo("parrot", [GREET])):
        pass
    attributes = exporter.get_finished_spans()[-1].attributes or {}
    names = ("callsmith.decision.calls", "callsmith.decision.score", "callsmith.decision.threshold")
    assert [attributes[name] for name in names] == [True, 1.3, -1.5]


async def test_a_turn_in_which_nothing_was_decided_has_no_decision(spans: tuple[Spans, InMemorySpanExporter]):
    turn = (await spanned(*spans))[-1]
    assert not [name for name in turn.attributes if name.startswith("callsmith.decision")]


def test_the_names_of_spans_are_those_of_the_conventions():
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as known

    from callsmith.runtime.telemetry import spans as ours

    names = {value for value in vars(ours).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert len(names) > 10
    assert names <= {value for value in vars(known).values() if isinstance(value, str)}
