"""Checking a format against the laws of formats, on generated answers: for formats from files, which no test suite covers.

    for breach in check(format):
        print(breach.law, breach.what, breach.text)

The data is random, but the same each time for the same format: strings with the format's own markers and pieces of them, values
of every type, texts with pieces removed and inserted. What a format refuses to write is not a breach.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from callsmith.core.errors import UsageError
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import Format
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write

T = TypeVar("T")

CHUNKS = (1, 2, 3, 5, 11)
NAMES = ("get_weather", "send-mail", "list_files2")
KEYS = ("city", "n", "path", "is_on", "some_items", "x1")
NOISE = ('"', "'", "\\", "\n", " ", "{", "}", "[", "]", ",", ":", "</", "é", "天气", "a b", "x" * 30)

# What a reader may raise on a format it was not tested with.
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

ROUND_TRIP = "what is written is read back"
CHUNKING = "the same events however the text is cut"
NO_LEAK = "text and thought come out whole and without markers"
NO_RAISE = "no text makes the reader raise"
NOT_READY = "a call that is cut short is never ready"


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken law: what happened, and the shortest text found that shows it."""

    law: str
    what: str
    text: str


def check(format: Format, rounds: int = 24) -> list[Breach]:
    """Check a format; returns the laws it breaks, or an empty list."""
    law_check = _LawCheck(format)
    answers = sum(law_check.answer(number) for number in range(rounds))
    if not answers:
        law_check.breach(ROUND_TRIP, "nothing that was tried can be written in this format", "")
    else:
        law_check.cut_short()
        law_check.mutations(2 * rounds)
    return list(law_check.breaches.values())


class _LawCheck:
    """The check of one format. Of each law only the breach with the shortest text is recorded."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.random = _SeededRandom(format.name)
        self.markers = tuple(sorted(compile_markers(format).text_stops.texts))
        self.breaches: dict[str, Breach] = {}

    def breach(self, law: str, what: str, text: str) -> None:
        known = self.breaches.get(law)
        if known is None or len(text) < len(known.text):
            self.breaches[law] = Breach(law, what, text)

    # --- the laws ---------------------------------------------------------------------------------------------------------

    def answer(self, number: int) -> bool:
        """Write an answer and read it back: its calls, text and thought. Returns whether it could be written."""
        format = self.format
        tools, calls = self._round(1 + number % 3)
        words = self._sentence() if number % 2 else ""
        thought = self._sentence() if format.thinks and number % 3 == 1 else ""
        text = self._written(calls, words, thought)
        whole = None if text is None else self._read(text, tools)
        if text is None or whole is None:
            return text is not None
        calls_read, expected = calls_in(whole), [(call.name, dict(call.arguments)) for call in calls]
        if calls_read != expected:
            self.breach(ROUND_TRIP, f"written {expected}, read {calls_read}", text)
        elif text_in(whole).strip() != words:
            self.breach(NO_LEAK, f"said {words!r}, read {text_in(whole)!r}", text)
        elif text_in(whole, Thought) != thought:
            self.breach(NO_LEAK, f"thought {thought!r}, read {text_in(whole, Thought)!r}", text)
        return True

    def cut_short(self) -> None:
        """Read an answer that ends in the middle of a value."""
        text = self._written([Call("f", {"a": "some text"}, "aaaaaaaaa")])
        if text is None:
            return
        cut = text[: text.find("some text") + 4]
        calls = calls_in(self._read(cut, [Tool("f", "", _schema(a="string"))]) or ())
        if calls:
            self.breach(NOT_READY, f"read {calls}", cut)

    def mutations(self, count: int) -> None:
        """Read mutated answers: the events may be any, but the same for all chunk sizes, and the reader must not raise."""
        random, tools = self.random, [Tool("f", "", _schema(a="string", b="integer"))]
        calls = [Call("f", {"a": "x \"y\" 'z'", "b": 3}, "aaaaaaaaa"), Call("f", {}, "bbbbbbbbb")]
        base = self._written(calls[: self.format.calls.most], "Well then.", "hm" if self.format.thinks else "")
        for _ in range(count if base is not None else 0):
            text = base or ""
            for _ in range(random.number(1, 3)):
                at = random.number(0, len(text))
                until = at + random.number(0, 12) * random.number(0, 1)
                text = text[:at] + random.choice(("", self._piece())) + text[until:]
            self._read(text[: random.number(0, len(text))] if random.number(0, 3) == 0 else text, tools)

    def _written(self, calls: Sequence[Call], text: str = "", thought: str = "") -> str | None:
        try:
            return write(self.format, calls, text=text, thought=thought)
        except UsageError:
            return None

    def _read(self, text: str, tools: Sequence[Tool]) -> list[ModelEvent] | None:
        """Read whole and in chunks; returns the events, or None if the reader raises."""
        whole: list[ModelEvent] | None = None
        for size in (0, *CHUNKS):
            try:
                events = read_in_chunks(self.format, text, size, tools)
            except FAILURES as error:
                self.breach(NO_RAISE, f"{type(error).__name__}: {error}", text)
                return None
            whole = events if whole is None else whole
            if events != whole:
                self.breach(CHUNKING, f"in pieces of {size} it reads {events}, as a whole {whole}", text)
                return whole
        if whole is not None and (problem := order_problem(whole)):
            self.breach(CHUNKING, problem, text)
        return whole

    # --- generated data ---------------------------------------------------------------------------------------------------

    def _round(self, most: int) -> tuple[list[Tool], list[Call]]:
        """Tools, and a round of calls of them."""
        random, tools, calls = self.random, list[Tool](), list[Call]()
        for index in range(min(most, self.format.calls.most or most)):
            filled = {random.choice(KEYS): self._value() for _ in range(random.number(0, 3))}
            properties = {key: schema for key, (_, schema) in filled.items()}
            tools.append(Tool(NAMES[index], "", {"type": "object", "properties": properties}))
            arguments = {key: value for key, (value, _) in filled.items()}
            calls.append(Call(NAMES[index], arguments, f"{index}".rjust(9, "a")))
        return tools, calls

    def _value(self) -> tuple[Any, dict[str, Any]]:
        """A value and its schema."""
        text, number = self._text(), self.random.number(-(2**40), 2**40)
        return self.random.choice(
            (
                (text, {"type": "string"}),
                (f"a {self._piece()} b", {"type": "string"}),
                (number, {"type": "integer"}),
                (number / 1024, {"type": "number"}),
                (number % 2 == 0, {"type": "boolean"}),
                ([text, self._text()], {"type": "array", "items": {"type": "string"}}),
                ({"a": text, "b": number}, _schema(a="string", b="integer")),
            )
        )

    def _text(self) -> str:
        return "".join(self._piece() for _ in range(self.random.number(0, 3)))

    def _piece(self) -> str:
        """A marker, the start of one, or a character that is hard to read."""
        random = self.random
        if not self.markers or random.number(0, 1):
            return random.choice(NOISE)
        marker = random.choice(self.markers)
        return marker[: random.choice((len(marker), len(marker) // 2 + 1))]

    def _sentence(self) -> str:
        """Text that contains no marker, though it may look like one; "" if none is found in some tries."""
        tries = (f"So {self._text()}." for _ in range(20))
        return next((text for text in tries if not any(marker in text for marker in self.markers)), "")


class _SeededRandom:
    """Random numbers that are always the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self._state = sha256(seed.encode()).digest()

    def number(self, low: int, high: int) -> int:
        self._state = sha256(self._state).digest()
        return low + int.from_bytes(self._state[:8]) % (high - low + 1)

    def choice(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]


