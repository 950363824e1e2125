"""The server's trace and metrics: what is counted, how it reads, and that nothing that was said is among it."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from callsmith.core.errors import UsageError
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Choice, Message, Request, Tool, Usage
from callsmith.runtime.telemetry.trace import Counters, Trace, TraceFile
from callsmith.runtime.telemetry.turns import UNKNOWN, CallRecord, TurnRecord
from callsmith.server.app import create_app
from callsmith.server.routes.telemetry import exposition
from callsmith.server.settings import Settings
from callsmith.tools.functions import Functions
from tests.fakes import StrictFakeModel
from tests.server.asking import make_pipeline

SECRET = "hunter2-Ada-Lovelace"
ASKED = Request((Message.user(SECRET),))
WEATHER = Tool("weather", SECRET, {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})


def calls(*made_calls: Call) -> list[ModelEvent]:
    events: list[ModelEvent] = [Text(SECRET)]
    for index, call in enumerate(made_calls):
        events += [CallStarted(index, call.name, call.id), CallArguments(index, call.text), CallReady(index, call)]
    return [*events, Stopped("calls", Usage(7, 3))]


def says(text: str) -> list[ModelEvent]:
    return [Text(text), Stopped("stop", Usage(7, 3, 2, 1))]


async def weather(city: str) -> str:
    return f"sun in {city}"


async def everything(events: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    return [event async for event in events]


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every figure, by name and labels, as Prometheus' own parser reads it."""
    families = text_string_to_metric_families(text.decode())
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


@pytest.mark.req("R221")
async def test_turns_with_the_servers_own_tools_are_recorded():
    model = StrictFakeModel(calls(Call("weather", {"city": SECRET}, "c1")), says(SECRET))
    answers = make_pipeline({"parrot": model}, Functions(weather), Settings())
    await everything(answers.answer(model, ASKED))
    (turn,) = [known.turn for known in answers.turns.latest()]
    assert (turn.model, turn.offered, turn.external, turn.reason) == ("parrot", ("weather",), False, "stop")
    assert [(call.tool, call.outcome) for call in turn.calls] == [("weather", "ok")]
    assert turn.usage == Usage(14, 6, 2, 1)


@pytest.mark.req("R221")
async def test_turns_with_tools_of_the_clients_own_are_recorded_and_their_calls_checked():
    events = calls(Call("weather", {"city": SECRET}, "c1"), Call("weather", {SECRET: 5}, "c2"))
    model = StrictFakeModel(events)
    answers = make_pipeline({"parrot": model}, Functions(weather), Settings())
    assert await everything(answers.answer(model, Request(ASKED.messages, (WEATHER,)))) == events
    (turn,) = [known.turn for known in answers.turns.latest()]
    assert (turn.model, turn.offered, turn.external, turn.reason) == ("parrot", ("weather",), True, "calls")
    assert [call.outcome for call in turn.calls] == ["passed_on", "invalid"]


async def test_a_request_that_makes_no_sense_is_no_turn():
    model = StrictFakeModel(says("hi"))
    answers = make_pipeline({"parrot": model}, None, Settings())
    with pytest.raises(UsageError):
        await everything(answers.answer(model, Request(ASKED.messages, (WEATHER,), Choice.only("wether"))))
    assert answers.turns.latest() == []


