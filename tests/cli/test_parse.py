"""`callsmith parse`: one text, or a corpus line by line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
READ = {"name": "get_weather", "arguments": {"city": "Zürich"}}


def corpus(callsmith, *rows: Any, code: int = 0) -> list[dict[str, Any]]:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    result = callsmith("parse", "--jsonl", stdin="\n".join(lines) + "\n")
    assert result.code == code
    return [json.loads(line) for line in result.out.splitlines()]


@pytest.mark.req("R47")
def test_a_text_becomes_content_reasoning_and_calls(callsmith, tmp_path: Path):
    (tmp_path / "tools.json").write_text(json.dumps([TOOL]), "utf-8")
    text = f"<think>\nHm.\n</think>\n\nLet me see.{CALL}"
    result = callsmith("parse", "--format", "hermes", "--tools", str(tmp_path / "tools.json"), "-", stdin=text)
    assert result.code == 0
    assert json.loads(result.out) == {"content": "Let me see.", "reasoning": "Hm.", "calls": [READ]}


def test_a_file_is_read_as_well_as_standard_input(callsmith, tmp_path: Path):
    (tmp_path / "answer.txt").write_text("Hello", "utf-8")
    result = callsmith("parse", "-f", "hermes", str(tmp_path / "answer.txt"))
    assert json.loads(result.out) == {"content": "Hello", "reasoning": None, "calls": []}


def test_what_the_prompt_opened_is_not_repeated(callsmith):
    result = callsmith("parse", "-f", "hermes", "--opened", "<think>\n", stdin="Hm.\n</think>\n\nYes.")
    assert json.loads(result.out) == {"content": "Yes.", "reasoning": "Hm.", "calls": []}


def test_one_text_needs_a_format(callsmith):
    assert callsmith("parse", stdin="Hello").code == 2


def test_a_missing_file_is_told(callsmith, tmp_path: Path):
    result = callsmith("parse", "-f", "hermes", str(tmp_path / "nothing"))
    assert result.code == 2
    assert "cannot read" in result.err


def test_a_corpus_has_a_line_for_a_line(callsmith):
    rows = corpus(
        callsmith,
        {"format": "hermes", "tools": [TOOL], "output": CALL},
        {"format": "hermes", "output": "Hello"},
        {
            "format": "mistral",
            "tools": [{"name": "f"}],
            "output": '[TOOL_CALLS] [{"name": "f", "arguments": {}, "id": "abcdefghi"}]',
        },
    )
    assert rows == [
        {"content": None, "reasoning": None, "calls": [READ]},
        {"content": "Hello", "reasoning": None, "calls": []},
        {"content": None, "reasoning": None, "calls": [{"name": "f", "arguments": {}, "id": "abcdefghi"}]},
    ]


def test_chunks_are_read_instead_of_the_output(callsmith):
    pieces = [CALL[start : start + 3] for start in range(0, len(CALL), 3)]
    assert corpus(callsmith, {"format": "hermes", "tools": [TOOL], "output": "other", "chunks": pieces})[0]["calls"] == [READ]


@pytest.mark.parametrize(
    ("format", "opened", "output"),
    [
        ("hermes", None, "Hm.\n</think>\n\nYes."),
        ("hermes", "<|im_start|>assistant\n", "Hm.\n</think>\n\nYes."),
        ("hermes", "<|im_start|>assistant\n<think>", "\nHm.\n</think>\n\nYes."),
        ("hermes", "<think>\nH", "m.\n</think>\n\nYes."),
        ("harmony", "<|start|>assistant", "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
    ],
)
def test_thinking_means_that_the_answer_begins_inside_the_reasoning(callsmith, format: str, opened: str | None, output: str):
    row = corpus(callsmith, {"format": format, "output": output, "opened": opened, "thinking": True})[0]
    assert row == {"content": "Yes.", "reasoning": "Hm.", "calls": []}


def test_thinking_means_nothing_to_a_format_without_reasoning(callsmith):
    assert corpus(callsmith, {"format": "pythonic", "output": "Yes.", "thinking": True})[0]["content"] == "Yes."


@pytest.mark.req("R171")
def test_what_cannot_be_read_is_listed_with_the_reason(callsmith):
    cut = CALL[:-20]
    row = corpus(callsmith, {"format": "hermes", "tools": [TOOL], "output": cut})[0]
    assert row["calls"] == []
    assert row["unreadable"] == [{"text": cut, "reason": "truncated"}]


@pytest.mark.parametrize(
    "bad",
    [
        "not json",
        "[1, 2]",
        "[" * 100_000,
        {"format": "hermse", "output": "x"},
        {"output": "x"},
        {"format": "hermes"},
        {"format": "hermes", "output": 5},
        {"format": "hermes", "chunks": ["a", 1]},
        {"format": "hermes", "output": "x", "tools": "get_weather"},
    ],
    ids=lambda bad: str(bad)[:40],
)
def test_a_bad_line_is_an_error_line_and_the_next_one_is_read(callsmith, bad: Any):
    rows = corpus(callsmith, bad, {"format": "hermes", "output": "Hello"}, code=1)
    assert list(rows[0]) == ["error"]
    assert rows[1]["content"] == "Hello"


def test_blank_lines_are_skipped(callsmith):
    assert len(corpus(callsmith, "", {"format": "hermes", "output": "Hello"}, "  ")) == 1


def test_half_a_character_comes_through(callsmith):
    result = callsmith("parse", "--jsonl", stdin='{"format": "hermes", "output": "a\\ud83d"}\n')
    assert result.out.isascii()
    assert json.loads(result.out)["content"] == "a\ud83d"


@pytest.mark.parametrize(
    "tools",
    [
        [TOOL],
        [TOOL["function"]],
        {"tools": [TOOL]},
        [{"name": "get_weather", "input_schema": {"type": "object"}}],
        [{"description": "no name"}, 5, None, TOOL, {"type": "web_search"}, {"function": {"name": "a b"}}],
    ],
)
def test_tools_come_in_many_shapes(callsmith, tools: Any):
    # Without a declared tool of that name, this format takes a bare object for what it is: text.
    assert corpus(callsmith, {"format": "json", "tools": tools, "output": json.dumps(READ)})[0]["calls"] == [READ]


def test_the_command_line_gives_what_the_lines_leave_out(callsmith, tmp_path: Path):
    (tmp_path / "tools.json").write_text(json.dumps([TOOL]), "utf-8")
    line = json.dumps({"output": json.dumps(READ)})
    result = callsmith("parse", "--jsonl", "-f", "json", "--tools", str(tmp_path / "tools.json"), stdin=line)
    assert json.loads(result.out)["calls"] == [READ]


def test_each_answer_is_there_before_the_next_line_is_asked_for():
    command = [sys.executable, "-m", "callsmith", "parse", "--jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin and process.stdout
        for text in ("one", "two"):
            process.stdin.write(json.dumps({"format": "hermes", "output": text}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["content"] == text
        process.stdin.close()
        assert process.wait() == 0
