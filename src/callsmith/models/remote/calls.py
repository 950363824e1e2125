"""`UpstreamCalls`: the calls in the answer of another server, with numbers, names and ids of our own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Started, Stopped, Text, Thought, Unreadable
from callsmith.core.types.call_ids import CallIds
from callsmith.models.answers.normalizer import is_talk, new_call_id
from callsmith.models.remote.text_calls import TextCalls
from callsmith.wire.upstream.quirks import ToolNames


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """A call that has begun: its number, name and id here, and what was fixed."""

    number: int
    name: str
    id: str
    repairs: tuple[str, ...]


class UpstreamCalls:
    """Fixes the calls of one answer. `names` turns the names that were sent back into those of the `tools`, `text` reads calls
    that come as text (None: text is text), `ids` are those of earlier calls.

    Where calls come as calls, what looks like a call in the text is none, nor is what follows talk behind other calls.
    """

    def __init__(self, names: ToolNames, tools: Iterable[str], text: TextCalls | None, ids: CallIds) -> None:
        self._names = names
        self._tools = _spellings(tools, names)
        self._text = text
        self._ids = ids
        self._open: dict[tuple[bool, int], _OpenCall] = {}  # by whether it came as text, and the number it has there
        self._count = 0
        self._reads_text = True  # whether calls in the text count
        self._from_text: list[ModelEvent] = []  # calls in the text, until the answer ends
        self.has_changed_ids = False

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events that come of these."""
        for event in events:
            match event:
                case Text(text, ()) if self._text is not None:
                    yield from self._keep_calls(self._text.feed(text))
                case Text() | Thought():
                    yield from self._keep_calls([event])
                case Started():
                    yield event
                case Stopped():
                    yield from self._close_text()
                    yield from self._fix(self._from_text, is_text=True)
                    yield event
                case _:
                    yield from self._close_text()
                    self._reads_text = False
                    self._from_text.clear()
                    yield from self._fix([event], is_text=False)

    def _close_text(self) -> Iterator[ModelEvent]:
        if self._text is not None:
            yield from self._keep_calls(self._text.close())

    def _keep_calls(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """What is said before all calls; what is read as calls is kept."""
        for event in events:
            if not isinstance(event, Text | Thought):
                self._from_text += (event,) if self._reads_text else ()
            elif self._from_text:
                self._reads_text &= not is_talk(event.text)
            else:
                yield event

    def _fix(self, events: Iterable[ModelEvent], *, is_text: bool) -> Iterator[ModelEvent]:
        for event in events:
            match event:
                case CallStarted(index, name, id):
                    yield self._start((is_text, index), name, id)
                case CallArguments(index, text):
                    if call := self._open.get((is_text, index)):
                        yield CallArguments(call.number, text)
                case CallReady(index, ready, repairs):
                    if call := self._open.pop((is_text, index), None):
                        yield CallReady(call.number, replace(ready, name=call.name, id=call.id), (*repairs, *call.repairs))
                case Unreadable(text, reason, int(index)):
                    if call := self._open.pop((is_text, index), None):
                        yield Unreadable(text, reason, call.number)
                case _:
                    yield event

    def _start(self, key: tuple[bool, int], sent: str, id: str) -> CallStarted:
        name, repairs = self._tool_name(sent)
        own_id = self._ids.claim(id, new_call_id())
        if own_id != id:
            repairs = repairs if key[0] else (*repairs, "repeated-id" if id else "missing-id")
            self.has_changed_ids = True
        call = self._open[key] = _OpenCall(self._count, name, own_id, repairs)
        self._count += 1
        return CallStarted(call.number, name, own_id)

    def _tool_name(self, sent: str) -> tuple[str, tuple[str, ...]]:
        """The tool that is meant, and what had to be fixed to know."""
        name = self._names.inward(sent)
        if name in self._tools.values():
            return name, ()
        if not sent and len(set(self._tools.values())) == 1:
            return next(iter(self._tools.values())), ("missing-name",)
        meant = self._tools.get(_plain(name))
        return (name, ()) if meant is None else (meant, ("other-name",))


def _spellings(names: Iterable[str], sent: ToolNames) -> dict[str, str]:
    """The names of tools by what a model may make of them: as they were sent, and in other cases or with a prefix."""
    spellings: dict[str, str] = {}
    for name in names:
        for spelling in (name, sent.outward(name)):
            spellings.setdefault(_plain(spelling), name)
    return spellings


def _plain(name: str) -> str:
    """A name without regard to case, and without the prefix that some models put before it."""
    return name.strip().casefold().removeprefix("functions.").removeprefix("default_api.")