@pytest.mark.req("R221")
@pytest.mark.parametrize("own", [True, False], ids=["the server's tools", "the client's tools"])
async def test_nothing_that_was_said_reaches_trace_metrics_file_or_log(own: bool, tmp_path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    secret_calls = [Call("weather", {"city": SECRET}, "c1"), Call("weather", {SECRET: 5}, "c2"), Call(SECRET, {}, "c3")]
    model, path = StrictFakeModel(calls(*secret_calls), says(SECRET)), tmp_path / "trace.jsonl"
    settings = Settings(recorders=(TraceFile(path),))
    answers = make_pipeline({"parrot": model}, Functions(weather) if own else None, settings)
    await everything(answers.answer(model, ASKED if own else Request(ASKED.messages, (WEATHER,))))
    text, _ = exposition(answers.trace.counters())
    assert b'callsmith_tool_calls_total{tool="weather"} 2.0' in text
    kept = path.read_text("utf-8")
    assert kept.count("\n") == 1
    for place in (repr(answers.turns.latest()), repr(answers.trace.counters()), text.decode(), kept, caplog.text):
        assert SECRET not in place


@pytest.mark.req("R221")
async def test_over_http_nothing_that_was_said_is_logged_and_settings_say_who_else_records(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    trace = Trace()
    model = StrictFakeModel(calls(Call("weather", {"city": SECRET}, "c1")), says("done"))
    app = create_app({"parrot": model}, tools=Functions(weather), settings=Settings(recorders=(trace,)))
    body: Any = {"model": "parrot", "messages": [{"role": "user", "content": SECRET}]}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"].endswith("done")
    assert [call.outcome for call in trace.turns()[0].calls] == ["ok"]
    assert SECRET not in caplog.text


@pytest.mark.req("R221")
def test_metrics_tell_what_became_of_each_tool_and_each_model():
    counters = Counters()
    records = (
        CallRecord("weather", "ok", repairs=("missing-close",), arguments_size=8, result_size=8, seconds=0.02),
        CallRecord("weather", "invalid"),
        CallRecord(UNKNOWN, "unknown"),
    )
    counters.add(
        TurnRecord(0.0, "parrot", ("weather", "time"), calls=records, usage=Usage(7, 3), first=0.3, seconds=0.4, retries=1)
    )
    counters.add(TurnRecord(0.0, "parrot", decision=CallDecision(True, 1.3, -1.5)))
    measured = samples(exposition(counters)[0])
    tool, model = (("tool", "weather"),), (("model", "parrot"),)
    assert measured["callsmith_tool_offered_total", tool] == 1
    assert measured["callsmith_tool_calls_total", tool] == 2
    assert measured["callsmith_tool_calls_total", (("tool", "time"),)] == 0
    assert measured["callsmith_tool_repaired_total", tool] == 1
    assert measured["callsmith_tool_outcomes_total", (("outcome", "invalid"), *tool)] == 1
    assert measured["callsmith_tool_outcomes_total", (("outcome", "unknown"), ("tool", UNKNOWN))] == 1
    assert measured["callsmith_tool_tokens_total", tool] == 4
    assert measured["callsmith_tool_seconds_count", tool] == 1
    assert measured["callsmith_tool_seconds_sum", tool] == 0.02
    assert measured["callsmith_tool_seconds_bucket", (("le", "0.01"), *tool)] == 0
    assert measured["callsmith_tool_seconds_bucket", (("le", "0.025"), *tool)] == 1
    assert measured["callsmith_tool_seconds_bucket", (("le", "+Inf"), *tool)] == 1
    assert measured["callsmith_turns_total", (*model, ("reason", "stop"))] == 2
    assert measured["callsmith_decisions_total", (("calls", "true"), *model)] == 1
    assert measured["callsmith_tokens_total", (("kind", "prompt"), *model)] == 7
    assert measured["callsmith_retries_total", model] == 1
    assert measured["callsmith_first_event_seconds_sum", model] == 0.3
    assert measured["callsmith_turn_seconds_sum", model] == 0.4


def test_the_format_is_the_one_that_is_asked_for():
    plain, plain_type = exposition(Counters())
    opened, opened_type = exposition(Counters(), "application/openmetrics-text; version=1.0.0")
    assert plain_type.startswith("text/plain")
    assert opened_type.startswith("application/openmetrics-text")
    assert opened.endswith(b"# EOF\n") and not plain.endswith(b"# EOF\n")


async def test_each_server_counts_for_itself_and_the_registry_of_the_process_is_left_alone():
    pipelines = [make_pipeline({"parrot": StrictFakeModel(says("hi"))}, None, Settings()) for _ in range(2)]
    await everything(pipelines[0].answer(pipelines[0].models.get("parrot"), ASKED))
    assert [len(answers.turns.latest()) for answers in pipelines] == [1, 0]
    exposition(pipelines[0].trace.counters())
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("callsmith")]


def test_a_label_cannot_break_the_format():
    counters = Counters()
    counters.add(TurnRecord(0.0, 'a "model"\nof mine', ("x",)))
    assert samples(exposition(counters)[0])["callsmith_retries_total", (("model", 'a "model"\nof mine'),)] == 0
    assert json.dumps(exposition(counters)[0].decode())
