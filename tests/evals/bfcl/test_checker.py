"""The checker's process: a pretended checker where the benchmark is not there, and what is done when it misbehaves."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import ModelError
from callsmith.core.values import Call, Message, Tool
from callsmith.evals.bfcl import checker_process
from callsmith.evals.bfcl.checker import Checker
from callsmith.evals.cases.case import Case, Turn, World

ECHO = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["calls"] == [{"sleep": {}}]: time.sleep(60)
    if asked["calls"] == [{"end": {}}]: sys.exit()
    told = {"asked": asked, "pid": os.getpid(), "environment": sorted(os.environ), "isolated": sys.flags.isolated}
    print(json.dumps({"valid": True, "error_type": "", "error": json.dumps(told)}), flush=True)
"""


def case(*answers: Any) -> Case:
    schema: Any = {
        "type": "object",
        "properties": {"x": {"type": "number"}, "y": {"type": "array", "items": {"type": "object"}}, "z": {}},
        "required": ["x"],
    }
    return Case("one", "own", (Turn((Message.user("?"),), (Tool("f", parameters=schema),)),), answers=answers)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "echo.py"
    path.write_text(ECHO)
    return path


async def test_the_checker_runs_apart_and_is_told_tools_in_its_own_words(tmp_path: Path, program: Path, monkeypatch: Any):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    checker = Checker(tmp_path, program=program)
    try:
        verdict = await checker.check_calls(case({"f": {"x": [1]}}), [Call("f", {"x": 1})])
    finally:
        await checker.close()
    body = json.loads(verdict.error)
    assert body["isolated"]
    assert "OPENAI_API_KEY" not in body["environment"]
    assert body["asked"]["calls"] == [{"f": {"x": 1}}]
    assert body["asked"]["category"] == "multiple"
    assert body["asked"]["functions"][0]["parameters"] == {
        "type": "dict",
        "properties": {"x": {"type": "float"}, "y": {"type": "array", "items": {"type": "dict"}}, "z": {"type": "any"}},
        "required": ["x"],
    }


async def test_tools_of_ones_own_may_have_any_schema(tmp_path: Path, program: Path):
    properties: Any = {
        "anything": True,
        "list": {"type": "array", "items": True},
        "nothing": {"type": "null"},
        "either": {"type": ["string", "null"]},
        "one": {"enum": ["a"]},
    }
    tool = Tool("f", parameters={"type": "object", "properties": properties})
    own = replace(case({"f": {"nothing": [None]}}), turns=(Turn((Message.user("?"),), (tool,)),))
    checker = Checker(tmp_path, program=program)
    try:
        verdict = await checker.check_calls(own, [Call("f", {"nothing": None})])
    finally:
        await checker.close()
    told = json.loads(verdict.error)["asked"]["functions"][0]["parameters"]["properties"]
    any: Any = {"type": "any"}
    assert told == {"anything": any, "list": {"type": "array", "items": any}, "nothing": any, "either": any, "one": any}


async def test_a_verdict_that_does_not_come_is_wrong_and_the_next_one_comes_from_a_new_process(tmp_path: Path, program: Path):
    checker = Checker(tmp_path, program=program, seconds=4.0)
    try:
        late = await checker.check_calls(case({"f": {}}), [Call("sleep")])
        assert (late.is_right, late.error_type) == (False, "checker:timeout")
        assert (await checker.check_calls(case({"f": {}}), [Call("f")])).is_right
    finally:
        await checker.close()


WORLDS = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["check"] == "conversation": answer = {"valid": False, "error_type": "multi_turn:other_state", "error": ""}
    elif asked["calls"] == [{"sleep": {}}]: time.sleep(60)
    else: answer = {"results": ["done" for _ in asked["calls"]]}
    print(json.dumps(answer), flush=True)
"""


async def test_a_conversation_whose_world_another_has_ended_is_an_error_and_not_wrong(tmp_path: Path):
    program, world = tmp_path / "worlds.py", World("multi_turn_base_0", ("GorillaFileSystem",), {})
    program.write_text(WORLDS)
    checker = Checker(tmp_path, program=program, seconds=4.0)
    try:
        for name in ("one", "two"):
            assert await checker.run_calls(name, world, [Call("ls")]) == ["done"]
        (late,) = await checker.run_calls("other", world, [Call("sleep")])
        assert "no verdict within 4 s" in late
        with pytest.raises(ModelError, match="its world"):
            await checker.run_calls("one", world, [Call("ls")])
        with pytest.raises(ModelError, match="its world"):
            await checker.check_conversation("two", world, [])
        assert not (await checker.check_conversation("other", world, [])).is_right  # that was its own doing
        assert await checker.run_calls("new", world, [Call("ls")]) == ["done"]
    finally:
        await checker.close()


async def test_a_checker_that_ends_is_an_error_and_no_verdict(tmp_path: Path, program: Path):
    checker = Checker(tmp_path, program=program)
    try:
        with pytest.raises(ModelError, match="ended unexpectedly"):
            await checker.check_calls(case({"f": {}}), [Call("end")])
    finally:
        await checker.close()


@pytest.mark.parametrize(
    ("event", "arguments"),
    [("open", ("x", "w", 0o1101)), ("subprocess.Popen", ()), ("os.system", ("rm",)), ("socket.connect", ())],
)
def test_what_no_checker_needs_is_refused(event: str, arguments: tuple[Any, ...]):
    with pytest.raises(PermissionError):
        checker_process.refuse(event, arguments)
    checker_process.refuse("open", ("x", "r", 0))
