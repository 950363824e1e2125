"""What all dialects have in common in writing answers and in reading them, whole or as streams."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from callsmith.core.events import (
    CUT,
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    StopReason,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.values import Json, TokenLogprob, Usage
from callsmith.wire.calls import CallAssembler, CallEvent
from callsmith.wire.errors import sent_error
from callsmith.wire.extensions import ToolEvent
from callsmith.wire.fields import Fields

Sent: TypeAlias = dict[str, Json]  # what is sent in one piece: a chunk, a line, an event of the stream


class AnswerWriter(ABC):
    """Events to what is sent for them. An answer begins once and ends once; nothing follows its end."""

    begun = False
    ended = False

    def write(self, event: ModelEvent | ToolEvent) -> list[Sent]:
        """What is sent for this event."""
        if self.ended:
            return []
        opening = [] if self.begun else self._open(event)
        match event:
            case Text(text, logprobs):
                return opening + self._write_text(text, logprobs)
            case Thought(text):
                return opening + (self._write_thought(text) if text else [])
            case CallArguments() | CallStarted() | CallReady() | Unreadable():
                return opening + self.write_call(event)
            case Started():
                return opening
            case Stopped():
                self.ended = True
                return opening + self._finish(event)
            case _:
                return opening + self._write_tool_event(event)

    def close(self) -> list[Sent]:
        """The end, if the events had none: the answer was cut off."""
        return self.write(Stopped("stop"))

    def write_all(self, events: Iterable[ModelEvent | ToolEvent]) -> list[Sent]:
        """What is sent for all events of an answer, and for its end."""
        return [sent for event in events for sent in self.write(event)] + self.close()

    def _open(self, event: Any = None) -> list[Sent]:
        """The beginning of the answer, unless it was sent before; `event` is the first one."""
        begun, self.begun = self.begun, True
        return [] if begun else self._write_opening(event)

    def _write_opening(self, event: Any) -> list[Sent]:
        return []

    @abstractmethod
    def write_call(self, event: CallEvent) -> list[Sent]:
        """What is sent for an event of a call."""

    @abstractmethod
    def _write_text(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[Sent]:
        """A piece of the answer's text."""

    @abstractmethod
    def _write_thought(self, text: str) -> list[Sent]:
        """A piece of the reasoning."""

    def _write_tool_event(self, event: ToolEvent) -> list[Sent]:
        """What one of the server's tools does; nothing, unless the dialect has a place for it."""
        return []

    @abstractmethod
    def _finish(self, event: Stopped) -> list[Sent]:
        """The end of the answer."""


class AnswerReader(ABC):
    """What another server sends to events, whole answers too. `has_ended`: whether the sender has said that this is all."""

    def __init__(self) -> None:
        self.has_ended = False
        self._calls = CallAssembler()
        self._reason: StopReason | None = None
        self._matched = ""  # the stop string that has ended it, if the sender says so
        self._usage = Usage()
        self._report = Report()

    @property
    def signed(self) -> Json:
        """What the sender wants back unchanged with the calls of this answer; None if nothing."""
        return None

    def feed(self, sent: Json) -> list[ModelEvent]:
        """The events of what was sent in one piece. An error in its place is raised as a ModelError."""
        fields = Fields.of(sent, "")
        if (error := fields.data.get("error")) is not None:
            raise sent_error(error)
        return self._read(fields)

    def repeat_text(self, text: str) -> list[ModelEvent]:
        """The events of what differs from the last piece, which was nothing but a text, in nothing but the text."""
        return [Text(text)]

    @abstractmethod
    def _read(self, fields: Fields) -> list[ModelEvent]:
        """The events of an object that is no error."""

    def close(self) -> list[ModelEvent]:
        """What only the end can tell: the last calls, and why and at what cost it stopped."""
        reason = self._reason or ("calls" if self._calls.count else "stop")
        return [*self._calls.end_all(is_cut=reason in CUT), Stopped(reason, self._usage, self._report, self._matched)]
