"""`callsmith check --against` as a user runs it: questions of all kinds, answers that were kept, reports, and what goes wrong."""

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

pytest.importorskip("aiohttp")

from callsmith.cli.evals.against import read_thresholds
from callsmith.cli.main import app as cli
from callsmith.core.errors import ModelError, UsageError
from callsmith.evals.against import report as reports
from callsmith.evals.against.answers import KeptAnswer, read_answers, write_answers
from callsmith.evals.against.comparison import AskedServer, compare_servers
from callsmith.evals.against.differences import canonical
from callsmith.evals.against.measures import MEASURES, ComparedAnswer, Measure
from callsmith.evals.against.questions import choose, own_questions, read_questions, repeat
from callsmith.evals.check.dialects.chat import CHAT
from callsmith.evals.check.exchange import ReceivedCall
from tests.evals.against.scripted import scripted
from tests.evals.against.test_faults import FAULTS, held_against
from tests.serving import served, served_apart

TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
USER = [{"role": "user", "content": "What is 1 and 2?"}]
OWN: dict[str, Any] = {"id": "one", "category": "sums", "messages": USER, "tools": [TOOL]}
BODY: dict[str, Any] = {"model": "kimi-k2", "messages": [{"role": "_input", "content": "Be brief."}, *USER], "temperature": 0.6}
FUNCTION = {"name": "math.add", "description": "Add.", "parameters": {"type": "dict", "properties": {"a": {"type": "float"}}}}
BENCHMARK: dict[str, Any] = {"id": "live_simple_3-3-0", "question": [USER], "function": [FUNCTION]}


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_questions_of_every_kind_are_read(tmp_path: Path) -> None:
    own, body, benchmark = read_questions(write_lines(tmp_path / "cases.jsonl", OWN, BODY, BENCHMARK))
    assert [(item.id, item.category) for item in (own, body, benchmark)] == [
        ("one", "sums"),
        ("case_2", "own"),
        ("live_simple_3-3-0", "live_simple"),
    ]
    assert [message.role for message in body.request.messages] == ["system", "user"]
    assert body.asked(99).sampling.temperature == 0.6 and own.asked(99).sampling.temperature == 0.0
    assert body.asked(99).sampling.max_tokens == 99
    tool = benchmark.request.tools[0]
    assert (tool.name, tool.parameters["properties"]["a"]["type"]) == ("math_add", "number")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([], "line 2: .*expected an object"),
        ({**OWN, "id": "two", "tool": []}, "line 2: tool: .*tools"),
        ({**OWN, "id": "two", "messages": []}, "line 2: messages"),
        ({**OWN, "id": "two", "tools": [{}]}, "line 2: tools"),
        (OWN, "another case 'one'"),
        ({"id": "bad", "question": 3, "function": []}, "line 2: bad is no question of the benchmark"),
        ({"id": "bad", "question": [USER], "function": [{"name": "f"}]}, "line 2: bad is no question of the benchmark"),
        ({"question": [USER]}, "line 2: id"),
        ({"id": "multi_turn_base_0", "question": [USER], "involved_classes": []}, "is a conversation"),
        ({**OWN, "id": "\ud800"}, "line 2: "),
    ],
)
def test_what_is_wrong_with_a_question_is_said(tmp_path: Path, row: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_questions(write_lines(tmp_path / "cases.jsonl", OWN, row))


def test_questions_can_be_chosen_and_repeated() -> None:
    questions = choose(own_questions(), ["parallel", "none_1"])
    assert [item.id for item in questions] == [*(f"parallel_{number}" for number in range(1, 7)), "none_1"]
    again = repeat(questions[:1], 3)
    assert [(item.id, item.asked(9).sampling.seed) for item in again] == [
        ("parallel_1", 1),
        ("parallel_1#2", 2),
        ("parallel_1#3", 3),
    ]
    with pytest.raises(UsageError, match="no case and no category is called nonsense"):
        choose(own_questions(), ["nonsense"])


def test_a_question_is_known_again_by_what_it_asks() -> None:
    (first, *others) = own_questions()
    assert first.digest == "37c6a0966ed6a308"  # records of references outlive versions
    assert len({item.digest for item in (first, *others)}) == 48


def test_kept_answers_are_read_as_they_were(tmp_path: Path) -> None:
    call = ReceivedCall("get_weather", '{"city": "Zürich", "half": "\\ud800"}', "call_1")
    given = KeptAnswer("a", "d", "Look:\u2028", "hm", (call,), "calls", {"ids": "no id"}, "", 1.5)
    path = tmp_path / "kept.jsonl"
    assert write_answers(path, "http://x/v1", "m", [given, KeptAnswer("b", "d", error="late")]) == 1
    read = read_answers(path)
    assert (read.url, read.model, dict(read.answers)) == ("http://x/v1", "m", {"a": given})


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "there are no answers"),
        (["{"], "line 1: "),
        (['{"id": "a", "digest": "d"}'], "has no answers that were kept by"),
        (['{"answers_of": "u", "model": "m", "version": 2}'], "line 1: these answers are of version 2"),
        (['{"answers_of": "u", "model": "m", "version": 1}'], "there are no answers"),
        (['{"answers_of": "u", "model": "m", "version": 1}', '{"id": "a"}'], "line 2: .*digest"),
        (['{"answers_of": "u", "model": "m", "version": 1}', '{"id": "a", "digest": "d", "calls": 3}'], "line 2: calls"),
        (['{"answers_of": "u", "model": "m", "version": 1}', '{"id": "a", "digest": "d", "text": null}'], "line 2: text"),
        (['{"answers_of": "u", "model": "m", "version": 1}', *2 * ['{"id": "a", "digest": "d"}']], "line 3: .*another answer"),
        (['{"answers_of": "u", "model": "m", "version": 1}', "[" * 100_000], "line 2: "),
    ],
)
def test_records_that_are_wrong_are_refused(tmp_path: Path, lines: list[str], complaint: str) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=complaint):
        read_answers(path)


