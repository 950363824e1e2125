"""The journal of a conversation: its messages, and the calls that wait, have begun or were decided on.

It is the one state machine for pauses, for conversations in files and for runs on a server alike. Every step is written to its
storage before the next. A call that must not run twice is entered as started before it runs: whoever finds one without a result
knows no more than that it may have happened, answers it as interrupted, and does not run it again. One that has noted where it
was (`Checkpoint`) is taken up there.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, assert_never

from callsmith.core.approval import Approved, Decision
from callsmith.core.errors import UsageError
from callsmith.core.events import (
    CallArguments,
    CallDeferred,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    Notice,
    RunEvent,
    Started,
    Stopped,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.failures import make_failure
from callsmith.core.ports import Checkpoint
from callsmith.core.serialize import Saved, read_conversation, write_conversation
from callsmith.core.values import Call, Message, Result, Tool
from callsmith.files import write_file
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import AnswerBuilder, list_unanswered
from callsmith.runtime.results import result_message

NO_DECISIONS: Mapping[str, Decision] = {}
_PIECES = (Text, Thought, CallStarted, CallArguments, CallReady, Unreadable)


def add_results(messages: Sequence[Message], *results: Message) -> tuple[Message, ...]:
    """The history with these tool messages at its end; one that answers what was answered already takes its place."""
    end = next((index for index in range(len(messages), 0, -1) if messages[index - 1].role != "tool"), 0)
    order = [call.id for call in messages[end - 1].calls] if end else []
    times, places = Counter(order), {id: place for place, id in reversed([*enumerate(order)])}  # of two with one id, the first
    answers = list(messages[end:])
    for result in results:
        same = [index for index, message in enumerate(answers) if message.call_id == result.call_id]
        if len(same) < max(1, times[result.call_id]):  # histories of others may have two calls with one id
            answers.append(result)
        else:
            answers[same[-1]] = result
    answers.sort(key=lambda message: places.get(message.call_id, len(order)))
    return (*messages[:end], *answers)


def join_messages(messages: Sequence[Message], added: Sequence[Message]) -> tuple[Message, ...]:
    """The history and what a run has added to it; results at the beginning of that answer calls at the end of the history."""
    results = next((index for index, message in enumerate(added) if message.role != "tool"), len(added))
    return (*add_results(messages, *added[:results]), *added[results:])


class JournalStorage(Protocol):
    """Where a journal is written: memory, a file, a server's store."""

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        """Store the state. `starting` is a call about to run, which must survive a crash from here on; `results` are new."""
        ...


class MemoryStorage:
    """Keeps nothing: the journal itself is all there is."""

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        pass


