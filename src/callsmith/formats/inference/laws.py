"""The laws a format must keep, tried on made-up answers: for formats that come as data, where no test suite looks.

    for breach in check(format):
        print(breach.law, breach.what, breach.text)

The data is made up at random but always the same for the same format: strings full of the format's own markers and pieces of
them, values of every type, texts with pieces cut out and put in. What a format refuses to write is no breach.
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

# What a reader can raise on a format that nobody thought of.
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

ROUND_TRIP = "what is written is read back"
CHUNKING = "the same events however the text is cut"
NO_LEAK = "text and thought come out whole and without markers"
NO_RAISE = "no text makes the reader raise"
NOT_READY = "a call that is cut short is never ready"


@dataclass(frozen=True, slots=True)
class Breach:
    """A law that was broken: what happened, and the shortest text found on which it did."""

    law: str
    what: str
    text: str


def check(format: Format, rounds: int = 24) -> list[Breach]:
    """The laws this format breaks; empty if it keeps them all."""
    trial = _LawCheck(format)
    written = sum(trial.answer(number) for number in range(rounds))
    if not written:
        trial.breach(ROUND_TRIP, "nothing that was tried can be written in this format", "")
    else:
        trial.cut_short()
        trial.mutations(2 * rounds)
    return list(trial.breaches.values())


class _LawCheck:
    """One format before the laws. Of each law only the breach with the shortest text is kept."""

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
        """An answer as the format writes it: its calls, text and thought. Whether it could be written."""
        format = self.format
        tools, calls = self._round(1 + number % 3)
        said = self._sentence() if number % 2 else ""
        thought = self._sentence() if format.thinks and number % 3 == 1 else ""
        text = self._written(calls, said, thought)
        whole = None if text is None else self._read(text, tools)
        if text is None or whole is None:
            return text is not None
        found, expected = calls_in(whole), [(call.name, dict(call.arguments)) for call in calls]
        if found != expected:
            self.breach(ROUND_TRIP, f"written {expected}, read {found}", text)
        elif text_in(whole).strip() != said:
            self.breach(NO_LEAK, f"said {said!r}, read {text_in(whole)!r}", text)
        elif text_in(whole, Thought) != thought:
            self.breach(NO_LEAK, f"thought {thought!r}, read {text_in(whole, Thought)!r}", text)
        return True

    def cut_short(self) -> None:
        """An answer that ends in the middle of a value."""
        text = self._written([Call("f", {"a": "some text"}, "aaaaaaaaa")])
        if text is None:
            return
        cut = text[: text.find("some text") + 4]
        found = calls_in(self._read(cut, [Tool("f", "", _schema(a="string"))]) or ())
        if found:
            self.breach(NOT_READY, f"read {found}", cut)

    def mutations(self, count: int) -> None:
        """Texts that are nearly right: anything may be read from them, but always the same, and without raising."""
        dice, tools = self.random, [Tool("f", "", _schema(a="string", b="integer"))]
        calls = [Call("f", {"a": "x \"y\" 'z'", "b": 3}, "aaaaaaaaa"), Call("f", {}, "bbbbbbbbb")]
        base = self._written(calls[: self.format.calls.most], "Well then.", "hm" if self.format.thinks else "")
        for _ in range(count if base is not None else 0):
            text = base or ""
            for _ in range(dice.number(1, 3)):
                at = dice.number(0, len(text))
                until = at + dice.number(0, 12) * dice.number(0, 1)
                text = text[:at] + dice.choice(("", self._piece())) + text[until:]
            self._read(text[: dice.number(0, len(text))] if dice.number(0, 3) == 0 else text, tools)

    def _written(self, calls: Sequence[Call], text: str = "", thought: str = "") -> str | None:
        try:
            return write(self.format, calls, text=text, thought=thought)
        except UsageError:
            return None

    def _read(self, text: str, tools: Sequence[Tool]) -> list[ModelEvent] | None:
        """Read whole and in pieces: the events, or None where reading fails."""
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

    # --- made-up data -----------------------------------------------------------------------------------------------------

    def _round(self, most: int) -> tuple[list[Tool], list[Call]]:
        """Tools, and a round of calls of them."""
        dice, tools, calls = self.random, list[Tool](), list[Call]()
        for index in range(min(most, self.format.calls.most or most)):
            filled = {dice.choice(KEYS): self._value() for _ in range(dice.number(0, 3))}
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
        """A marker, the beginning of one, or another troublemaker."""
        dice = self.random
        if not self.markers or dice.number(0, 1):
            return dice.choice(NOISE)
        marker = dice.choice(self.markers)
        return marker[: dice.choice((len(marker), len(marker) // 2 + 1))]

    def _sentence(self) -> str:
        """Text that holds no marker, though it may look like one; none at all where the markers are everywhere."""
        tries = (f"So {self._text()}." for _ in range(20))
        return next((text for text in tries if not any(marker in text for marker in self.markers)), "")


class _SeededRandom:
    """Chance that always falls the same way for the same seed."""

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
    """Read a text in pieces of this size (0: whole), neighbouring deltas joined."""
    reader = Reader(format, tools)
    pieces = [text] if not size else [text[at : at + size] for at in range(0, len(text), size)]
    return merge_deltas([event for piece in pieces for event in reader.feed(piece)] + reader.close())


def merge_deltas(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """The same events, with runs of text, thought and arguments joined."""
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
    """Names and arguments of the calls that are ready."""
    return [(event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)]


def text_in(events: Iterable[ModelEvent], kind: type[Text] | type[Thought] = Text) -> str:
    """All the text, or all the thought."""
    return "".join(event.text for event in events if isinstance(event, kind))


def order_problem(events: Iterable[ModelEvent]) -> str:
    """What is wrong with the order of the events: a call is started once, its arguments follow, and it ends; "" if nothing is."""
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