def test_thresholds_are_shares_of_known_measures() -> None:
    assert read_thresholds(["arguments=0.8", "trigger=75%"]) == {"arguments": 0.8, "trigger": 0.75}
    for text, complaint in (
        ("argument=1", "arguments"),
        ("schema=2", "no threshold"),
        ("schema", "no threshold"),
        ("keys=nan", "no"),
    ):
        with pytest.raises(UsageError, match=complaint):
            read_thresholds([text])


def test_the_command_records_a_reference_and_holds_servers_against_it(tmp_path: Path) -> None:
    kept, paths = tmp_path / "kept.jsonl", [str(tmp_path / name) for name in ("r.json", "r.xml", "r.md")]
    outputs = [item for pair in zip(("--json", "--junit", "--markdown"), paths, strict=True) for item in pair]
    with served_apart(scripted()) as url:
        recorded = CliRunner().invoke(cli, ["check", f"{url}/v1", "--record", str(kept), "--quick"])
        same = CliRunner().invoke(cli, ["check", f"{url}/v1", "--against", str(kept), "--quick", *outputs])
        other = CliRunner().invoke(cli, ["check", f"{url}/v1", "--against", str(kept), "--only", "nested"])
        live = CliRunner().invoke(cli, ["check", url, "--against", f"{url}/v1#scripted", "--only", "simple", "-v"])
    assert recorded.exit_code == 0, recorded.output
    assert "32 answers are in" in recorded.output
    assert same.exit_code == 0, same.output
    assert "as the reference by all 16 measures; 32 questions" in same.output
    assert other.exit_code == 0 and "not recorded: 2 of 6 questions" in other.output
    assert live.exit_code == 0 and "6/6" in live.output, live.output
    document = json.loads(Path(paths[0]).read_text())
    assert document["finished"] and document["failed"] == [] and len(document["answers"]) == 32
    assert document["measures"]["trigger"]["value"] == 1.0 and 0.8 < document["measures"]["trigger"]["low"] < 1.0
    assert ElementTree.parse(paths[1]).getroot().get("failures") == "0"
    with served_apart(scripted(FAULTS["null for absent"][0])) as url:
        wrong = CliRunner().invoke(cli, ["check", f"{url}/v1", "--against", str(kept), "--quick", *outputs])
        allowed = ["check", f"{url}/v1", "--against", str(kept), "--quick", "--threshold", "arguments=0"]
        accepted = CliRunner().invoke(cli, allowed)
    assert wrong.exit_code == 1 and "is null, and the reference has none" in wrong.output
    assert "not as the reference by arguments" in wrong.output
    assert accepted.exit_code == 0, accepted.output


