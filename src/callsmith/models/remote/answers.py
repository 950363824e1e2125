"""The answer of another server, made what an answer has to be: calls numbered, with ids and names of their own, and allowed."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.values import Call, Request, Usage
from callsmith.models.answers.checked import Ask, ask_for_call, collect
from callsmith.models.answers.filter import is_talk
from callsmith.models.remote.text_calls import TextCalls
from callsmith.wire.upstream.names import ToolNames

_NOT_HONOURED: Final = "a call was required, and {} answered without one, also when asked again"


@dataclass(slots=True)
class _Begun:
    """A call that has begun: its number, name and id here, and what was mended."""

    number: int
    name: str
    id: str
    repairs: tuple[str, ...]


@dataclass(slots=True)
class AnswerMender:
    """Filters the events of one answer.

    `names` turns the names that were sent back, `text` reads calls that come as text (None: text is text). Calls are left out
    where none is allowed, and after the first where one is. `used` are the ids of earlier calls.

    An answer ends with its calls: what is said behind them is left out, and so are calls in such a text. Calls that come as
    calls are not; where there are some, what looks like a call in the text is none.
    """

    names: ToolNames
    known: Mapping[str, str]  # the names of tools that may be called, by how they may be spelled
    text: TextCalls | None
    parallel: bool
    used: set[str]
    calls: list[Call] = field(default_factory=list[Call])
    ids_changed: bool = False
    _begun: dict[tuple[bool, int], _Begun] = field(default_factory=dict[tuple[bool, int], _Begun])
    _count: int = 0
    _is_read: bool = True  # whether calls in the text count
    _read: list[ModelEvent] = field(default_factory=list[ModelEvent])  # calls in the text, until the answer ends

    def add(self, event: ModelEvent) -> Iterator[ModelEvent]:
        """The events that come of one."""
        match event:
            case Text(text, ()) if self.text is not None:
                yield from self._said(self.text.feed(text))
            case Text() | Thought():
                yield from self._said([event])
            case Started():
                yield event
            case Stopped():
                yield from self._close_text()
                yield from self._number(self._read, from_text=True)
                reason = "calls" if self.calls and event.reason == "stop" else event.reason
                yield replace(event, reason="stop" if reason == "calls" and not self.calls else reason)
            case _:
                yield from self._close_text()
                self._is_read = False
                self._read.clear()
                yield from self._number([event], from_text=False)

    def _close_text(self) -> Iterator[ModelEvent]:
        if self.text is not None:
            yield from self._said(self.text.close())

    def _said(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """What is said before all calls; what is read as calls is kept."""
        for event in events:
            if not isinstance(event, Text | Thought):
                self._read += (event,) if self._is_read else ()
            elif self.calls or self._begun or self._read:
                self._is_read &= not is_talk(event.text)
            else:
                yield event

    def _number(self, events: Iterable[ModelEvent], *, from_text: bool) -> Iterator[ModelEvent]:
        """The events with our numbers, names and ids."""
        for event in events:
            match event:
                case CallStarted(index, name, id):
                    if self._may_call():
                        yield self._start((from_text, index), name, id)
                case CallArguments(index, text):
                    if begun := self._begun.get((from_text, index)):
                        yield CallArguments(begun.number, text)
                case CallReady(index, call, repairs):
                    if begun := self._begun.pop((from_text, index), None):
                        made = replace(call, name=begun.name, id=begun.id)
                        self.calls.append(made)
                        yield CallReady(begun.number, made, (*repairs, *begun.repairs))
                case Unreadable(text, reason, int(index)):
                    if begun := self._begun.pop((from_text, index), None):
                        yield Unreadable(text, reason, begun.number)
                case _:
                    yield event

    def _may_call(self) -> bool:
        return bool(self.known) and (self.parallel or not (self.calls or self._begun))

    def _start(self, key: tuple[bool, int], sent: str, id: str) -> CallStarted:
        name, repairs = self._name(sent)
        if not id or id in self.used:
            repairs = repairs if key[0] else (*repairs, "repeated-id" if id else "missing-id")
            self.ids_changed = True
            id = f"call_{uuid4().hex[:24]}"
        self.used.add(id)
        self._begun[key] = begun = _Begun(self._count, name, id, repairs)
        self._count += 1
        return CallStarted(begun.number, name, id)

    def _name(self, sent: str) -> tuple[str, tuple[str, ...]]:
        """The tool that is meant, and what had to be mended to know."""
        own = self.names.inward(sent)
        if own in self.known.values():
            return own, ()
        if not sent and len(set(self.known.values())) == 1:
            return next(iter(self.known.values())), ("missing-name",)
        found = self.known.get(_plain(own))
        return (own, ()) if found is None else (found, ("other-name",))


class AnswerText:
    """The text of an answer that comes as events: what is said and thought, and the calls with their names before them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._usage = Usage()

    async def watch(self, answer: AsyncGenerator[ModelEvent, None]) -> AsyncGenerator[ModelEvent, None]:
        """The answer, as it is."""
        async with aclosing(answer) as events:
            async for event in events:
                match event:
                    case Text(text) | Thought(text) | CallArguments(_, text) | Unreadable(text):
                        self._pieces.append(text)
                    case CallStarted(name=name):
                        self._pieces.append(f"\n{name} ")
                    case Started(usage):
                        self._usage = usage
                    case CallReady() | Stopped():
                        pass
                yield event

    def so_far(self) -> tuple[str, Usage]:
        """The text, and what is known of its cost."""
        return "".join(self._pieces), self._usage


def spellings(names: Iterable[str], sent: ToolNames) -> dict[str, str]:
    """The names of tools by what a model may make of them: as they were sent, and in other cases or with a prefix."""
    found: dict[str, str] = {}
    for name in names:
        for spelled in (name, sent.outward(name)):
            found.setdefault(_plain(spelled), name)
    return found


def _plain(name: str) -> str:
    """A name without regard to case, and without the prefix that some models put before it."""
    return name.strip().casefold().removeprefix("functions.").removeprefix("default_api.")


async def insisted(
    first: AsyncGenerator[ModelEvent, None], request: Request, who: str, ask: Ask
) -> AsyncGenerator[ModelEvent, None]:
    """The answer to a request that requires a call. One without a call is asked for once more, then passed on with a notice.

    Text is withheld until there is a call.
    """
    withheld: list[Text] = []
    has_called = False
    async with aclosing(first) as events:
        async for event in events:
            match event:
                case Text() if not has_called:
                    withheld.append(event)
                case Stopped() if not has_called:
                    async for shown in _again(event, withheld, request, who, ask):
                        yield shown
                case CallStarted() | CallReady():
                    for text in withheld if not has_called else ():
                        yield text
                    has_called = True
                    yield event
                case _:
                    yield event


async def _again(
    first: Stopped, withheld: Sequence[Text], request: Request, who: str, ask: Ask
) -> AsyncGenerator[ModelEvent, None]:
    said = "".join(event.text for event in withheld)
    is_cut = first.reason == "length"  # then the call may only not have been finished
    second = [] if is_cut else await collect(ask, ask_for_call(request, said))
    if any(isinstance(event, CallReady) for event in second):
        for event in second:
            if isinstance(event, Stopped):
                event = replace(event, usage=first.usage + event.usage, report=first.report + event.report + Report(retries=1))
            yield event
        return
    for text in withheld:
        yield text
    spent = next((event.usage for event in second if isinstance(event, Stopped)), None)
    report = Report() if is_cut else Report(retries=int(bool(second)), notices=(_NOT_HONOURED.format(who),))
    yield replace(first, usage=first.usage + spent if spent else first.usage, report=first.report + report)
