"""Parsing a whole answer: what a model wrote, as content, reasoning and calls.

parse(format_named("hermes"), text, tools).calls
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from callsmith.core.events import CallReady, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import Format
from callsmith.formats.reader.continuation import missing_thought_opener, split_header
from callsmith.formats.reader.reader import Reader


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed answer. `repairs` names the repairs that were needed."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    unreadable: tuple[Unreadable, ...]
    repairs: tuple[str, ...]


def parse(
    format: Format, text: str | Iterable[str], tools: Iterable[Tool] = (), opened: str = "", *, recover: bool = True
) -> Parsed:
    """Parse an answer, whole or in pieces. Text at the end of the prompt that begins the answer (`opened`) is part of it.

    `recover`: calls inside the reasoning count where none stands outside.
    If the answer closes reasoning that it does not open, and the prompt does not say how it began, it began with reasoning.
    """
    tools = tuple(tools)
    pieces = (text,) if isinstance(text, str) else tuple(text)
    header, begun = split_header(format, opened)
    if begun or not opened:
        begun = missing_thought_opener(format, "".join((begun, *pieces))) + begun
        opened = header + begun
    reader = Reader(format, tools, header, recover=recover)
    events = reader.feed(begun)
    if not any(isinstance(event, Text | Thought) for event in events):
        reader, events = Reader(format, tools, opened, recover=recover), []
    for piece in pieces:
        events += reader.feed(piece)
    return collect(events + reader.close())


def collect(events: Sequence[ModelEvent]) -> Parsed:
    """The answer that the events of a reader make up."""
    ready = [event for event in events if isinstance(event, CallReady)]
    return Parsed(
        "".join(event.text for event in events if isinstance(event, Text)),
        "".join(event.text for event in events if isinstance(event, Thought)),
        tuple(event.call for event in ready),
        tuple(event for event in events if isinstance(event, Unreadable)),
        tuple(sorted({repair for event in ready for repair in event.repairs})),
    )
