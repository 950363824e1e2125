"""Conversations that are kept: saving and resuming, and no call with side effects run twice."""

import asyncio
import errno
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.approval import Approved
from callsmith.core.errors import UsageError
from callsmith.core.events import Stopped, Text, ToolProgress, ToolStarted
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Result, Tool
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.execute import Limits
from tests.fakes import StrictFakeModel, calls, says
from tests.runtime.desk import ADA, BOB, SEE, SEND, Desk, Free, Stuck, tool_texts
from tests.waiting import until


async def test_a_saved_conversation_is_loaded_as_it_was(tmp_path: Path):
    path, desk = tmp_path / "talk.json", Desk()
    first = Conversation(StrictFakeModel(calls(ADA)), desk, instructions="Be brief.", subject="ada")
    await first.send("Tell Ada.")
    first.save(path)
    model = StrictFakeModel(says("Sent."))
    again = Conversation.load(path, model, desk)
    assert (again.id, again.messages, again.pending) == (first.id, first.messages, first.pending)
    assert (await again.decide("c1", Approved())).text == "Sent."
    assert (model.asked[0].messages[0], desk.contexts[-1].subject) == (Message.system("Be brief."), "ada")
    assert [path.name for path in tmp_path.iterdir()] == ["talk.json"]
    assert path.stat().st_mode & 0o077 == 0


async def test_a_file_that_is_no_conversation_is_refused(tmp_path: Path):
    path = tmp_path / "talk.json"
    for text, complaint in [("{", "not JSON"), ('{"version": 9}', "version: 9"), ("[]", "expected an object")]:
        path.write_text(text)
        with pytest.raises(UsageError, match=complaint):
            Conversation.load(path, StrictFakeModel())
    with pytest.raises(UsageError, match="cannot read"):
        Conversation.load(tmp_path / "none", StrictFakeModel())
    with pytest.raises(UsageError, match="there already"):
        Conversation(StrictFakeModel(), journal=path)
    with pytest.raises(UsageError, match="there already"):
        Conversation(StrictFakeModel()).fork(journal=path)
    with pytest.raises(UsageError, match="cannot write"):
        Conversation(StrictFakeModel()).save(tmp_path / "none" / "talk.json")


class Spy(Free):
    """Sees what is on disk at the moment a tool runs."""

    def __init__(self, path: Path, *tools: Tool) -> None:
        super().__init__(*tools)
        self._path = path
        self.seen: list[dict[str, Any]] = []

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        async for item in super().call(call, context):
            self.seen.append(json.loads(self._path.read_text()))
            yield item


async def test_a_call_is_in_the_journal_before_it_runs_and_its_result_before_the_next(tmp_path: Path):
    path = tmp_path / "talk.json"
    desk = Spy(path)
    conversation = Conversation(StrictFakeModel(calls(ADA, BOB), says("Sent.")), desk, journal=path)
    await conversation.send("Tell both.")
    one, two = desk.seen
    assert (one["started"], [message["role"] for message in one["messages"]]) == (["c1"], ["user", "assistant"])
    assert (two["started"], [message["role"] for message in two["messages"]]) == (["c2"], ["user", "assistant", "tool"])
    ended = json.loads(path.read_text())
    assert "started" not in ended
    assert ended["messages"][-1] == {"role": "assistant", "content": "Sent."}


async def test_calls_to_which_the_model_gave_no_ids_are_in_the_journal_like_others(tmp_path: Path):
    path = tmp_path / "talk.json"
    desk = Spy(path)
    await Conversation(StrictFakeModel(calls(Call("send"), Call("send")), says("Sent.")), desk, journal=path).send("Tell both.")
    for seen in desk.seen:
        assert seen["started"]
        assert set(seen["started"]) <= {call["id"] for call in seen["messages"][1]["calls"]}


async def interrupted(path: Path, desk: Free, *tool_calls: Call, model: StrictFakeModel) -> Conversation:
    """A conversation whose process went away while these calls ran, loaded again."""
    stuck = Stuck(*desk._tools)
    events = Conversation(StrictFakeModel(calls(*tool_calls)), stuck, journal=path).stream("Go.")
    while not isinstance(await anext(events), ToolStarted):
        pass
    task = asyncio.ensure_future(anext(events))
    await until(lambda: "send Ada" in stuck.done)
    kept = path.read_bytes()
    task.cancel()
    await asyncio.wait({task})
    path.write_bytes(kept)
    return Conversation.load(path, model, desk, journal=path)


async def test_a_call_with_side_effects_that_was_interrupted_is_not_run_again(tmp_path: Path):
    model, desk = StrictFakeModel(says("I am not sure.")), Free()
    conversation = await interrupted(tmp_path / "talk.json", desk, ADA, SEE, model=model)
    assert conversation.unfinished
    assert (await conversation.resume()).text == "I am not sure."
    assert desk.done == ["look"]
    (first, text), (second, _) = tool_texts(conversation)
    assert (first, second) == ("c1", "c3")
    assert text.startswith("interrupted: ")
    assert "may or may not" in text
    assert model.asked[0].messages[-2].content == text


async def test_an_interrupted_call_that_can_be_repeated_is(tmp_path: Path):
    desk = Free(Tool("send", side_effects=True, idempotent=True))
    conversation = await interrupted(tmp_path / "talk.json", desk, ADA, model=StrictFakeModel(says("Sent.")))
    assert (await conversation.resume()).text == "Sent."
    assert desk.done == ["send Ada"]


