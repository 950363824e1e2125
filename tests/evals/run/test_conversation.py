"""Conversations, with a checker that is pretended: its world counts the calls."""

from pathlib import Path
from typing import Any

import pytest

from callsmith.core.values import Message, Tool
from callsmith.engines.scripted import Scripted
from callsmith.evals.bfcl.checker import Checker
from callsmith.evals.cases.case import Case, Turn, World
from callsmith.evals.run.conversation import MOST_STEPS
from callsmith.evals.run.record import CaseRecord, Records, read_records
from callsmith.evals.run.runner import Runner, RunSettings
from callsmith.evals.run.setup import NAMED
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits

COUNTING = """
import json, sys
seen = 0
for line in sys.stdin:
    asked = json.loads(line)
    if asked["check"] == "run":
        seen += len(asked["calls"])
        answer = {"results": [f"call {seen}" for _ in asked["calls"]]}
    else:
        answer = {"valid": len(asked["turns"]) == 2, "error_type": "", "error": json.dumps(asked["turns"])}
    print(json.dumps(answer), flush=True)
"""
LS, SORT = Tool("ls"), Tool("sort")
CASE = Case(
    "multi_turn_base_0",
    "multi_turn_base",
    (Turn((Message.user("List it."),), (LS,)), Turn((Message.user("Sort it."),), (SORT,))),
    world=World("multi_turn_base_0", ("GorillaFileSystem",), {}, (("ls()",), ("sort()",))),
)


def call(name: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'


async def hold(tmp_path: Path, replies: list[str], setup: str = "free", **traits: Any) -> tuple[Scripted, CaseRecord]:
    program = tmp_path / "counting.py"
    program.write_text(COUNTING)
    engine, checker = Scripted(replies, repeat=True), Checker(tmp_path, program=program)
    model = LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(**traits))
    try:
        runner = Runner(model, {"m": NAMED[setup]}, Records(tmp_path / "out"), checker, RunSettings(concurrency=1))
        await runner.run([CASE])
    finally:
        await checker.close()
    (record,) = read_records(tmp_path / "out")
    return engine, record


async def test_tools_run_and_the_next_turn_begins_when_nothing_is_called(tmp_path: Path):
    engine, record = await hold(tmp_path, [call("ls"), "Listed.", call("sort"), call("ls"), "Sorted."])
    assert not record.error
    assert record.is_right
    assert record.steps == 5
    assert [item["name"] for item in record.calls] == ["ls", "sort", "ls"]
    prompts = [request.prompt.text for request in engine.asked]
    assert "call 1" in prompts[1]
    assert "Sort it." not in prompts[1]
    assert "Sort it." in prompts[2]
    assert record.prompt_tokens > len(prompts)


async def test_a_tool_that_is_not_known_yet_is_not_run(tmp_path: Path):
    engine, record = await hold(tmp_path, [call("sort"), "Well.", "Well."], setup="free-repaired")
    assert "there is no tool" in engine.asked[1].prompt.text
    assert not record.calls and record.retries == 1  # it is one of the tools of this conversation, but not of this turn


async def test_a_turn_that_does_not_end_is_ended(tmp_path: Path):
    engine, record = await hold(tmp_path, [call("ls")])
    assert (record.is_right, record.error_type) == (False, "multi_turn:force_terminated")
    assert len(engine.asked) == MOST_STEPS + 1


@pytest.mark.parametrize(("setup", "requests"), [("free", MOST_STEPS + 1), ("default", 20)])
async def test_the_guards_of_a_model_count_only_where_the_setup_has_them(tmp_path: Path, setup: str, requests: int):
    engine, _ = await hold(tmp_path, [call("ls")], setup, guards=("small",))
    assert (len(engine.asked) > MOST_STEPS) == (requests > MOST_STEPS)
