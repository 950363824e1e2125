"""Parsing a whole answer: what a model wrote, as content, reasoning and calls.

parse(format_named("hermes"), text, tools).calls
calls, cleaned, fallback = parse_content(text, tools)      # whichever of several formats the text is in
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from callsmith.core.events import CallReady, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.reader.continuation import missing_thought_opener, split_header
from callsmith.formats.reader.reader import Reader

# The order in which a text of unknown format is tried: marked calls, bare JSON, Gemma's inline calls, plain calls by name.
FALLBACK_FORMATS = ("hermes", "mistral", "llama3-json", "json", "fenced-json", "gemma4", "plain-call")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed answer. `repairs` names the repairs that were needed."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    unreadable: tuple[Unreadable, ...]
    repairs: tuple[str, ...]


def parse(format: Format, text: str | Iterable[str], tools: Iterable[Tool] = (), opened: str = "") -> Parsed:
    """Parse an answer, whole or in pieces. Text at the end of the prompt that begins the answer (`opened`) is part of it.

    If the answer closes reasoning that it does not open, and the prompt does not say how it began, it began with reasoning.
    """
    tools = tuple(tools)
    pieces = (text,) if isinstance(text, str) else tuple(text)
    header, begun = split_header(format, opened)
    if begun or not opened:
        begun = missing_thought_opener(format, "".join((begun, *pieces))) + begun
        opened = header + begun
    reader = Reader(format, tools, header)
    events = reader.feed(begun)
    if not any(isinstance(event, Text | Thought) for event in events):
        reader, events = Reader(format, tools, opened), []
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


def parse_content(
    raw: str, tools: Iterable[Tool] = (), formats: Sequence[str] = FALLBACK_FORMATS
) -> tuple[tuple[Call, ...], str, bool]:
    """Parse text of an unknown format: the calls, the text without calls and reasoning, and whether any call was found.

    The formats are tried in order and the first that finds a call is taken. A call without an id gets `NAME_INDEX`.
    """
    tools = tuple(tools)
    read = [parse(format_named(name), raw, tools) for name in formats]
    best = next((parsed for parsed in read if parsed.calls), read[0])
    # A format that knows no reasoning leaves it in the text: what the first one knows of it is taken out there, too.
    content = best.content if best is read[0] else parse(format_named(formats[0]).without_calls(), best.content).content
    calls = tuple(
        Call(call.name, call.arguments, call.id or f"{call.name}_{index}", call.text) for index, call in enumerate(best.calls)
    )
    return calls, content.strip(), bool(calls)
