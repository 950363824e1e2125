"""`AnswerFilter`: the events of an answer as the caller gets them, whichever engine or server has written it; and `report_step`:
how that came about."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal
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
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Call, Message, Usage
from callsmith.engines.port import Piece
from callsmith.formats.prompt.prompt import fit_id
from callsmith.models.answers.grounding import LONG_BEGINNING, CallJudge


class AnswerFilter:
    """Filters the events of an answer. Every call gets an id: the model's own where it is known when the call starts, else
    a new one that fits the format. Calls that are not allowed are left out, and so is all that follows the one call allowed.

    An answer ends with its calls: what a model goes on to say behind them, it says without their results. A call that does not
    stand by the `judge` is left out, and the answer ends before it.
    """

    def __init__(self, pattern: str, callable: bool, *, parallel: bool, judge: CallJudge | None = None) -> None:
        self._pattern = pattern
        self._callable = callable
        self._parallel = parallel
        self._ids: dict[int, str] = {}
        self._calls: list[Call] = []
        self._texts: list[str] = []
        self.judge = judge
        self._withheld: list[ModelEvent] = []
        self._begun = "", ""  # the name of the withheld call, and how its arguments begin
        self.is_cut = False  # before a call that does not stand
        self._talks_on = False  # behind its calls
        self.calling = False  # a call has begun and is not complete
        self.thoughts: list[str] = []

    @property
    def message(self) -> Message:
        """The answer so far."""
        return Message.assistant("".join(self._texts), reasoning="".join(self.thoughts), calls=self._calls)

    @property
    def complete(self) -> bool:
        """Whether all that may be called has been called."""
        return self.is_cut or self._talks_on or (bool(self._calls) and not self._parallel)

    def shown(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events that the caller gets."""
        for event in events:
            if self.complete:
                return
            if isinstance(event, CallStarted | CallReady | Unreadable):
                self.calling = isinstance(event, CallStarted)
            match event:
                case CallStarted() | CallArguments() | CallReady() | Unreadable() if not self._callable:
                    continue
                case Text(text) | Thought(text) if self._calls:
                    self._talks_on = is_talk(text)
                case Thought(text):
                    self.thoughts.append(text)
                    yield event
                case CallStarted():
                    self._ids[event.index] = event.id or fit_id(f"call_{uuid4().hex[:24]}", self._pattern)
                    event = replace(event, id=self._ids[event.index])
                    if self.judge and self.judge.is_in_doubt(event.name, self._calls):
                        self._withhold(event)
                    else:
                        yield event
                case CallArguments() if self._withheld:
                    self._withhold(event)
                case CallReady():
                    withheld, self._withheld = self._withheld, []
                    call = replace(event.call, id=self._ids[event.index])
                    if self.judge and not self.judge.stands(call, self._calls):
                        self.is_cut = True
                        return
                    self._calls.append(call)
                    yield from (*withheld, replace(event, call=call))
                case Text(text):
                    self._texts.append(text)
                    yield event
                case _:
                    yield event

    def _withhold(self, event: CallStarted | CallArguments) -> None:
        """Keep the beginning of a call, or end the answer before it if it cannot be made now."""
        assert self.judge is not None
        self._withheld.append(event)
        if isinstance(event, CallStarted):
            self._begun = event.name, ""
        elif len(self._begun[1]) <= LONG_BEGINNING:  # all of a long one is not gone over again with each piece
            self._begun = self._begun[0], self._begun[1] + event.text
        else:
            return
        self.is_cut = self.judge.must_wait(self._begun[0], self._calls, self._begun[1])

    def reason(self, reason: Literal["stop", "length"]) -> StopReason:
        """Why the answer ended."""
        return "calls" if reason == "stop" and self._calls else reason


def is_talk(text: str) -> bool:
    """Whether something is said: more than white space and signs, such as a bracket too many behind a call."""
    return any(character.isalnum() for character in text)


def calls_size(written: Iterable[Piece], read: Sequence[ModelEvent], withheld: int) -> int:
    """How much of what was written is calls and what stands before them. `read` has come of the last piece, with a call in it;
    of the last characters, `withheld`, nothing has come yet."""
    behind: list[ModelEvent] = []
    for event in read:
        behind = [] if isinstance(event, CallReady) else [*behind, event]
    said = sum(len(event.text) for event in behind if isinstance(event, Text | Thought))
    return sum(len(piece.text) for piece in written) - withheld - said


def first_pieces(written: Iterable[Piece], size: int) -> Iterator[Piece]:
    """The pieces of so many characters."""
    for piece in written:
        if size <= 0:
            return
        yield replace(piece, text=piece.text[:size])
        size -= len(piece.text)


async def report_step(
    answer: AsyncGenerator[ModelEvent, None],
    step: ModelStep,
    explain: Callable[[ModelStep], None],
    written: Callable[[], tuple[str, Usage]],
) -> AsyncGenerator[ModelEvent, None]:
    """The answer, as it is. Before its end, also an early one, `explain` is called with the step and what has become of it:
    `written` is the text so far, and what it has cost."""
    began, repairs, has_ended = time.perf_counter(), list[str](), False

    def end(usage: Usage | None = None) -> None:
        text, so_far = written()
        spent, seconds = usage or so_far, round(time.perf_counter() - began, 6)
        took = {"seconds": seconds, "prompt_tokens": spent.prompt, "tokens": spent.completion}
        explain(replace(step, text=text, repairs=tuple(repairs), **took))

    try:
        async with aclosing(answer) as events:
            async for event in events:
                match event:
                    case CallReady():
                        repairs += event.repairs
                    case Unreadable(reason=reason):
                        repairs.append(f"unreadable: {reason}")
                    case Stopped():
                        has_ended = True
                        end(event.usage)
                    case _:
                        pass
                yield event
    finally:
        if not has_ended:
            end()