async def test_a_decision_survives_a_restart(tmp_path: Path):
    path, desk = tmp_path / "talk.json", Desk()
    conversation = Conversation(StrictFakeModel(calls(ADA)), desk, journal=path)
    await conversation.send("Tell Ada.")
    await conversation._journal.decide(conversation.pending[0], Approved({"to": "Eve"}))  # and here the lights go out
    again = Conversation.load(path, StrictFakeModel(says("Sent.")), desk)
    assert again.pending == ()
    assert (await again.resume()).text == "Sent."
    assert desk.done == ["send Eve"]


async def test_a_question_without_an_answer_is_answered_after_a_restart(tmp_path: Path):
    path = tmp_path / "talk.json"
    events = Conversation(StrictFakeModel([Text("Ye"), Stopped("stop")]), journal=path).stream("Hi")
    await anext(events)
    kept = path.read_bytes()
    await events.aclose()
    path.write_bytes(kept)
    assert (await Conversation.load(path, StrictFakeModel(says("Yes.")), journal=path).resume()).text == "Yes."
    assert [message["role"] for message in json.loads(path.read_text())["messages"]] == ["user", "assistant"]


async def test_where_the_journal_cannot_be_written_no_tool_with_side_effects_runs(tmp_path: Path):
    folder = tmp_path / "gone"
    folder.mkdir()
    desk = Free(SEND)
    conversation = Conversation(StrictFakeModel(calls(ADA)), desk, journal=folder / "talk.json")
    events = conversation.stream("Tell Ada.")
    await anext(events)
    (folder / "talk.json").unlink()
    folder.rmdir()
    with pytest.raises(UsageError, match="cannot write"):
        async for _ in events:
            pass
    assert desk.done == []


async def test_a_call_that_was_running_when_the_journal_failed_is_not_run_again(tmp_path: Path):
    folder = tmp_path / "gone"
    folder.mkdir()

    class Breaking(Free):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            async for item in super().call(call, context):
                if call.name == "send":
                    await asyncio.sleep(60)
                while len(self.done) < 2:
                    await asyncio.sleep(0.001)
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
                yield item

    desk = Breaking()
    conversation = Conversation(StrictFakeModel(calls(ADA, SEE), says("Hm.")), desk, journal=folder / "talk.json")
    with pytest.raises(UsageError, match="cannot write"):
        await conversation.send("Tell Ada.")
    folder.mkdir()
    assert (await conversation.resume()).text == "Hm."
    assert desk.done == ["send Ada", "look"]
    assert tool_texts(conversation)[0][1].startswith("interrupted: ")


async def test_a_call_is_in_the_journal_also_where_its_toolset_does_not_say_that_it_starts(tmp_path: Path):
    path = tmp_path / "talk.json"
    seen: list[list[str]] = []

    class Silent(Free):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            seen.append(json.loads(path.read_text()).get("started", []))
            yield Result(call.id, call.name, "done")

    await Conversation(StrictFakeModel(calls(ADA, SEE), says("Sent.")), Silent(), journal=path).send("Tell Ada.")
    assert seen[0] == ["c1"]


async def test_what_a_tool_answers_after_its_turn_has_ended_changes_nothing(tmp_path: Path):
    late = asyncio.Event()

    class Stubborn(Free):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            clock = asyncio.get_running_loop().time
            over = clock() + 0.4
            while clock() < over:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)
            late.set()
            yield Result(call.id, call.name, "late")

    path = tmp_path / "talk.json"
    conversation = Conversation(StrictFakeModel(calls(SEE), says("Well.")), Stubborn(), journal=path, limits=Limits(seconds=0.05))
    await conversation.send("Look.")
    ended, kept = conversation.messages, path.read_bytes()
    await asyncio.wait_for(late.wait(), 5)
    await asyncio.sleep(0.05)
    assert (conversation.messages, path.read_bytes()) == (ended, kept)
    assert tool_texts(conversation)[0][1].startswith("timeout: ")


async def test_a_fork_has_not_approved_what_was_approved_and_not_yet_run(tmp_path: Path):
    path, desk = tmp_path / "talk.json", Desk()
    first = Conversation(StrictFakeModel(calls(ADA)), desk, journal=path)
    await first.send("Tell Ada.")
    await first._journal.decide(first.pending[0], Approved())  # and here the lights go out
    loaded = Conversation.load(path, StrictFakeModel(), desk)
    fork = loaded.fork()
    assert (loaded.pending, [question.call for question in fork.pending]) == ((), [ADA])
    assert (await fork.resume()).reason == "confirmation"
    assert desk.done == []


async def test_a_step_is_on_disk_with_its_name_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "talk.json"
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def fsync(file: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file"
        synced.append((kind, path.exists()))
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    Conversation(StrictFakeModel(), messages=[Message.user("Hi")]).save(path)
    assert synced == [("file", False), ("folder", True)]  # first what is in it, then where it is


async def test_a_disk_that_fails_leaves_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fsync(file: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    path = tmp_path / "talk.json"
    Conversation(StrictFakeModel(), messages=[Message.user("Hi")]).save(path)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UsageError, match="the disk is broken"):
        Conversation(StrictFakeModel(), messages=[Message.user("Hi"), Message.assistant("Ho")]).save(path)
    assert Conversation.load(path, StrictFakeModel()).messages == (Message.user("Hi"),)
