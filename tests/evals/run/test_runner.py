"""Runs: what is recorded, and that a run that was stopped goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import ModelError, Unavailable, UsageError
from callsmith.core.events import ModelEvent, Stopped
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.evals.cases.case import Case, Turn
from callsmith.evals.run.record import RECORDS, CaseRecord, Records, read_records
from callsmith.evals.run.runner import Runner, RunSettings
from callsmith.evals.run.setup import NAMED
from callsmith.evals.scores.scores import score
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel

TOOL = Tool("add", parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
SETUPS = {"m/free": NAMED["free"], "m/free-repaired": NAMED["free-repaired"]}
ONE_AT_A_TIME = RunSettings(concurrency=1)


def case(id: str, **fields: Any) -> Case:
    right: Any = {"expect": "calls", "calls": (Call("add", {"a": 1}),), **fields}
    return Case(id, "sums", (Turn((Message.user(f"What is {id}?"),), (TOOL,)),), **right)


def written(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'


def model(*replies: Any) -> LocalModel:
    return LocalModel(Scripted(replies), format_named("hermes"), Template(CHATML))


async def test_a_record_tells_what_was_written_and_what_became_of_it(tmp_path: Path):
    records = Records(tmp_path)
    text = written('{"a": "1"}')
    await Runner(model(text, text), SETUPS, records, settings=ONE_AT_A_TIME).run([case("one")])
    free, repaired = read_records(tmp_path)
    assert free.text == repaired.text == text
    assert free.calls == ({"name": "add", "arguments": {"a": "1"}},)
    assert (free.is_right, free.is_equal, free.valid, free.error_type) == (False, False, 0, "not_equal")
    assert repaired.calls == ({"name": "add", "arguments": {"a": 1}},)
    assert (repaired.is_right, repaired.is_equal, repaired.valid, repaired.judge) == (True, True, 1, "ast_eq")
    assert repaired.finish == "calls"
    assert repaired.prompt_tokens > 0 < repaired.completion_tokens
    assert repaired.seconds > 0


async def test_all_setups_of_a_case_are_asked_before_the_next_case(tmp_path: Path):
    scripted_model = model(*(["Hello"] * 4))
    seen: list[tuple[str, str]] = []
    runner = Runner(scripted_model, SETUPS, Records(tmp_path), settings=ONE_AT_A_TIME)
    await runner.run([case("one"), case("two")], lambda record: seen.append((record.case, record.setup)))
    assert seen == [(text, setup) for text in ("one", "two") for setup in SETUPS]


async def test_an_error_is_wrong_also_where_no_call_is_right(tmp_path: Path):
    replies = ["No.", Unavailable("gone"), written('{"a": 1}'), "Yes."]
    cases = [case("text", expect="no_call", calls=()), case("call", expect="no_call", calls=())]
    await Runner(model(*replies), SETUPS, Records(tmp_path), settings=ONE_AT_A_TIME).run(cases)
    by_case = {(record.case, record.setup): record for record in read_records(tmp_path)}
    assert [record.is_right for record in by_case.values()] == [True, False, False, True]
    failed = by_case["text", "m/free-repaired"]
    assert "gone" in failed.error
    assert failed.error_type == "error"
    assert failed.is_equal is None


async def test_an_error_is_no_equal_answer_where_calls_are_right(tmp_path: Path):
    replies = [written('{"a": 1}'), Unavailable("gone")]
    cases = [case("one"), case("two")]
    await Runner(model(*replies), {"m/free": NAMED["free"]}, Records(tmp_path), settings=ONE_AT_A_TIME).run(cases)
    records = read_records(tmp_path)
    assert [record.is_equal for record in records] == [True, False]
    equal = score("m/free", records).equal
    assert (equal.right, equal.n) == (1, 2)


async def test_a_run_that_was_stopped_goes_on_and_asks_again_only_what_failed(tmp_path: Path):
    cases = [case("one"), case("two")]
    records = Records(tmp_path)
    await Runner(model("Hello", Unavailable("gone"), "Hello", "Hello"), SETUPS, records, settings=ONE_AT_A_TIME).run(cases)
    records.close()
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b'{"case": "two", "cate')  # as a kill leaves it

    again = model(written('{"a": 1}'))
    seen: list[CaseRecord] = []
    await Runner(again, SETUPS, Records(tmp_path), settings=ONE_AT_A_TIME).run(cases, seen.append)
    assert [(record.case, record.setup) for record in seen] == [("one", "m/free-repaired")]
    stored = read_records(tmp_path)
    assert len(stored) == 4
    assert all(not record.error for record in stored)


async def test_a_case_that_was_changed_is_asked_again(tmp_path: Path):
    setups = {"m/free": NAMED["free"]}
    await Runner(model("Hello"), setups, Records(tmp_path), settings=ONE_AT_A_TIME).run([case("one")])
    changed = case("one", calls=(Call("add", {"a": 2}),))
    await Runner(model(written('{"a": 2}')), setups, Records(tmp_path), settings=ONE_AT_A_TIME).run([changed])
    assert [record.is_right for record in read_records(tmp_path)] == [True]


def test_another_setup_under_the_same_name_is_refused(tmp_path: Path):
    records = Records(tmp_path)
    records.describe("m/free", {"model": "m", "choice": "auto"}, {"name": "M"})
    records.close()
    again = Records(tmp_path)
    again.describe("m/free", {"model": "m", "choice": "auto"}, {"name": "another place"})
    with pytest.raises(UsageError, match=r'"choice": "auto".*"choice": "required"'):
        again.describe("m/free", {"model": "m", "choice": "required"}, {})


async def test_a_model_that_only_fails_ends_the_run(tmp_path: Path):
    runner = Runner(model(), SETUPS, Records(tmp_path))
    with pytest.raises(ModelError, match="in a row have failed"):
        await runner.run([case(str(number)) for number in range(100)])


class Stuck:
    """A model that never answers the first question, and counts how many are asked at once."""

    def __init__(self) -> None:
        self.live = self.most = 0

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.live += 1
        self.most = max(self.most, self.live)
        try:
            await (asyncio.Event().wait() if "one" in request.messages[0].content else asyncio.sleep(0))
            yield Stopped("stop")
        finally:
            self.live -= 1


async def test_a_case_that_takes_too_long_is_an_error_and_others_go_on_meanwhile(tmp_path: Path):
    stuck = Stuck()
    runner = Runner(stuck, {"m/default": NAMED["default"]}, Records(tmp_path), settings=RunSettings(seconds=0.2, concurrency=3))
    await runner.run([case(name) for name in ("one", "two", "three", "four")])
    by_case = {record.case: record for record in read_records(tmp_path)}
    assert "no answer within" in by_case["one"].error
    assert not by_case["four"].error
    assert stuck.most == 3


def test_results_of_later_versions_can_be_read(tmp_path: Path):
    Records(tmp_path).close()
    row = {"case": "one", "category": "c", "setup": "s", "digest": "d", "is_right": True, "mood": "good"}
    (tmp_path / RECORDS).write_text(json.dumps(row) + "\n")
    assert read_records(tmp_path) == [CaseRecord("one", "c", "s", "d", True)]
