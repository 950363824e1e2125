"""`HostedAnswer`: one answer of a hosted model, read as it comes, in the pieces that servers send on."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from callsmith.adapters.hosted import HostedModel, ToolRequest
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Json
from callsmith.formats.algebra import nodes_of
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import literal_text
from callsmith.models.answers.normalizer import AnswerNormalizer
from callsmith.wire.calls import CallWriter


@dataclass(slots=True)
class CallDelta:
    """A piece of a call; the first one of each call has its name and id."""

    index: int
    arguments: str = ""
    name: str | None = None
    id: str | None = None


@dataclass(slots=True)
class AnswerDelta:
    """What one piece of an answer adds to it."""

    content: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list[CallDelta])

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls)


class HostedAnswer(CallWriter):
    """Reads one answer, whole or in pieces; both give the same calls, text and reasoning.

    `opened` is the end of the prompt that begins the answer. `separates_reasoning`: without it, reasoning stays in the text
    together with its markers, as the model wrote it.
    """

    def __init__(
        self, model: HostedModel, tool_request: ToolRequest, opened: str = "", *, separates_reasoning: bool = True
    ) -> None:
        super().__init__()
        # Where no call may be made, marked calls are recognised to be left out if there are tools, and text if there are none.
        format = model.read_format if tool_request.tools else model.read_format.without_calls()
        self._reader = Reader(format, tool_request.offered, opened, is_constrained=tool_request.is_constrained)
        self._normalizer = AnswerNormalizer(
            may_call=bool(tool_request.offered), parallel=tool_request.parallel, id_pattern=model.format.ids
        )
        self._numbers: dict[int, int] = {}  # for the client, by the reader's: calls that never started leave gaps there
        self._delta = AnswerDelta()
        self._thoughts: list[str] = []
        thinks = model.format.thinks
        self._markers = ("", "")
        if thinks and not separates_reasoning:
            open, close = (literal_text(nodes_of(marker)) for marker in (thinks.open, thinks.close))
            self._markers = ("" if model.is_thinking(opened) else open, close)
        self._separates = separates_reasoning
        self._in_thought = False

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts)

    def feed(self, text: str) -> AnswerDelta:
        """What this piece of text adds."""
        return self._collect(self._reader.feed(text) if text else ())

    def close(self) -> AnswerDelta:
        """What the end of the text adds."""
        return self._collect(self._reader.close())

    def _collect(self, events: Iterable[ModelEvent]) -> AnswerDelta:
        delta = self._delta = AnswerDelta()
        for event in self._normalizer.filter(events):
            match event:
                case Text(text):
                    self._write_text(text)
                case Thought(text):
                    self._write_thought(text)
                case CallArguments() | CallStarted() | CallReady() | Unreadable():
                    self.write_call(event)
                case _:
                    pass
        return delta

    def _write_thought(self, text: str) -> None:
        self._thoughts.append(text)
        if self._separates:
            self._delta.reasoning += text
            return
        self._delta.content += text if self._in_thought else self._markers[0] + text
        self._in_thought = True

    def _end_thought(self) -> None:
        if self._in_thought:
            self._delta.content += self._markers[1]
            self._in_thought = False

    def _write_text(self, text: str) -> list[dict[str, Json]]:
        self._end_thought()
        self._delta.content += text
        return []

    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Json]]:
        self._end_thought()
        number = self._numbers[index] = len(self._numbers)
        self._delta.calls.append(CallDelta(number, "", name, self._unique_id(id, f"{id}_{number}")))
        return []

    def _write_arguments(self, index: int, text: str) -> list[dict[str, Json]]:
        number = self._numbers[index]
        last = self._delta.calls[-1] if self._delta.calls else None
        if last is not None and last.index == number:
            last.arguments += text
        else:
            self._delta.calls.append(CallDelta(number, text))
        return []

    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Json]]:
        return []


def read_whole(answer: HostedAnswer, text: str) -> AnswerDelta:
    """A whole answer: each call in one piece."""
    first, last = answer.feed(text), answer.close()
    calls: dict[int, CallDelta] = {}
    for piece in (*first.calls, *last.calls):
        if piece.index in calls:
            calls[piece.index].arguments += piece.arguments
        else:
            calls[piece.index] = piece
    return AnswerDelta(first.content + last.content, first.reasoning + last.reasoning, list(calls.values()))
