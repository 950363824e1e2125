"""`callsmith tools`, and `--trace`, which gives it something to report on."""

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from callsmith.cli.main import app
from tests.cli.conftest import CALL

SECRET = "hunter2-Ada-Lovelace"


@pytest.mark.parametrize("command", [(), ("list",), ("report",)], ids=["tools", "list", "report"])
def test_every_command_explains_itself(callsmith, command: tuple[str, ...]):
    result = callsmith("tools", *command, "--help")
    assert (result.code, "Usage: " in result.out) == (0, True)


def test_tools_are_listed_with_what_they_cost_and_whether_they_do_something(callsmith):
    result = callsmith("tools", "list", "--tools", "demo")
    assert result.code == 0
    assert "calculate" in result.out
    assert "(an estimate)" in result.out
    rows = json.loads(callsmith("tools", "list", "--json").out)
    by_name = {row["name"]: row for row in rows}
    assert by_name["calculate"]["arguments"] == ["expression"]
    assert not by_name["calculate"]["side_effects"]
    assert {row["side_effects"] for row in rows} == {True, False}
    assert all(10 < row["tokens"] < 1000 for row in rows)
    assert f"{len(rows)} tools, about {sum(row['tokens'] for row in rows)} tokens" in result.out


def test_a_model_counts_what_its_tools_cost(callsmith):
    result = callsmith("tools", "list", "--model", "scripted:hello")
    assert "~" not in result.out
    rows = json.loads(callsmith("tools", "list", "--model", "scripted:hello", "--json").out)
    whole = int(re.search(r"(\d+) tokens of every prompt \(scripted:hello\)", result.out)[1])
    apart = sum(row["tokens"] for row in rows)
    assert 0 < apart <= whole < 2 * apart  # what frames them all is nobody's cost
    assert f"python: {len(rows)} tools, {apart} tokens" in result.out


def test_a_longer_description_costs_more(callsmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "costly_tools.py").write_text(
        'from callsmith.core.values import Tool\n\n\nclass Listed:\n    async def tools(self):\n'
        '        return [Tool("short"), Tool("shirt", "x" * 400)]\n\n    def call(self, call, context): ...\n\n\n'
        "listed = Listed()\n",
        "utf-8",
    )  # fmt: skip
    short, long = json.loads(callsmith("tools", "list", "--tools", "costly_tools:listed", "--json").out)
    assert long["tokens"] - short["tokens"] == 100


def test_tools_that_are_not_there_are_told(callsmith):
    result = callsmith("tools", "list", "--tools", "no_such_module")
    assert (result.code, result.err) == (2, "error: there is no Python module 'no_such_module' here\n")
    result = callsmith("tools", "list", "--tools", "no_such_file.py")
    assert (result.code, result.err) == (2, "error: there is no file 'no_such_file.py' here\n")


def test_tools_are_taken_from_a_file(callsmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "of_a_file").mkdir()
    (tmp_path / "of_a_file" / "beside_it.py").write_text("ANSWER = 42\n", "utf-8")
    own = (
        "from callsmith import tool\nfrom beside_it import ANSWER\n\n\n"
        '@tool\ndef marked() -> int:\n    """Marked."""\n    return ANSWER\n\n\n'
        'def other() -> int:\n    """Not marked."""\n    return 1\n'
    )
    for name in ("filed_tools.py", "json.py"):
        (tmp_path / "of_a_file" / name).write_text(own, "utf-8")
    for spec, named in (("filed_tools.py", "marked"), ("filed_tools.py:other", "other")):
        for folder in ("of_a_file", tmp_path / "of_a_file"):
            listed = json.loads(callsmith("tools", "list", "--tools", f"{folder}/{spec}", "--json").out)
            assert [row["name"] for row in listed] == [named]
    result = callsmith("tools", "list", "--tools", "of_a_file/json.py")
    assert (result.code, "another module 'json'" in result.err) == (2, True)