def _schema(**types: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}


# --- reading, and what was read -----------------------------------------------------------------------------------------------


def read_in_chunks(format: Format, text: str, size: int, tools: Iterable[Tool] = ()) -> list[ModelEvent]:
    """Read a text in chunks of this size (0: whole), with neighbouring deltas joined."""
    reader = Reader(format, tools)
    pieces = [text[at : at + size] for at in range(0, len(text), size)] if size else []
    return merge_deltas([event for piece in pieces for event in reader.feed(piece)] + reader.close("" if size else text))


def merge_deltas(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """The same events, with neighbouring deltas of text, thought and arguments joined."""
    joined: list[ModelEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case (Text(), Text()) | (Thought(), Thought()):
                joined[-1] = type(event)(last.text + event.text)
            case CallArguments(), CallArguments() if last.index == event.index:
                joined[-1] = CallArguments(event.index, last.text + event.text)
            case _:
                joined.append(event)
    return joined


def calls_in(events: Iterable[ModelEvent]) -> list[tuple[str, dict[str, Any]]]:
    """The names and arguments of the calls that are ready."""
    return [(event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)]


def text_in(events: Iterable[ModelEvent], kind: type[Text] | type[Thought] = Text) -> str:
    """All the text, or all the thought."""
    return "".join(event.text for event in events if isinstance(event, kind))


def order_problem(events: Iterable[ModelEvent]) -> str:
    """What is wrong with the order of events (a call starts once, its arguments follow, it ends); "" if nothing is."""
    open_call: int | None = None
    streamed, expected = "", 0
    for event in events:
        match event:
            case CallStarted():
                if open_call is not None or event.index != expected:
                    return f"{event} is out of turn"
                open_call, streamed = event.index, ""
            case CallArguments(index=index) if index == open_call:
                streamed += event.text
            case CallReady(index=index) if index == open_call:
                if streamed != event.call.text:
                    return f"the streamed arguments {streamed!r} are not those of the call, {event.call.text!r}"
                open_call, expected = None, expected + 1
            case Unreadable(index=index) if index is not None and index == open_call:
                open_call, expected = None, expected + 1
            case Text() | Thought() | Unreadable() if open_call is None:
                pass
            case _:
                return f"{event} is out of turn"
    return "" if open_call is None else "a call was started and never ended"
