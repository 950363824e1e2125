"""kill -9: a conversation that is kept in a file goes on after it, and what has side effects happens once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from callsmith.core.approval import Approved
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Request, Result, Tool
from callsmith.runtime.conversation import journal
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.tools.wrap import Confirmed

pytestmark = pytest.mark.processes

PROGRAM = '''
import asyncio, sys, time
from pathlib import Path

from callsmith import Approved, Confirmed, Conversation, Functions, open_model, tool

folder, step, reply = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
journal = folder / "talk.json"


@tool(side_effects=True)
def book(seat: str) -> str:
    """Book a seat."""
    with (folder / "booked").open("a") as file:
        file.write(seat + "\\n")
    if step == "hang":
        print("running", flush=True)
        time.sleep(60)
    return f"seat {seat} is booked"


model, tools = open_model(f"scripted:{reply}"), Confirmed(Functions(book))


async def main() -> None:
    if step == "ask":
        conversation = Conversation(model, tools, journal=journal)
        reply = await conversation.send("Book seat 7.")
        print(f"waiting for {reply.pending[0].call.id}", flush=True)
        time.sleep(60)
    conversation = Conversation.load(journal, model, tools, journal=journal)
    decisions = {asked.call.id: Approved() for asked in conversation.pending}
    reply = await conversation.resume(decisions)
    print(reply.text)


asyncio.run(main())
'''

CALLS = '<tool_call>\n<name>book</name>\n<arguments>{"seat": "7"}</arguments>\n</tool_call>'


def kill_when(folder: Path, step: str, says: str, reply: str = "-") -> None:
    """Run a step of the program until it says something, and kill it."""
    command = [sys.executable, "-c", PROGRAM, str(folder), step, reply]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith(says)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL


def finish(folder: Path, reply: str) -> str:
    command = [sys.executable, "-c", PROGRAM, str(folder), "go on", reply]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def results_in(folder: Path) -> list[str]:
    """What the model was told of its calls."""
    return [
        message["content"] for message in json.loads((folder / "talk.json").read_text())["messages"] if message["role"] == "tool"
    ]


@pytest.mark.req("R91")
@pytest.mark.req("R94")
@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
def test_an_approval_survives_kill_9_and_the_tool_runs_once(tmp_path: Path):
    kill_when(tmp_path, "ask", "waiting for ", CALLS)
    assert not (tmp_path / "booked").exists()
    assert finish(tmp_path, "Seat 7 is yours.") == "Seat 7 is yours."
    assert (tmp_path / "booked").read_text() == "7\n"
    assert results_in(tmp_path) == ["seat 7 is booked"]


@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
def test_a_tool_that_ran_at_kill_9_is_not_run_again_and_the_model_is_told(tmp_path: Path):
    kill_when(tmp_path, "ask", "waiting for ", CALLS)
    kill_when(tmp_path, "hang", "running")
    assert finish(tmp_path, "Please look whether seat 7 is yours.") == "Please look whether seat 7 is yours."
    assert (tmp_path / "booked").read_text() == "7\n"
    (text,) = results_in(tmp_path)
    assert text.startswith("interrupted: ")
    assert "may or may not have taken effect" in text


class Clerk:
    """A model that books a seat when it is asked to, and then says what it was told."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        if last.role == "user":
            yield CallReady(0, Call("book", {"seat": "7"}, "c1"))
            yield CallReady(1, Call("look", {}, "c2"))
            yield Stopped("calls")
        else:
            yield Text("Done.")
            yield Stopped("stop")


class Office:
    """Tools whose deeds are lines in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def tools(self) -> Sequence[Tool]:
        return [Tool("book", side_effects=True), Tool("look")]

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        await context.starting()
        with (self._folder / call.name).open("a") as file:
            file.write("once\n")
        yield Result(call.id, call.name, f"{call.name} done")


async def see_it_through(folder: Path) -> None:
    """Begin the conversation, or go on with it, until there is an answer."""
    path, model, tools = folder / "talk.json", Clerk(), Confirmed(Office(folder))
    conversation = (
        Conversation.load(path, model, tools, journal=path) if path.exists() else Conversation(model, tools, journal=path)
    )
    if not conversation.messages:
        await conversation.send("Book seat 7.")
    while conversation.unfinished:
        await conversation.resume({question.call.id: Approved() for question in conversation.pending})


def in_child(folder: Path, kill_at: int | None = None, *, written: bool = False) -> int:
    """See it through in another process, which is killed at one of its writes to disk: before it, or behind."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        write, count = journal._write_text, 0

        def counted(path: Path, text: str) -> None:
            nonlocal count
            if count == kill_at and not written:
                os.kill(os.getpid(), signal.SIGKILL)
            write(path, text)
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

        journal._write_text = counted
        asyncio.run(see_it_through(folder))
        code = 0
    finally:
        os._exit(code)


@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
def test_killed_at_any_write_nothing_happens_twice_and_every_call_is_answered(tmp_path: Path):
    outcomes: list[str] = []
    for kill_at in range(100):
        for after_write in (False, True):
            folder = tmp_path / f"{kill_at} {after_write}"
            folder.mkdir()
            first = in_child(folder, kill_at, written=after_write)
            if first == 0:  # it makes no more writes than that
                assert {"seat booked once", "interrupted"} <= set(outcomes)
                assert len(outcomes) > 8
                return
            assert first == -signal.SIGKILL
            assert in_child(folder) == 0
            outcomes.append(outcome(folder))
    pytest.fail("it never came to its end")


def outcome(folder: Path) -> str:
    """How it ended, and that it ended well."""
    messages = json.loads((folder / "talk.json").read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [message["call_id"] for message in messages[2:4]] == ["c1", "c2"]
    assert messages[3]["content"] == "look done"
    booked = (folder / "book").read_text() if (folder / "book").exists() else ""
    if messages[2]["content"] == "book done":
        assert booked == "once\n"
        return "seat booked once"
    assert messages[2]["content"].startswith("interrupted: ")
    assert booked in ("", "once\n")
    return "interrupted"