class Journal:
    """The state of a conversation (`saved`) and the only place that changes it."""

    def __init__(self, saved: Saved, storage: JournalStorage | None = None, limits: Limits = STANDARD_LIMITS) -> None:
        self.saved = saved
        self._storage = storage or MemoryStorage()
        self._limits = limits
        self._before = self._base = saved.messages
        self._answer = AnswerBuilder()  # what the model is just saying
        self._said: Message | None = None  # its last answer: not part of the history before something is done about it

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls that have no result yet."""
        return list_unanswered(self.saved.messages)

    @property
    def pending(self) -> tuple[ConfirmationNeeded, ...]:
        """The calls on which a person has not decided yet."""
        return tuple(question for question in self.saved.pending if question.call.id not in self.saved.decisions)

    @property
    def decisions(self) -> dict[str, Decision]:
        """Decisions by the id of the call, and by that of the question, which may be about a call made inside that call."""
        decided = self.saved.decisions
        question_calls = {question.id: question.call.id for question in self.saved.pending if question.call.id in decided}
        return {id: decided[call_id] for id, call_id in question_calls.items()} | dict(decided)

    @property
    def asked(self) -> dict[str, Tool]:
        """The tools that decisions are about, as they were when the person was asked, by call id."""
        return {question.call.id: question.tool for question in self.saved.pending if question.tool is not None}

    async def begin(self, message: Message | None = None, calls: Sequence[Call] = ()) -> None:
        """Begin a turn: with what the user says, or where the last one stopped; and with calls that the model seems to make."""
        self._before = self.saved.messages
        self._base = self._before if message is None else (*self._before, message)
        self._base = (*self._base, Message.assistant(calls=calls)) if calls else self._base
        self._answer, self._said = AnswerBuilder(), None
        self.saved = replace(self.saved, messages=self._base)
        await self._write()

    async def rewind(self) -> Message | None:
        """Forget everything from the last thing the user said on, and return that; None if nothing was said."""
        messages = self.saved.messages
        last = next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), None)
        if last is None:
            return None
        self.saved = replace(self.saved, messages=messages[:last])
        await self._write()
        return messages[last]

    async def instruct(self, instructions: str) -> None:
        """Change the instructions that the model is given before the conversation."""
        self.saved = replace(self.saved, instructions=instructions)
        await self._write()

    async def note(self, event: RunEvent) -> None:
        """Enter what has happened in a run. What is entered already stays as it is."""
        match event:
            case Stopped():
                self._answer.add(event)
                self._said, self._answer = self._answer.message(self._answer.calls), AnswerBuilder()
            case Text() | Thought() | CallStarted() | CallArguments() | CallReady() | Unreadable():
                self.add_piece(event)
            case ToolStarted():
                if self._accept():
                    await self._write()
            case CallDeferred(call):
                await self._postpone(call)
            case ToolFinished(result):
                await self.settle(result)
            case ConfirmationNeeded(call=call):
                if all(question.call.id != call.id for question in self.pending):
                    others = (question for question in self.saved.pending if question.call.id != call.id)
                    self.saved = replace(self.saved, pending=(*others, event))
                decisions = {id: decision for id, decision in self.saved.decisions.items() if id != call.id}
                self.saved = replace(self.saved, decisions=decisions)
                await self._postpone(call)
            case TurnEnded(messages):
                self._said = None
                self.saved = replace(self.saved, messages=join_messages(self._base, messages))
                await self._write()
            case Started() | ToolProgress() | Notice():
                pass
            case _:
                assert_never(event)

    def add_piece(self, event: RunEvent) -> bool:
        """Add a piece of what the model is just saying; whether the event is one. Nothing is written for it."""
        if not isinstance(event, _PIECES):
            return False
        self._answer.add(event)
        return True

    def as_asked(self, question: ConfirmationNeeded) -> ConfirmationNeeded:
        """The question as it waits already, if it does: asked again, it keeps its id and gets no more time."""
        return next((pending for pending in self.pending if pending.call.id == question.call.id), question)

    async def start(self, call: Call, *, repeatable: bool = False) -> None:
        """A call is about to run; unless it is repeatable, it is never run again."""
        self._accept()
        if not repeatable:
            self.saved = replace(self.saved, started=self.saved.started | {call.id})
        await self._write(starting=call)

    def checkpoint(self, call: Call) -> Checkpoint:
        """Where a call notes how far it is; what it has noted stays until it has a result."""

        async def save(value: str) -> None:
            self.saved = replace(self.saved, checkpoints={**self.saved.checkpoints, call.id: value})
            await self._write(starting=call)

        return Checkpoint(self.saved.checkpoints.get(call.id, ""), save)

    async def settle(self, *results: Result) -> None:
        """Answer calls."""
        self._accept()
        messages = (result_message(result, self._limits.result_characters)[0] for result in results)
        self.saved = replace(self.saved, messages=add_results(self.saved.messages, *messages))
        await self._write(results=results)

    async def resume(
        self, results: Sequence[Result] = (), decisions: Mapping[str, Decision] = NO_DECISIONS
    ) -> tuple[Result, ...]:
        """Go on where the turn has paused, with results of calls and a person's decisions by call id.

        Returns the results of calls that had begun when their program was stopped: they must not run twice.
        """
        for question in self.pending:
            if question.call.id in decisions:
                await self.decide(question, decisions[question.call.id])
        await self.settle(*results)
        interrupted_calls = await self.interrupt_started()
        await self.begin()
        return interrupted_calls

    async def decide(self, question: ConfirmationNeeded, decision: Decision) -> None:
        grant = question.tool.grant if question.tool else question.call.name
        remembered = {grant} if isinstance(decision, Approved) and decision.remember else frozenset[str]()
        decisions = {**self.saved.decisions, question.call.id: decision}
        self.saved = replace(self.saved, decisions=decisions, granted=self.saved.granted | remembered)
        await self._write()

    async def grant(self, tools: frozenset[str]) -> None:
        """Let these tools run without asking from now on."""
        if not tools <= self.saved.granted:
            self.saved = replace(self.saved, granted=self.saved.granted | tools)
            await self._write()

    async def cut_off(self) -> None:
        """The turn was stopped from outside: what was said stays, and no call is left without a result."""
        if self._said is None and any(self._answer.text):
            self._said = self._answer.message(())
        self._accept()
        await self.settle(*(cancelled_result(call, call.id in self.saved.started) for call in self.open_calls))
        await self.take_back()

    async def cancel_started(self) -> None:
        """The turn was stopped and may be resumed: calls that have begun are answered, those that wait go on waiting."""
        if begun := [call for call in self.open_calls if call.id in self.saved.started]:
            await self.settle(*(cancelled_result(call, started=True) for call in begun))

    async def take_back(self) -> None:
        """The turn has failed. If it has produced nothing, it is as if nothing had been said."""
        self._said = None
        await self.interrupt_started()
        if self.saved.messages == self._base:
            self.saved = replace(self.saved, messages=self._before)
        await self._write()

    async def interrupt_started(self) -> tuple[Result, ...]:
        """Answer calls that had begun when their program was stopped, and must not run twice."""
        lost = tuple(map(interrupted_result, _lost_calls(self.saved)))
        if lost:
            await self.settle(*lost)
        return lost

    async def _write(self, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        self.saved = _about_open_calls(self.saved)
        await self._storage.write(self.saved, starting=starting, results=results)

    async def _postpone(self, call: Call) -> None:
        """A call does not run now: it waits for a person, or for whoever runs it elsewhere."""
        self._accept()
        self.saved = replace(self.saved, started=self.saved.started - {call.id})
        await self._write()

    def _accept(self) -> bool:
        """Make the model's last answer a part of the history, now that it is acted upon; whether there was one."""
        if self._said is None:
            return False
        self.saved = replace(self.saved, messages=(*self.saved.messages, self._said))
        self._said = None
        return True


