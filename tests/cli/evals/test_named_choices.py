"""What is chosen by name: a name that fits nothing is said, also where others fit, and is not passed over."""

import json
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from tests.evals.against.scripted import scripted
from tests.serving import served_apart


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (["--only", "answers.models", "--only", "choices.requierd"], "choices.requierd"),
        (["--quick", "--only", "choices.requierd"], "choices.requierd"),
        (["--record", "kept.jsonl", "--only", "simple_1", "--only", "paralel"], "paralel"),
    ],
)
def test_a_probe_or_case_that_there_is_not_is_said_beside_others(
    callsmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], unknown: str
):
    monkeypatch.chdir(tmp_path)
    with served_apart(scripted()) as url:
        result = callsmith("check", f"{url}/v1", *arguments)
    assert result.code == 2
    assert unknown in result.err


def test_a_category_that_there_is_not_is_said_beside_others(callsmith, tmp_path: Path):
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"id": "1", "messages": [{"role": "user", "content": "Hi"}], "expect": "no_call"}))
    arguments = ("--cases", str(cases), "--model", "scripted:Hi", "--out", str(tmp_path / "out"))
    result = callsmith("eval", *arguments, "--categories", "own,wether")
    assert result.code == 2
    assert "wether" in result.err
    assert callsmith("eval", *arguments, "--categories", "own").code == 0


def test_a_quick_check_has_only_what_the_server_speaks(callsmith):
    with served_apart(scripted()) as url:
        result = callsmith("check", f"{url}/v1", "--quick", "--only", "responses.answers.*")
    assert "18 probes, chat" in result.out
