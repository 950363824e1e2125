"""A server held against a reference is clean if it is the reference; each planted fault is found by the measure that names it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.evals.against.comparison import AgainstReport, AskedServer, compare_servers
from callsmith.evals.against.questions import own_questions
from callsmith.evals.check.dialects.chat import CHAT
from tests.evals.against.scripted import Change, Reply, scripted
from tests.serving import served


async def held_against(change: Change | None, reference: Change | None = None) -> AgainstReport:
    async with served(scripted(change)) as url, served(scripted(reference)) as other:
        return await compare_servers(
            AskedServer(f"{url}/v1"), own_questions(), dialect=CHAT, reference=AskedServer(f"{other}/v1"), concurrency=8
        )


def failed(report: AgainstReport) -> dict[str, str]:
    """The measures that fail, each with a reason."""
    return {item.measure.name: next(iter(item.wrong.values())) for item in report.failed}


async def test_a_server_against_itself_is_clean() -> None:
    report = await held_against(None)
    assert failed(report) == {} and report.remarks == {} and report.is_finished
    assert len(report.answers) == 48
    measured = {item.measure.name: item for item in report.measured()}
    assert {name: item.value for name, item in measured.items()} == dict.fromkeys(measured, 1.0)
    assert all(item.share.n for item in measured.values())  # none is left out


async def test_a_reference_with_faults_of_its_own_is_as_good_as_itself() -> None:
    report = await held_against(on_calls(number_as_string), on_calls(number_as_string))
    assert failed(report) == {}
    (schema,) = [item for item in report.measured() if item.measure.name == "schema"]
    assert schema.value < 0.98 and schema.reference == schema.share


def on_calls(change: Callable[[list[Any]], list[Any] | None]) -> Change:
    """A fault in answers that have calls."""

    def planted(reply: Reply, body: dict[str, Any]) -> None:
        if calls := reply.get("tool_calls"):
            reply["tool_calls"] = change(calls) or calls

    return planted


def on_arguments(change: Callable[[dict[str, Any]], Any]) -> Change:
    """A fault in the arguments of each call: another value in their place, or a text."""

    def planted(calls: list[Any]) -> None:
        for call in calls:
            changed = change(json.loads(call["function"]["arguments"]))
            text = changed if isinstance(changed, str) else json.dumps(changed, ensure_ascii=False)
            call["function"]["arguments"] = text

    return on_calls(planted)


def renamed(new: Callable[[str], str]) -> Change:
    def planted(calls: list[Any]) -> None:
        for call in calls:
            call["function"]["name"] = new(call["function"]["name"])

    return on_calls(planted)


def number_as_string(calls: list[Any]) -> None:
    for call in calls:
        values = json.loads(call["function"]["arguments"])
        values = {key: str(value) if isinstance(value, int | float) else value for key, value in values.items()}
        call["function"]["arguments"] = json.dumps(values)


def merged(calls: list[Any]) -> list[Any]:
    values = {key: value for call in calls for key, value in json.loads(call["function"]["arguments"]).items()}
    return [{**calls[0], "function": {**calls[0]["function"], "arguments": json.dumps(values)}}]


def calls_always(reply: Reply, body: dict[str, Any]) -> None:
    if not reply.get("tool_calls") and body.get("tools"):
        function = {"name": body["tools"][0]["function"]["name"], "arguments": "{}"}
        reply.update(tool_calls=[{"id": "c", "type": "function", "function": function}], finish_reason="tool_calls")


def lost_in_text(reply: Reply, body: dict[str, Any]) -> None:
    if calls := reply.pop("tool_calls", None):
        reply.update(content=f"<tool_call>{json.dumps(calls[0]['function'])}</tool_call>", finish_reason="stop")


def thought_alone(reply: Reply, body: dict[str, Any]) -> Reply:
    return {"reasoning_content": "The user wants the weather.", "content": None, "finish_reason": "stop"}


def without(field: str, *, on: str = "tool_calls") -> Change:
    def planted(reply: Reply, body: dict[str, Any]) -> None:
        if reply.get(on):
            reply[field] = None

    return planted


def in_stream(change: Change) -> Change:
    return lambda reply, body: change(reply, body) if body.get("stream") else None


def broken(old: str, new: str) -> Change:
    return lambda reply, body: json.loads(json.dumps(reply, ensure_ascii=False).replace(old, new))


def with_words(text: str) -> Change:
    return lambda reply, body: reply.update(content=text)


# By its name: the fault, the measure that must fail, and what the reason says.
FAULTS: dict[str, tuple[Change, str, str]] = {
    "wrong key order": (on_arguments(lambda values: dict(reversed(values.items()))), "keys", "the keys are"),
    "dropped call": (on_calls(lambda calls: calls[:1]), "number", "and the reference"),
    "extra call": (on_calls(lambda calls: [*calls, {**calls[0], "id": "call_9"}]), "number", "and the reference"),
    "duplicate call": (on_calls(lambda calls: [*calls, {**calls[-1], "id": "again"}]), "number", "and the reference"),
    "parallel calls merged": (on_calls(merged), "number", "and the reference"),
    "call where the reference answers": (calls_always, "trigger", "where the reference says"),
    "no call where the reference calls": (lost_in_text, "trigger", "where the reference calls"),
    "wrong types": (on_arguments(lambda values: {key: [value] for key, value in values.items()}), "schema", "get_weather: "),
    "number as string": (on_calls(number_as_string), "schema", "set_timer: at /minutes"),
    "arguments encoded twice": (on_arguments(lambda values: json.dumps(json.dumps(values))), "schema", "encoded twice"),
    "truncated JSON": (on_arguments(lambda values: json.dumps(values)[:-1]), "schema", "no JSON"),
    "empty arguments": (on_arguments(lambda values: ""), "schema", "empty"),
    "arguments left out": (on_arguments(lambda values: {}), "schema", "required"),
    "hallucinated tool": (renamed(lambda name: "browse_web"), "names", "browse_web"),
    "name with prefix": (renamed(lambda name: f"functions.{name}"), "schema", ", but get_weather"),
    "null for absent": (
        on_arguments(lambda values: {**values, "note": None}),
        "arguments",
        "is null, and the reference has none",
    ),
    "another value": (broken("Paris", "London"), "arguments", "London"),
    "thought alone": (thought_alone, "thoughts", "characters of thought"),
    "content lost beside call": (without("content"), "text", "beside its calls"),
    "no words at all": (with_words(""), "text", "it says nothing"),
    "missing finish_reason": (without("finish_reason"), "finish", "finish_reason is None"),
    "finish is stop": (lambda reply, body: reply.update(finish_reason="stop"), "finish", "it has calls"),
    "lost id": (on_calls(lambda calls: [{**call, "id": ""} for call in calls]), "shape", "no id"),
    "one id": (on_calls(lambda calls: [{**call, "id": "call_0"} for call in calls]), "shape", "same id"),
    "unicode replaced": (broken("ü", "\ufffd"), "characters", "broken"),
    "unicode read as Latin-1": (broken("Zürich", "ZÃ¼rich"), "characters", "broken"),
    "unicode left escaped": (broken("ü", "\\\\u00fc"), "characters", "broken"),
    "cut": (lambda reply, body: {"content": "Zürich is", "finish_reason": "length"}, "whole", "cut"),
    "stream with other words": (in_stream(with_words("Let me guess.")), "stream", "streamed"),
    "stream without calls": (in_stream(lost_in_text), "stream", "streamed nothing"),
    "stream without ids": (in_stream(on_calls(lambda calls: [{**call, "id": ""} for call in calls])), "shape", "streamed: "),
    "stream with broken arguments": (in_stream(on_arguments(lambda values: json.dumps(values)[:-1])), "schema", "streamed: "),
    "refuses": (lambda reply, body: 500 if "unit" in str(body) else None, "answered", "500"),
}


# The other measures in which a fault shows too, for what it does to the answers; in no others.
ALSO = {
    "dropped call": {"names"},
    "parallel calls merged": {"names"},
    "call where the reference answers": {"schema"},
    "no call where the reference calls": {"characters"},  # its arguments stand in the text, with the escapes of JSON
    "wrong types": {"arguments"},
    "number as string": {"arguments"},
    "arguments encoded twice": {"arguments"},
    "truncated JSON": {"arguments"},
    "empty arguments": {"arguments"},
    "arguments left out": {"arguments"},
    "hallucinated tool": {"schema"},
    "name with prefix": {"names"},
    "thought alone": {"text", "trigger"},
    "unicode replaced": {"arguments"},
    "unicode read as Latin-1": {"arguments"},
    "stream without calls": {"characters"},
    "stream with broken arguments": {"stream"},
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_planted_fault_is_found_by_the_measure_that_names_it(name: str) -> None:
    fault, measure, reason = FAULTS[name]
    found = failed(await held_against(fault))
    assert set(found) == {measure, *ALSO.get(name, ())}
    assert reason in found[measure]


async def test_a_server_that_never_says_the_same_is_not_blamed_for_its_streams() -> None:
    times = iter(range(10_000))
    report = await held_against(lambda reply, body: reply.update(content=f"Number {next(times)}."))
    assert failed(report) == {}
    assert "48 of 48 answers were another one when asked again" in report.remarks["unsteady"]