async def test_reports_say_the_same_in_every_form() -> None:
    report = await held_against(FAULTS["lost id"][0])
    document = reports.as_json(report)
    assert document["failed"] == ["shape"] and not document["measures"]["shape"]["enough"]
    suite = ElementTree.fromstring(reports.as_junit(report))
    assert [case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None] == ["shape"]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(MEASURES) + 1), "1", "0")
    card = reports.as_markdown(report)
    assert "✗ shape" in card and "a call has no id" in card and "not as the reference by shape" in card
    assert document["measures"]["shape"]["categories"]["none"] == {"right": 6, "n": 6, "value": 1.0}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--against", "nowhere.jsonl"], "is no reference"),
        (["--against", "http://127.0.0.1:9/v1"], "nobody answers at http://127.0.0.1:9/v1"),
        (["--cases", "x.jsonl"], "--cases belongs to --against or --record"),
        (["--record", "x.jsonl", "--cases", "nowhere.jsonl"], "cannot read cases"),
        (["--record", "/nowhere/x.jsonl", "--only", "simple_1"], "cannot be written"),
        (["--record", "x.jsonl", "--dialect", "latin"], "dialect"),
        (["--record", "x.jsonl", "--dialect", "chat", "--dialect", "ollama"], "in one dialect"),
        (["--record", "x.jsonl", "--threshold", "speed=1"], "measure"),
    ],
)
def test_what_cannot_be_compared_is_said(arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with served_apart(scripted()) as url:
        result = CliRunner().invoke(cli, ["check", f"{url}/v1", *arguments])
    assert result.exit_code != 0
    assert complaint in str(result.exception) + result.output


async def test_answers_to_other_questions_are_not_compared(tmp_path: Path) -> None:
    (first, second, *_) = own_questions()
    write_answers(tmp_path / "kept", "http://x", "m", [KeptAnswer(first.id, second.digest, "Hi", finish="stop")])
    kept = read_answers(tmp_path / "kept")
    with pytest.raises(UsageError, match="another question 'simple_1'"):
        await compare_servers(AskedServer("http://127.0.0.1:9"), [first], dialect=CHAT, reference=kept)
    with pytest.raises(UsageError, match="no answer to any of these questions"):
        await compare_servers(AskedServer("http://127.0.0.1:9"), [second], dialect=CHAT, reference=kept)


async def test_a_server_that_is_busy_is_asked_again() -> None:
    times = iter(range(99))

    async with served(scripted(lambda reply, body: 429 if next(times) % 2 == 0 else None)) as url:
        report = await compare_servers(AskedServer(f"{url}/v1"), own_questions()[:1], dialect=CHAT)
    assert report.is_finished and not report.failed and next(times) == 2


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    app = scripted()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].endswith("completions"):
            await asyncio.sleep(60)
        await app(scope, receive, send)

    async with served(late, force=True) as url:
        report = await compare_servers(
            AskedServer(f"{url}/v1"),
            own_questions(),
            dialect=CHAT,
            reference=AskedServer(f"{url}/v1"),
            seconds=0.3,
            concurrency=2,
        )
    assert "in a row did not come" in report.stopped and len(report.answers) < 10
    assert not report.is_finished and "could not be found out" not in reports.conclude(report)
    assert ElementTree.fromstring(reports.as_junit(report)).get("errors") == "1"


async def test_a_reference_that_answers_nothing_makes_nothing_clean() -> None:
    report = await held_against(None, lambda reply, body: 500)
    assert not report.is_finished and not report.failed
    assert "did not answer 48 of 48" in report.remarks["no reference"]
    assert "could not be found out" in reports.conclude(report)


