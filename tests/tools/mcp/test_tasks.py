"""Calls that go on at the server as tasks, in both revisions that have them: of servers that keep their word and that do not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.ports import Checkpoint, Context
from callsmith.core.values import Call, Result
from callsmith.runtime.jobs.background import JOB_ID, BackgroundTools
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationReply, ElicitationRequest
from tests.tools.contract import outcome
from tests.tools.mcp.trying import call, called, noted, plain, status
from tests.waiting import until

pytestmark = pytest.mark.processes

eras = pytest.mark.parametrize("modern", [False, True], ids=["2025-11-25", "2026-07-28"])


def with_tasks(modern: bool, notes: Path | None = None, **tasks: Any) -> dict[str, Any]:
    return {"modern": modern, "tasks": tasks, **({"notes": str(notes)} if notes else {})}


def asked_for(notes: Path, what: str) -> list[str]:
    return [line for line in noted(notes) if line.startswith(what)]


@eras
async def test_a_tool_that_runs_as_a_task_is_followed_to_its_result(modern: bool, tmp_path: Path):
    notes = tmp_path / "notes"
    async with McpHost([plain(options=with_tasks(modern, notes), task_timeout=60)]) as host:
        tools = {tool.name: tool for tool in await host.tools()}
        assert (tools["task_only"].background, tools["sleep"].background) == (not modern, False)
        assert not status(host).notices
        progress, result = await called(host, "task_only")
        assert (result.ok, result.content) == (True, "the end")
        assert [item.text for item in progress] == ["look 2"]
        assert all(item.waits for item in progress)  # its time does not count as the call's
    wanted = "null" if modern else '{"ttl": 60000}'
    assert [line.partition(" ")[2] for line in asked_for(notes, "began")] == [f"task-1 task_only {wanted}"]
    assert not asked_for(notes, "tasks/cancel")


@eras
async def test_a_task_goes_on_in_the_background_as_a_job(modern: bool, tmp_path: Path):
    notes, jobs = tmp_path / "notes", Jobs()
    async with McpHost([plain(options=with_tasks(modern, notes))]) as host:
        toolset = BackgroundTools(host, jobs, ["sleep"])
        (_, begun) = await outcome(toolset.call(Call("sleep", {"seconds": 0}, "c1"), Context()))  # type: ignore[arg-type]
        assert begun.code == "accepted"
        (job,) = await jobs.list()
        assert [job.id] == JOB_ID.findall(begun.text)
        ended = [item async for item in jobs.follow(job)][-1]
        assert (ended.status, ended.checkpoint, ended.result.text) == ("done", "task-1", "the end")  # type: ignore[union-attr]
    assert asked_for(notes, "began")


async def test_a_tool_that_can_be_a_task_is_none_in_the_foreground(tmp_path: Path):
    notes = tmp_path / "notes"
    async with McpHost([plain(options=with_tasks(False, notes))]) as host:
        assert (await call(host, "sleep", seconds=0)).content == "slept 0"
    assert not asked_for(notes, "began")


@eras
async def test_a_job_that_is_cancelled_cancels_the_task(modern: bool, tmp_path: Path):
    notes, jobs = tmp_path / "notes", Jobs()
    async with McpHost([plain(options=with_tasks(modern, notes, after=10_000))]) as host:
        toolset = BackgroundTools(host, jobs, ["task_only"])
        await outcome(toolset.call(Call("task_only", {}, "c1"), Context()))  # type: ignore[arg-type]
        (job,) = await jobs.list()
        await until(lambda: bool(asked_for(notes, "tasks/get")))
        after = await jobs.cancel(job)
        assert after is not None and after.status == "cancelled"
        await until(lambda: asked_for(notes, "tasks/cancel") == ["tasks/cancel task-1"])


@eras
async def test_a_program_that_ends_leaves_the_task_to_the_next_one_which_finds_it_again(modern: bool, tmp_path: Path):
    notes, first = tmp_path / "notes", Jobs()
    async with McpHost([plain(options=with_tasks(modern, notes, after=30))]) as host:
        toolset = BackgroundTools(host, first, ["task_only"])
        await outcome(toolset.call(Call("task_only", {}, "c1"), Context(subject="ada")))  # type: ignore[arg-type]
        (job,) = await first.list("ada")
        await until(lambda: bool(asked_for(notes, "tasks/get")))
        await first.close()
        (left,) = await first.list("ada")
        assert (left.status, left.checkpoint, left.repeatable) == ("running", "task-1", False)
        assert not asked_for(notes, "tasks/cancel")
        second = Jobs(first.storage)
        await second.take_over("ada", host)
        ended = [item async for item in second.follow(job)][-1]
        assert (ended.status, ended.result.text) == ("done", "the end")  # type: ignore[union-attr]
    assert len(asked_for(notes, "began")) == 1  # it was not begun anew


@eras
@pytest.mark.parametrize("ends", ["failed", "cancelled"])
async def test_a_task_that_ends_badly_says_so(modern: bool, ends: str):
    async with McpHost([plain(options=with_tasks(modern, ends=ends))]) as host:
        result = await call(host, "task_only")
        assert (result.ok, result.code) == (False, "tool_error")
        assert ("the task broke" if ends == "failed" else "has cancelled it: look 3") in result.text


async def test_what_a_task_of_2026_wants_to_know_a_person_is_asked_once(tmp_path: Path):
    asked: list[ElicitationRequest] = []

    async def ask(question: ElicitationRequest) -> ElicitationReply:
        asked.append(question)
        return ElicitationReply("accept", {"name": "Ada"})

    options = with_tasks(True, ends="input_required", questions=2)
    async with McpHost([plain(options=options)], features=ClientFeatures(ask)) as host:
        result = await call(host, "task_only")
    assert result.ok
    assert result.text.count('"name": "Ada"') == len(asked)
    assert [question.call and question.call.name for question in asked] == ["task_only"] * len(asked)
    assert len(asked) == 2


HOSTILE: dict[str, tuple[dict[str, Any], str, str]] = {
    "another task": ({"lies": "task-of-another"}, "bad_result", "asked about one task and answered about another"),
    "an endless id": ({"id": "x" * 1_001}, "bad_result", "1000 characters"),
    "no such status": ({"ends": "nearly"}, "bad_result", "status"),
    "never ends": ({"after": 10**9}, "timeout", "did not end within 1 seconds (task_timeout)"),
    "a pause of days": ({"after": 10**9, "poll": 10**9}, "timeout", "did not end within 1 seconds (task_timeout)"),
    "a pause of nothing": ({"after": 10**9, "poll": -5}, "timeout", "did not end within 1 seconds (task_timeout)"),
    "forgets it": ({"after": 10**9, "ttl": 10**12, "forgets": 2}, "tool_error", "does not know the task any more: no such task"),
    "no result": ({"result": {"content": "none"}}, "bad_result", "content"),
}


@eras
@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_server_that_lies_about_a_task_fails_the_call_with_a_clear_error(modern: bool, kind: str, tmp_path: Path):
    tasks, code, why = HOSTILE[kind]
    notes = tmp_path / "notes"
    options = with_tasks(modern, notes, **tasks)
    async with McpHost([plain(options=options, task_timeout=1, timeout=3)]) as host:
        async with asyncio.timeout(20):
            result = await call(host, "task_only")
        assert (result.ok, result.code) == (False, code), result.text
        assert why in result.text
        assert len(asked_for(notes, "tasks/get")) < 25
        assert (await call(host, "echo", text="still here")).content == "still here"
        if code == "timeout":
            await until(lambda: bool(asked_for(notes, "tasks/cancel")))


async def test_a_task_does_not_ask_for_ever():
    async def ask(question: ElicitationRequest) -> ElicitationReply:
        return ElicitationReply("decline")

    async with McpHost(
        [plain(options=with_tasks(True, ends="input_required", questions=101))], features=ClientFeatures(ask)
    ) as host:
        result = await call(host, "task_only")
        assert not result.ok
        assert "more than 100 questions" in result.text


async def test_a_server_that_comes_back_is_asked_for_the_task_again(tmp_path: Path):
    """The plain server forgets its tasks when it is killed, and says so: it was asked again."""
    notes = tmp_path / "notes"
    async with McpHost([plain(options=with_tasks(False, notes, after=10**9))]) as host:
        pid = int((await call(host, "pid")).text)
        running = asyncio.create_task(call(host, "task_only"))
        await until(lambda: bool(asked_for(notes, "tasks/get")))
        await call(host, "die")
        result = await asyncio.wait_for(running, 20)
        assert (result.ok, status(host).starts) == (False, 2), result
        assert "does not know the task any more" in result.text
        assert int((await call(host, "pid")).text) != pid


async def test_a_task_that_was_noted_is_not_begun_and_waited_for_while_the_server_starts():
    saved: list[str] = []

    async def save(value: str) -> None:
        saved.append(value)

    async with McpHost([plain(options=with_tasks(False))]) as host:
        await host.tools()
        context = Context(checkpoint=Checkpoint("task-unknown", save))
        (_, result) = await outcome(host.call(Call("task_only", {}, "c1"), context))  # type: ignore[arg-type]
    assert isinstance(result, Result)
    assert "does not know the task any more" in result.text
    assert not saved
