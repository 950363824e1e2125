"""Repair mode: calls that a server passes on as text, because it does not know how its model writes them.

text = TextCalls(any_format(), tools)
events = [*text.feed("<tool_call>…"), *text.close()]
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from callsmith.core.events import CallReady, ModelEvent, Text, Thought
from callsmith.core.values import Tool
from callsmith.formats.algebra import Format
from callsmith.formats.detector import events_of
from callsmith.formats.inference.find_calls import find_calls
from callsmith.formats.reader.reader import Reader

AS_TEXT: Final = "as-text"  # the repair of a call that was written as text
_LONGEST_HELD: Final = 8_000  # characters of an answer that may be nothing but a call in code
_FENCES: Final = ("```", "~~~")
_BEHIND_FENCE: Final = re.compile(r"\s*(```|~~~)[^\n]*\n.*?\1\s*\S", re.DOTALL)


class TextCalls:
    """Reads the text of one answer. `is_expected`: the model was told to write its calls so, and nothing is repaired.

    An answer that is nothing but code, or one plain `name(key=value)`, may be a call too: it is withheld until that is known.
    """

    def __init__(self, format: Format, tools: Sequence[Tool], *, is_expected: bool = False, recover: bool = True) -> None:
        self._format = format
        self._tools = tuple(tools)
        self._openers = tuple(f"{tool.name}(" for tool in tools)
        self._is_expected = is_expected
        self._recover = recover
        self._reader: Reader | None = None
        self._held: str | None = ""
        self._calls = 0

    def feed(self, text: str) -> list[ModelEvent]:
        """The events that a piece of text completes."""
        if self._reader is None:
            self._reader = Reader(self._format, self._tools, recover=self._recover)
        return list(self._shown(self._reader.feed(text)))

    def close(self) -> list[ModelEvent]:
        """The last events of the text so far. What comes after is read anew, as behind a call that came as one."""
        if self._reader is None:
            return []
        events = list(self._shown(self._reader.close()))
        held, self._held, self._reader = self._held, None, None
        return [*events, *self._find(held)] if held else events

    def _shown(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        for event in events:
            if isinstance(event, Text) and self._held is not None:
                self._held += event.text
                if not self._may_be_a_call(self._held):
                    yield Text(self._held)
                    self._held = None
                continue
            if self._held is not None and not isinstance(event, Thought):
                if self._held:
                    yield Text(self._held)
                self._held = None
            yield self._counted(event)

    def _counted(self, event: ModelEvent) -> ModelEvent:
        if isinstance(event, CallReady):
            self._calls += 1
            return event if self._is_expected else replace(event, repairs=(*event.repairs, AS_TEXT))
        return event

    def _may_be_a_call(self, text: str) -> bool:
        begun = text.lstrip()
        if len(text) > _LONGEST_HELD:
            return False
        if any(fence.startswith(begun[:3]) for fence in _FENCES):
            return not _BEHIND_FENCE.match(text)
        return any(opener.startswith(begun) or begun.startswith(opener) for opener in self._openers)

    def _find(self, text: str) -> list[ModelEvent]:
        """The calls in an answer that is nothing but code; the text itself, if there are none."""
        parsed, names = find_calls(text, self._tools, recover=False), {tool.name for tool in self._tools}
        if not parsed.calls or not all(call.name in names for call in parsed.calls):
            return [Text(text)]
        events: list[ModelEvent] = [Text(parsed.content)] if parsed.content else []
        events += events_of((replace(call, id=""), (AS_TEXT,)) for call in parsed.calls)
        self._calls += len(parsed.calls)
        return events