async def test_answers_that_are_all_cut_make_nothing_clean() -> None:
    def cut(reply: Any, body: Any) -> Any:
        return {"content": "Zürich is", "finish_reason": "length"}

    report = await held_against(cut, cut)
    assert not report.is_finished and not report.failed
    assert "48 of 48 answers had no more tokens" in report.remarks["cut"]
    assert "could not be found out" in reports.conclude(report)
    assert ElementTree.fromstring(reports.as_junit(report)).get("errors") == "1"


async def test_the_conclusion_names_the_measures_for_which_no_answer_counts() -> None:
    async with served(scripted()) as url:
        server, questions = AskedServer(f"{url}/v1"), choose(own_questions(), ["none"])
        report = await compare_servers(server, questions, dialect=CHAT, reference=server)
    assert report.is_finished and not report.failed
    assert "as the reference by 8 of 16 measures; no answer counts for schema, trigger, " in reports.conclude(report)


async def test_a_key_that_is_wanted_is_said() -> None:
    async with served(scripted(lambda reply, body: 401)) as url:
        with pytest.raises(ModelError, match="wants another key"):
            await compare_servers(
                AskedServer(f"{url}/v1"), own_questions(), dialect=CHAT, reference=AskedServer(f"{url}/v1"), concurrency=3
            )


def compared(one: list[ReceivedCall], other: list[ReceivedCall]) -> ComparedAnswer:
    question = own_questions()[0]
    answers = [KeptAnswer(question.id, question.digest, calls=tuple(calls), finish="calls") for calls in (one, other)]
    return ComparedAnswer(question, answers[0], None, answers[1])


def measure(name: str) -> Measure:
    return next(item for item in MEASURES if item.name == name)


@pytest.mark.parametrize(
    ("ours", "theirs", "arguments", "keys"),
    [
        ('{"a": 1}', '{"a": 1.0}', True, True),
        ('{"a": 1}', '{"a": true}', False, True),
        ('{"a": 1, "b": {"c": 1, "d": 2}}', '{"a": 1, "b": {"d": 2, "c": 1}}', True, False),
        ('{"a": [{"x": 1, "y": 2}]}', '{"a": [{"y": 2, "x": 1}]}', True, False),
        ('{"b": 1, "a": 2}', '{"a": 1, "c": 3, "b": 2}', False, False),
        ('{"a": 1, "b": 2}', '{"a": 1, "c": 3, "b": 2}', False, True),
        ("oops", "oops", True, True),
        ("oops", "{}", False, True),
    ],
)
def test_arguments_are_compared_by_value_and_keys_by_their_order(ours: str, theirs: str, arguments: bool, keys: bool) -> None:
    item = compared([ReceivedCall("f", ours)], [ReceivedCall("f", theirs)])
    assert (not measure("arguments").judge(item), not measure("keys").judge(item)) == (arguments, keys)


def test_calls_may_come_in_any_order() -> None:
    one, two = ReceivedCall("f", '{"a": 1}'), ReceivedCall("f", '{"a": 2}')
    assert measure("arguments").judge(compared([one, two], [two, one])) == ""
    assert "2, and the reference has 1" in (measure("arguments").judge(compared([one, two, two], [two, one, one])) or "")


def test_hostile_answers_take_no_time() -> None:
    deep = ReceivedCall("f", '{"a": ' + "[" * 5000 + "]" * 5000 + "}")
    many = [ReceivedCall("f", json.dumps({"a": number % 7})) for number in range(5000)]
    for item in (compared([deep], [deep]), compared(many, [*many[1:], deep]), compared([deep], many)):
        for measured in MEASURES:
            measured.judge(item)
    assert canonical({"a": float("inf")})


def test_f1_is_told_from_the_counts() -> None:
    trigger = measure("trigger")
    # 8 times both call, once only the server, once only the reference: precision and recall are 8 of 9
    assert trigger.scale(8 / 10) == pytest.approx(2 * 8 / (2 * 8 + 1 + 1))
