"""Every probe is right about a server that is, and each planted fault is found by the probes that are for it."""

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

pytest.importorskip("aiohttp")

from callsmith.cli.main import app as cli
from callsmith.core.errors import ModelError, UsageError
from callsmith.evals.check import report as reports
from callsmith.evals.check.run import CheckReport, check, known_probes
from callsmith.server.app import create_app
from tests.evals.check.ideal import Fault, Faulty, IdealModel, swap
from tests.serving import served, served_apart


def application() -> Any:
    return create_app({"ideal": IdealModel()})


async def checked(app: Any, **options: Any) -> CheckReport:
    async with served(app) as url:
        return await check(f"{url}/v1", **options)


async def test_a_server_that_is_right_is_said_to_be() -> None:
    report = await checked(application())
    assert [reports.explain(report, finding) for finding in report.of("wrong", "weak")] == []
    assert (report.server, report.model, report.dialects) == ("callsmith", "ideal", ["chat", "responses", "anthropic", "ollama"])
    assert len(report.findings) > 200
    assert len({finding.probe.name for finding in report.findings}) == len(known_probes()) >= 60


def without_calls(request: dict[str, Any], body: bytes) -> bytes:
    """As a server that passes on what the model writes."""
    if request.get("stream") or not request.get("tools") or b'"tool_calls"' not in body:
        return body
    answer = json.loads(body)
    message = answer["choices"][0]["message"]
    call = message.pop("tool_calls")[0]["function"]
    message["content"] = f'<tool_call>\n{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}\n</tool_call>'
    answer["choices"][0]["finish_reason"] = "stop"
    return json.dumps(answer).encode()