@pytest.mark.req("R221")
def test_chats_are_traced_without_what_was_said_and_reported_on(callsmith, script, tmp_path: Path):
    trace = str(tmp_path / "trace.jsonl")
    for _ in range(2):
        model = script(
            CALL.format("current_time", json.dumps({"timezone": SECRET})),
            CALL.format("calculate", '{"expression": "6 * 7"}'),
            SECRET,
        )
        assert callsmith("chat", "--model", model, "--trace", trace, f"I am {SECRET}.").code == 0
    assert SECRET not in Path(trace).read_text("utf-8")
    result = callsmith("tools", "report", "--trace", trace)
    assert result.code == 0
    assert result.out.startswith("2 turns\n")
    never = next(line for line in result.out.splitlines() if line.startswith("Never called: "))
    assert "get_weather" in never and "calculate" not in never
    assert "  current_time in vain, then calculate (2 ×)" in result.out
    as_json = json.loads(callsmith("tools", "report", "--trace", trace, "--json").out)
    assert as_json["tools"]["current_time"]["failed"] == 2
    assert as_json["tools"]["calculate"] | {"seconds": 0, "tokens": 0} == {
        "offered": 2, "called": 2, "invalid": 0, "repaired": 0, "declined": 0, "failed": 0, "timeouts": 0, "cached": 0,
        "outcomes": {"ok": 2}, "seconds": 0, "tokens": 0,
    }  # fmt: skip
    assert as_json["confused"] == [{"tool": "current_time", "other": "calculate", "why": "instead", "times": 2}]


def test_calls_that_nobody_approves_are_reported_as_declined(callsmith, script, tmp_path: Path):
    trace = str(tmp_path / "trace.jsonl")
    arguments = json.dumps({"to": "Ada", "text": "Hi"})
    callsmith("chat", "--model", script(CALL.format("send_message", arguments), "Well."), "--trace", trace, "Write to Ada.")
    tools = json.loads(callsmith("tools", "report", "--trace", trace, "--json").out)["tools"]
    assert (tools["send_message"]["called"], tools["send_message"]["declined"]) == (1, 1)


def test_without_the_option_nothing_is_written(callsmith, script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    callsmith("chat", "--model", script("Hi."), "Hello")
    assert [path.name for path in tmp_path.iterdir()] == ["replies.jsonl"]


@pytest.mark.req("R221")
def test_the_server_traces_across_processes(callsmith, script, tmp_path: Path):
    trace = str(tmp_path / "trace.jsonl")
    for _ in range(2):
        model = script(CALL.format("calculate", '{"expression": "6 * 7"}'), "Done.")
        command = [sys.executable, "-m", "callsmith", "serve", "--port", "0", "--model", model, "--tools", "demo"]
        process = subprocess.Popen([*command, "--trace", trace], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            url = process.stdout.readline().partition(" at ")[2].partition("/v1")[0]
            body = {"model": "scripted", "messages": [{"role": "user", "content": SECRET}]}
            assert httpx2.post(f"{url}/v1/chat/completions", json=body).status_code == 200
        finally:
            process.kill()
            process.communicate()
    assert SECRET not in Path(trace).read_text("utf-8")
    report = json.loads(callsmith("tools", "report", "--trace", trace, "--json").out)
    assert (report["turns"], report["tools"]["calculate"]["called"]) == (2, 2)


def test_lines_that_are_no_turns_are_counted_and_passed_over(callsmith, tmp_path: Path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"when":1,"model":"m"}\n{"when":2,"mod', "utf-8")
    result = callsmith("tools", "report", "--trace", str(trace))
    assert result.err == "1 of 2 lines are no turns and were passed over\n"
    assert result.out == "1 turns\nNever called: none\nOften invalid: none\nConfused: none\n"


def test_a_trace_that_cannot_be_written_is_told_before_anything_is_said(callsmith, script, tmp_path: Path):
    result = callsmith("chat", "--model", script("Hi."), "--trace", str(tmp_path / "missing" / "t.jsonl"), "Hello")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("error: cannot write ")


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("import os\n\nimport nothing_like_this\n", "line 3: import nothing_like_this", "ModuleNotFoundError: No module named"),
        ("def f(:\n    pass\n", "line 1: def f(:", "SyntaxError: invalid syntax"),
        ("x = {}\nx['a']\n", "line 2: x['a']", "KeyError: 'a'"),
        ("import sys\nsys.exit(3)\n", "line 2: sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_three_lines(
    callsmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: str, what: str
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unfit_tools.py").write_text(source, "utf-8")
    result = callsmith("tools", "list", "--tools", "unfit_tools")
    monkeypatch.delitem(sys.modules, "unfit_tools", raising=False)
    first, second, third = result.err.splitlines()
    assert (result.code, first) == (2, "error: the tools module 'unfit_tools' cannot be imported")
    assert second == f"  {tmp_path / 'unfit_tools.py'}, {line}"
    assert third.startswith(f"  {what}")


def test_where_there_is_little_room_no_name_is_cut_and_no_line_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "a_tool_with_quite_a_long_name_that_has_to_be_readable"
    source = f"from callsmith import tool\n\n@tool\ndef {name}(city: str, days: int = 1) -> str:\n    'Tells all it knows.'\n"
    (tmp_path / "long_named.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["tools", "list", "--tools", "long_named"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    assert name in result.stdout.splitlines()
    assert "arguments: city, days" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
