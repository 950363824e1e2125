"""`AnswerNormalizer`: the events of an answer as callers get them, whichever engine or server has written it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from uuid import uuid4

from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Stopped,
    StopReason,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.types.call_ids import CallIds
from callsmith.core.values import Call, Message
from callsmith.formats.prompt.prompt import fit_id
from callsmith.models.answers.grounding import LONG_BEGINNING, CallJudge


class AnswerNormalizer:
    """Filters the events of one answer. Every call gets an id: the model's own where it is known when the call starts, else a
    new one that fits `id_pattern`. Calls are left out where none is allowed, and after the first where only one is.

    An answer ends with its calls: what a model goes on to say behind them, it says without their results. It is left out, and
    the answer is complete with it; where `reads_on`, calls may still follow. A call that the `judge` rejects is left out, and the
    answer ends before it.
    """

    def __init__(
        self,
        *,
        may_call: bool,
        parallel: bool,
        id_pattern: str = "",
        judge: CallJudge | None = None,
        reads_on: bool = False,
    ) -> None:
        self._may_call = may_call
        self._parallel = parallel
        self._id_pattern = id_pattern
        self._reads_on = reads_on
        self._ids = CallIds()
        self._open: dict[int, str] = {}  # calls that have begun, by their number: their ids
        self._texts: list[str] = []
        self._withheld: list[ModelEvent] = []
        self._beginning = "", ""  # the name of the withheld call, and how its arguments begin
        self._talks_on = False  # behind its calls
        self.judge = judge
        self.calls: list[Call] = []
        self.thoughts: list[str] = []
        self.is_cut = False  # before a call that the judge rejects
        self.is_calling = False  # a call has begun and is not complete

    @property
    def message(self) -> Message:
        """The answer so far."""
        return Message.assistant("".join(self._texts), reasoning="".join(self.thoughts), calls=self.calls)

    @property
    def is_complete(self) -> bool:
        """Whether all that may be called has been called."""
        return self.is_cut or self._talks_on or (bool(self.calls) and not self._parallel)

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        for event in events:
            match event:
                case Text() | Thought() if not (self.calls or self._open or self.is_cut or self._talks_on):
                    (self._texts if isinstance(event, Text) else self.thoughts).append(event.text)
                    yield event
                case Stopped():
                    yield replace(event, reason=self.stop_reason(event.reason))
                case _ if self.is_complete:
                    continue
                case Text(text) | Thought(text):
                    self._talks_on = not self._reads_on and is_talk(text)
                case CallStarted() | CallArguments() | CallReady() | Unreadable():
                    yield from self._filter_call(event)
                case _:
                    yield event

    def _filter_call(self, event: CallStarted | CallArguments | CallReady | Unreadable) -> Iterator[ModelEvent]:
        if not isinstance(event, CallArguments):
            self.is_calling = isinstance(event, CallStarted)
        if not self._may_call:
            return
        match event:
            case CallStarted(index) if self._parallel or not self._open:
                id = self._open[index] = self._ids.claim(event.id, fit_id(new_call_id(), self._id_pattern))
                event = replace(event, id=id)
                if self.judge and self.judge.is_in_doubt(event.name, self.calls):
                    self._withhold(event)
                else:
                    yield event
            case CallArguments(index) if index in self._open:
                if self._withheld:
                    self._withhold(event)
                else:
                    yield event
            case CallReady(index) if index in self._open:
                withheld, self._withheld = self._withheld, []
                call = replace(event.call, id=self._open.pop(index))
                if self.judge and not self.judge.stands(call, self.calls):
                    self.is_cut = True
                    return
                self.calls.append(call)
                yield from (*withheld, replace(event, call=call))
            case Unreadable(index=index) if index is None or self._open.pop(index, None):
                self._withheld = []
                yield event
            case _:
                pass

    def _withhold(self, event: CallStarted | CallArguments) -> None:
        """Keep the beginning of a call, or end the answer before it if it cannot be made now."""
        assert self.judge is not None
        self._withheld.append(event)
        if isinstance(event, CallStarted):
            self._beginning = event.name, ""
        elif len(self._beginning[1]) <= LONG_BEGINNING:  # all of a long one is not gone over again with each piece
            self._beginning = self._beginning[0], self._beginning[1] + event.text
        else:
            return
        self.is_cut = self.judge.must_wait(self._beginning[0], self.calls, self._beginning[1])

    def stop_reason(self, reason: StopReason) -> StopReason:
        """Why the answer has ended, if its engine or server says this."""
        if self.is_complete or (self.calls and reason == "stop"):
            return "calls"
        return "stop" if reason == "calls" and not self.calls else reason


def new_call_id() -> str:
    """An id that no other call has."""
    return f"call_{uuid4().hex[:24]}"


def is_talk(text: str) -> bool:
    """Whether something is said: more than white space and signs, such as a bracket too many behind a call."""
    return any(character.isalnum() for character in text)