def always_calls(request: dict[str, Any], body: bytes) -> bytes:
    if request.get("stream") or "tools" not in request or request.get("tool_choice") != "none":
        return body
    answer = json.loads(body)
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    answer["choices"][0]["message"]["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    return json.dumps(answer).encode()


def fails_on(key: str, status: int, text: bytes = b'{"error": {}}') -> Fault:
    """As a server that does not get on with a request in which this stands."""
    return lambda request, body: (status, text) if re.search(key, json.dumps(request)) else body


FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "no index": (swap(r'("tool_calls":\[\{)"index":\d+,', r"\1"), {"calls.shape_in_stream", "choices.required_in_stream"}),
    "wrong index": (swap(r'("tool_calls":\[\{"index":)0', r"\g<1>3"), {"calls.shape_in_stream"}),
    "no id": (swap(r'"id":"call_\w+",', ""), {"calls.shape", "calls.shape_in_stream", "choices.required"}),
    "one id": (swap(r'"id":"call_\w+"', '"id":"call_0"'), {"calls.two", "calls.two_in_stream"}),
    "no type": (swap(r'"type":"function",', ""), {"calls.shape", "calls.shape_in_stream"}),
    "name twice": (swap(r'("function":\{)("arguments":"[^{])', r'\1"name":"get_weather",\2'), {"calls.shape_in_stream"}),
    "arguments as an object": (swap(r'"arguments":"\{\}"', '"arguments":{}'), {"schemas.nothing"}),
    "broken arguments": (swap(r'("name":"use_enum","arguments":"\{)', r"\1oops"), {"schemas.enum"}),
    "another value": (swap(r"celsius", "kelvin"), {"schemas.enum"}),
    "an integer as a string": (swap(r'\\"count\\": ?1', r'\\"count\\": \\"1\\"'), {"schemas.integer"}),
    "no finish": (swap(r'"finish_reason":"(tool_calls|stop)"', '"finish_reason":null'), {"answers.stream", "calls.finish"}),
    "finish is stop": (
        swap(r'"finish_reason":"tool_calls"', '"finish_reason":"stop"'),
        {"calls.finish", "calls.finish_in_stream"},
    ),
    "no end": (swap(r"data: \[DONE\]\n\n", ""), {"answers.stream"}),
    "an event that is no JSON": (swap(r'data: \{"', "data: {", 1), {"answers.stream"}),
    "another role": (swap('"role":"assistant"', '"role":"user"'), {"answers.whole"}),
    "no usage": (swap(r'"usage":\{[^{}]*(\{[^{}]*\}[^{}]*)*\}', '"usage":null'), {"answers.usage", "answers.usage_in_stream"}),
    "wrong total": (swap(r'"total_tokens":\d+', '"total_tokens":1'), {"answers.usage"}),
    "markup": (swap('"content":"Hel', '"content":"<|im_start|>Hel'), {"answers.stream", "answers.whole"}),
    "a stream that says something else": (swap('"delta":{"content":"lo!', '"delta":{"content":"p!'), {"answers.stream_is_whole"}),
    "reasoning in the text": (swap('"content":"Hello', '"content":"<think>hm</think>Hello'), {"answers.whole"}),
    "broken characters": (swap("東", "\ufffd"), {"answers.characters"}),
    "calls in the text": (without_calls, {"calls.read", "choices.required", "choices.named", "calls.stream_is_whole"}),
    "calls all the same": (always_calls, {"choices.none"}),
    "crashes on no JSON": (
        lambda request, body: (500, b"<html>") if len(request) == 1 and b"error" in body else body,
        {"errors.no_json"},
    ),
    "crashes on a bad schema": (fails_on("objekt", 500), {"errors.schema"}),
    "takes what is wrong": (
        lambda _, body: (200, body) if b'"error"' in body else body,
        {"errors.temperature", "errors.no_messages"},
    ),
    "errors that are no JSON": (lambda _, body: b"<html>no</html>" if b'"error"' in body else body, {"errors.tools"}),
    "refuses results": (fails_on('"role": "tool"', 400), {"history.result", "history.null_content"}),
    "refuses choices": (fails_on('"tool_choice": "required"', 400), {"choices.required", "choices.required_anyway"}),
    "refuses a long name": (fails_on("na_1ba_1b", 422), {"schemas.longest_name"}),
    "refuses many tools": (fails_on("tool_99", 413), {"schemas.many_tools"}),
    "output that does not fit": (swap(r'\\"cloudy\\"', r'\\"windy\\"'), {"outputs.schema", "outputs.schema_in_stream"}),
    "stop sequence left in": (swap(r'"content":"alpha beta ?', '"content":"alpha beta gamma'), {"answers.stop"}),
    "more words than were allowed": (swap("one two ", "so many words " * 20), {"answers.max_tokens"}),
    "more tokens than were allowed": (swap('"completion_tokens":7', '"completion_tokens":16'), {"answers.max_tokens"}),
    "cut, and said to be whole": (swap('"finish_reason":"length"', '"finish_reason":"stop"'), {"answers.max_tokens"}),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled
async def test_a_planted_fault_is_found(name: str) -> None:
    fault, expected = FAULTS[name]
    report = await checked(Faulty(application(), fault), dialects=["chat"])
    assert {finding.probe.name for finding in report.of("wrong")} >= expected


OTHERS: dict[str, tuple[str, Fault, set[str]]] = {
    "sequence numbers": ("responses", swap('"sequence_number":3,', '"sequence_number":7,'), {"answers.stream"}),
    "no sequence numbers": ("responses", swap(r'"sequence_number":\d+,', ""), {"answers.stream", "choices.required_in_stream"}),
    "two ends": ("responses", swap(r"(event: response\.completed\n.*?\n\n)", r"\1\1"), {"answers.stream"}),
    "no call_id": ("responses", swap(r'"call_id":"\w+"', '"call_id":""'), {"calls.shape", "choices.required"}),
    "deltas that do not add up": ("responses", swap(r'("delta":")Hel"', r'\1Help"'), {"answers.stream"}),
    "no message_stop": ("anthropic", swap(r"event: message_stop\n.*?\n\n", ""), {"answers.stream"}),
    "wrong stop_reason": ("anthropic", swap('"stop_reason":"tool_use"', '"stop_reason":"end_turn"'), {"calls.finish"}),
    "input as text": ("anthropic", swap(r'"input":\{"city[^}]*\}', '"input":"{}"'), {"calls.shape"}),
    "blocks out of order": ("anthropic", swap(r'("type":"content_block_start","index":)0', r"\g<1>1"), {"answers.stream"}),
    "arguments as text": ("ollama", swap(r'"arguments":\{[^}]*\}', '"arguments":"{}"'), {"calls.shape"}),
    "never done": ("ollama", swap('"done":true', '"done":false'), {"answers.whole", "answers.stream"}),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.sampled
async def test_a_fault_in_another_dialect_is_found(name: str) -> None:
    dialect, fault, expected = OTHERS[name]
    report = await checked(Faulty(application(), fault), dialects=[dialect])
    assert {finding.probe.name for finding in report.of("wrong")} >= expected


async def test_what_a_model_does_not_do_is_no_fault_of_the_server() -> None:
    class Dull(IdealModel):
        def _answer(self, request: Any, tools: Any, question: str) -> Any:
            return super()._answer(request, () if request.choice.mode == "auto" else tools, "")

    report = await checked(create_app({"dull": Dull()}), dialects=["chat"], only=["calls.*", "history.*"])
    assert not report.of("wrong")
    assert {"calls.read", "calls.two_in_stream"} <= {finding.probe.name for finding in report.of("weak")}


async def test_rates_are_told_where_a_fault_comes_now_and_then() -> None:
    times = iter(range(99))

    def now_and_then(request: dict[str, Any], body: bytes) -> bytes:
        return body.replace(b'"role":"assistant"', b'"role":"user"') if "chat" in request["path"] and next(times) % 2 else body

    report = await checked(Faulty(application(), now_and_then), dialects=["chat"], only=["answers.whole"], repeat=4)
    (finding,) = report.findings
    assert (finding.verdict, finding.counts["wrong"]) == ("wrong", 2)
    assert "(2 of 4 times)" in reports.explain(report, finding)[0]


async def test_reports_say_the_same_in_every_form() -> None:
    report = await checked(Faulty(application(), FAULTS["no id"][0]), dialects=["chat"], only=["calls.*", "answers.*"])
    document = reports.as_json(report)
    wrong = [finding for finding in document["findings"] if finding["verdict"] == "wrong"]
    assert wrong and all(item["reason"] and item["exchanges"][0]["sent"]["model"] == "ideal" for item in wrong)
    suite = ElementTree.fromstring(reports.as_junit(report))
    assert int(suite.get("failures", "0")) == len(wrong) == len(suite.findall("testcase/failure"))
    assert len(suite.findall("testcase")) == len(report.findings)
    card = reports.markdown(report)
    assert all(f"| ✗ | `{item['name'].removeprefix('chat.')}` | chat |" in card for item in wrong)
    assert f"| Chat Completions | {document['counts']['right']} | {len(wrong)} |" in card
    assert "| Ollama | not spoken | | | |" in reports.markdown(replace(report, unspoken=["ollama"]))


async def test_nobody_there_and_wrong_names_are_said_so() -> None:
    with pytest.raises(ModelError, match="nobody answers"):
        await check("http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="no address"):
        await check("localhost:8000")
    async with served(application()) as url:
        with pytest.raises(UsageError, match="no probe is called"):
            await check(f"{url}/v1", only=["nonsense"])
        with pytest.raises(UsageError, match="dialect"):
            await check(f"{url}/v1", dialects=["latin"])
        with pytest.raises(ModelError, match="no API that is known"):
            await check(f"{url}/nowhere", model="ideal", dialects=())


def test_the_command_prints_a_card_and_ends_with_a_code(tmp_path: Any) -> None:
    with served_apart(application()) as url:
        right = CliRunner().invoke(
            cli, ["check", f"{url}/v1", "--dialect", "chat", "--only", "choices.*", "--junit", str(tmp_path / "x")]
        )
    assert right.exit_code == 0, right.output
    assert "0 wrong" in right.output
    assert (tmp_path / "x").read_text().startswith("<?xml")
    with served_apart(Faulty(application(), FAULTS["no id"][0])) as url:
        wrong = CliRunner().invoke(cli, ["check", f"{url}/v1", "--dialect", "chat", "--only", "calls.shape"])
    assert wrong.exit_code == 1
    assert "a call has no id" in wrong.output
