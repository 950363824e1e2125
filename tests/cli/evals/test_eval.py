"""`callsmith eval`: cases of one's own, on a scripted model."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.evals.against.scripted import scripted
from tests.serving import served_apart

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
CALL = '<tool_call>\n<name>add</name>\n<arguments>{"a": 1}</arguments>\n</tool_call>'


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    def row(id: str, **more: Any) -> str:
        return json.dumps({"id": id, "messages": [{"role": "user", "content": id}], "tools": [ADD], **more})

    path = tmp_path / "cases.jsonl"
    rows = [row("one", calls=[{"name": "add", "arguments": {"a": 1}}]), row("none", expect="no_call", category="silence")]
    path.write_text("\n".join(rows))
    return path


def test_cases_of_ones_own_are_asked_scored_and_reported(callsmith, cases: Path, tmp_path: Path):
    out = str(tmp_path / "out")
    arguments = ("--cases", str(cases), "--model", f"m=scripted:{CALL}", "--setup", "free", "--setup", "required", "--out", out)
    result = callsmith("eval", *arguments)
    assert result.code == 0
    assert "m/free" in result.out
    assert "50.0 %" in result.out
    assert "4/4" in result.err
    scores = json.loads((tmp_path / "out" / "results.json").read_text())["scores"]
    assert [(score["setup"], score["overall"]["right"]) for score in scores] == [("m/free", 1), ("m/required", 1)]
    assert scores[0]["schema_valid"]["share"] == 1.0

    again = callsmith("eval", *arguments)
    assert "4 of 4 were answered before" in again.err
    compared = callsmith("eval", "compare", "free", "required", "--out", out, "--ids")
    assert "m/required against m/free, 2 cases" in compared.out
    assert "gained: none" in compared.out


def test_a_changed_setup_under_the_same_name_is_refused(callsmith, cases: Path, tmp_path: Path):
    arguments = ("eval", "--cases", str(cases), "--model", "m=scripted:Hello", "--out", str(tmp_path / "out"))
    assert callsmith(*arguments).code == 0
    result = callsmith(*arguments, "--max-tokens", "7")
    assert result.code == 2
    assert '"max_tokens": 512' in result.err


@pytest.mark.parametrize("arguments", [("--setup", "fre"), ("--ids", "two"), ("--categories", "noise")])
def test_what_there_is_not_is_said(callsmith, cases: Path, tmp_path: Path, arguments: tuple[str, str]):
    result = callsmith("eval", "--cases", str(cases), "--model", "scripted:Hi", "--out", str(tmp_path / "out"), *arguments)
    assert result.code == 2
    assert arguments[1] in result.err


def test_a_model_can_be_asked_behind_our_own_server(callsmith, cases: Path, tmp_path: Path):
    arguments = ("--cases", str(cases), "--model", f"scripted:{CALL}", "--serve", "--setup", "served=repairs:no")
    result = callsmith("eval", *arguments, "--out", str(tmp_path / "out"))
    assert result.code == 0, result.err
    (scores,) = json.loads((tmp_path / "out" / "results.json").read_text())["scores"]
    assert (scores["setup"], scores["overall"]["right"], scores["errors"]) == ("scripted/served", 1, 0)
    assert scores["schema_valid"] == {"right": 2, "n": 2, "share": 1.0, "low": pytest.approx(0.34, abs=0.01), "high": 1.0}


def test_answers_that_failed_are_said_and_the_command_ends_with_1_until_they_come(callsmith, cases: Path, tmp_path: Path):
    pytest.importorskip("aiohttp")
    is_broken = True

    def refuse(reply: Any, body: Any) -> int | None:
        return 400 if is_broken and body["messages"][-1]["content"] == "one" else None

    with served_apart(scripted(refuse)) as url:
        arguments = ("--cases", str(cases), "--model", f"m={url}/v1#m", "--out", str(tmp_path / "out"))
        failed = callsmith("eval", *arguments)
        is_broken = False
        again = callsmith("eval", *arguments)
    assert failed.code == 1
    assert "1 of 2 answers failed; the same command asks them again" in failed.err
    assert (tmp_path / "out" / "report.md").is_file()
    assert again.code == 0
    assert "failed" not in again.err
