"""The ledger of a conversation: what was said, what waits, what has begun. With a file, every step is on disk before the next.

A call that must not run twice is entered as started before it runs. Whoever reads a ledger in which such a call has no result
knows no more than that it may have happened: it is answered as interrupted, and not run again.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from callsmith.core.approval import Approved, Decision
from callsmith.core.errors import UsageError
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    Notice,
    RunEvent,
    Stopped,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.failures import failed
from callsmith.core.serialize import Saved, read_conversation, write_conversation
from callsmith.core.values import Call, Message, Result
from callsmith.runtime.conversation.history import answered, joined
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import AnswerBuilder, unanswered
from callsmith.runtime.results import result_message


class Journal:
    """The state of a conversation (`saved`) and the only place that changes it."""

    def __init__(self, saved: Saved, path: Path | None = None, limits: Limits = STANDARD_LIMITS) -> None:
        self.saved = saved
        self._path = path
        self._limits = limits
        self._written = ""
        self._before = self._base = saved.messages
        self._answer = AnswerBuilder()  # what the model is just saying
        self._said: Message | None = None  # its last answer: not part of the history before something is done about it

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls that have no result yet."""
        return unanswered(self.saved.messages)

    @property
    def pending(self) -> tuple[ConfirmationNeeded, ...]:
        """What a person has still to be asked about."""
        return tuple(one for one in self.saved.pending if one.call.id not in self.saved.decisions)

    def begin(self, said: Message | None = None) -> None:
        """A turn begins: with what the user says, or where the last one stopped."""
        self._before = self.saved.messages
        self._base = self._before if said is None else (*self._before, said)
        self._answer, self._said = AnswerBuilder(), None
        self.saved = replace(self.saved, messages=self._base)
        self.keep()

    def note(self, event: RunEvent) -> None:
        """Enter what has happened."""
        match event:
            case Stopped():
                self._answer.add(event)
                self._said, self._answer = self._answer.message(self._answer.calls), AnswerBuilder()
            case Text() | Thought() | CallStarted() | CallArguments() | CallReady() | Unreadable():
                self._answer.add(event)
            case ToolStarted():
                self._accept()
                self.keep()
            case ToolFinished(result):
                self.settle(result)
            case ConfirmationNeeded():
                self.postpone(event)
            case TurnEnded(messages):
                self._said = None
                self.saved = replace(self.saved, messages=joined(self._base, messages))
                self.keep()
            case ToolProgress() | Notice():
                pass
            case _:
                assert_never(event)

    def start(self, call: Call) -> None:
        """A call that must not run twice is about to run."""
        self._accept()
        self.saved = replace(self.saved, started=self.saved.started | {call.id})
        self.keep()

    def arrive(self, result: Result) -> None:
        """A tool's result, straight from the tool; one that comes when the call has been given up counts no more."""
        if self._said is not None and any(call.id == result.call_id for call in self._said.calls):
            self._accept()
        if any(call.id == result.call_id for call in self.open_calls):
            self.settle(result)

    def settle(self, *results: Result) -> None:
        """Calls are answered."""
        self._accept()
        messages = (result_message(result, self._limits.result_characters)[0] for result in results)
        self.saved = replace(self.saved, messages=answered(self.saved.messages, *messages))
        self.keep()

    def postpone(self, asked: ConfirmationNeeded) -> None:
        """A call waits for a person's word. Being asked about again does not give it more time."""
        self._accept()
        if asked.id not in {one.id for one in self.saved.pending}:
            others = (one for one in self.saved.pending if one.call.id != asked.call.id)
            self.saved = replace(self.saved, pending=(*others, asked))
        decisions = {call_id: one for call_id, one in self.saved.decisions.items() if call_id != asked.call.id}
        self.saved = replace(self.saved, decisions=decisions, started=self.saved.started - {asked.call.id})
        self.keep()

    def decide(self, asked: ConfirmationNeeded, decision: Decision) -> None:
        """A person has spoken."""
        remembered = {asked.call.name} if isinstance(decision, Approved) and decision.remember else frozenset[str]()
        decisions = {**self.saved.decisions, asked.call.id: decision}
        self.saved = replace(self.saved, decisions=decisions, granted=self.saved.granted | remembered)
        self.keep()

    def cut_off(self) -> None:
        """The turn was stopped from outside: what was said stays, and no call is left without a result."""
        if self._said is None and any(self._answer.text):
            self._said = self._answer.message(())
        self._accept()
        self.settle(*(cancelled(call, call.id in self.saved.started) for call in self.open_calls))
        self.take_back()

    def take_back(self) -> None:
        """The turn has failed. If nothing has come of it, it is as if nothing had been said."""
        self._said = None
        self.give_up_started()
        if self.saved.messages == self._base:
            self.saved = replace(self.saved, messages=self._before)
        self.keep()

    def give_up_started(self) -> None:
        """Answer calls that had begun and must not run twice."""
        self.settle(*(interrupted(call) for call in self.open_calls if call.id in self.saved.started))

    def keep(self) -> None:
        """Write it down, if there is a file and anything new. What concerns calls that are answered is forgotten."""
        waiting = {call.id for call in self.open_calls}
        self.saved = replace(
            self.saved,
            pending=tuple(one for one in self.saved.pending if one.call.id in waiting),
            decisions={call_id: one for call_id, one in self.saved.decisions.items() if call_id in waiting},
            started=self.saved.started & waiting,
        )
        if self._path is not None:
            text = _text(self.saved)
            if text != self._written:
                _replace_file(self._path, text)
                self._written = text

    def _accept(self) -> None:
        """The model's last answer is acted upon: from here on it is part of the history."""
        if self._said is not None:
            self.saved = replace(self.saved, messages=(*self.saved.messages, self._said))
            self._said = None


def read_journal(path: Path) -> Saved:
    """The conversation of a file. Calls that had begun when it was left, and must not run twice, are answered as interrupted."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    try:
        ledger = Journal(read_conversation(document))
    except UsageError as error:
        raise UsageError(f"{path} is not a saved conversation: {error}", field=error.field) from error
    ledger.give_up_started()
    return ledger.saved


def write_journal(path: Path, saved: Saved) -> None:
    """The conversation into a file, whole or not at all."""
    _replace_file(path, _text(saved))


def _text(saved: Saved) -> str:
    return json.dumps(write_conversation(saved), indent=1) + "\n"  # ASCII: half a surrogate pair must not stop it


def _replace_file(path: Path, text: str) -> None:
    """A reader, or a crash, finds the old file or the new one. It is readable by its owner alone."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
        if os.name == "posix":  # the new name is on disk only when its folder is
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def cancelled(call: Call, started: bool) -> Result:
    """The result of a call whose turn was stopped from outside."""
    where = f"before {call.name} had answered"
    if started:
        where = f"while {call.name} was running; it may or may not have taken effect"
    return failed(call, "cancelled", f"the turn was stopped {where}")


def interrupted(call: Call) -> Result:
    """The result of a call that had begun when its program was stopped."""
    text = (
        f"the program was stopped while {call.name} was running. It may or may not have taken effect, and was not run again. "
        "Ask the user, or find out, before calling it again."
    )
    return failed(call, "interrupted", text)