def answer_interrupted(saved: Saved) -> Saved:
    """The state found after a crash: calls that had begun, and must not run twice, are answered as interrupted."""
    lost = map(interrupted_result, _lost_calls(saved))
    return _about_open_calls(replace(saved, messages=add_results(saved.messages, *map(Message.tool, lost))))


def _lost_calls(saved: Saved) -> list[Call]:
    """The calls that had begun and cannot be taken up."""
    begun = saved.started - saved.checkpoints.keys()
    return [call for call in list_unanswered(saved.messages) if call.id in begun]


def _about_open_calls(saved: Saved) -> Saved:
    """The state without what concerns calls that are answered."""
    waiting = {call.id for call in list_unanswered(saved.messages)}
    return replace(
        saved,
        pending=tuple(question for question in saved.pending if question.call.id in waiting),
        decisions={call_id: decision for call_id, decision in saved.decisions.items() if call_id in waiting},
        started=saved.started & waiting,
        checkpoints={call_id: value for call_id, value in saved.checkpoints.items() if call_id in waiting},
    )


def cancelled_result(call: Call, started: bool) -> Result:
    """The result of a call whose turn was stopped from outside."""
    where = f"before {call.name} had answered"
    if started:
        where = f"while {call.name} was running; it may or may not have taken effect"
    return make_failure(call, "cancelled", f"the turn was stopped {where}")


def interrupted_result(call: Call) -> Result:
    """The result of a call that had begun when its program was stopped."""
    text = (
        f"the program was stopped while {call.name} was running. It may or may not have taken effect, and was not run again. "
        "Ask the user, or find out, before calling it again."
    )
    return make_failure(call, "interrupted", text)


def asked_again_result(call: Call, *, went_on: bool = False) -> Result:
    """The result of an approval after which the call is asked about once more: its tool had changed before it ran, or it
    `went_on` to something else that needs one. The model does not read it: the call waits for another."""
    if went_on:
        return make_failure(call, "expired", f"{call.name} went on with this approval, and asks about something else now.")
    return make_failure(
        call, "expired", f"{call.name} is not the tool that was approved any more. It was not run, and is asked about anew."
    )


def expired_result(call: Call) -> Result:
    """The result of a call that was approved too late."""
    text = f"the approval of {call.name} came too late, and it was not run. Call it again if it is still wanted."
    return make_failure(call, "expired", text)


class FileStorage:
    """Writes a journal to a file, if there is anything new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        text = _text(saved)
        if text != self._written:
            _write_text(self._path, text)
            self._written = text


def read_journal(path: Path) -> Saved:
    """The conversation in a file."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    try:
        return read_conversation(document)
    except UsageError as error:
        raise UsageError(f"{path} is not a saved conversation: {error}", field=error.field) from error


def write_journal(path: Path, saved: Saved) -> None:
    """Write the conversation into a file, whole or not at all."""
    _write_text(path, _text(saved))


def _text(saved: Saved) -> str:
    return json.dumps(write_conversation(saved), indent=1) + "\n"  # ASCII: half a surrogate pair must not stop it


def _write_text(path: Path, text: str) -> None:
    try:
        write_file(path, text, is_private=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
