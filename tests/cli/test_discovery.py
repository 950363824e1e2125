"""`callsmith chat` with more tools than the model is shown."""

import json
from pathlib import Path

import pytest

CALL = "<tool_call>\n<name>{}</name>\n<arguments>{}</arguments>\n</tool_call>"


@pytest.mark.parametrize(("budget", "searched"), [("1", True), ("0", False)])
def test_beyond_the_budget_the_model_finds_its_tools(callsmith, tmp_path: Path, budget: str, searched: bool):
    script = tmp_path / "replies.jsonl"
    replies = [CALL.format("find_tools", '{"query": "calculate"}'), "I know now."]
    script.write_text("".join(json.dumps(reply) + "\n" for reply in replies), "utf-8")
    result = callsmith("chat", "What can you do?", "--model", f"scripted:{script}", "--tools-budget", budget)
    assert result.code == 0
    assert ("- calculate: " in result.out) == searched
    assert ("find_tools" in result.out) == searched, "what is no tool is not called"
    assert "I know now." in result.out
