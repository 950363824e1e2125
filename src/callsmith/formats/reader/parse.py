"""Parsing a whole answer: what a model wrote, as content, reasoning and calls.

parse(format_named("hermes"), text, tools).calls
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from callsmith.core.events import CallReady, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import Calls, Format, Says, first_literals, nodes_of
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import literal_text

# Control tokens and the name of the role: `<|im_start|>assistant\n`, `<｜Assistant｜>`, `]~b]ai\n`, `assistant: `.
TOKENS = r"(?:\s|<[^<>\s]+>|\]~b\])*"
HEADER = re.compile(rf"{TOKENS}(?:(?i:assistant|model|chatbot|ai)\b:?)?{TOKENS}")


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

    `recover`: calls inside the reasoning count where there is none outside.
    If the answer closes reasoning that it does not open, and the prompt does not say how it began, it began with reasoning.
    """
    tools = tuple(tools)
    pieces = (text,) if isinstance(text, str) else tuple(text)
    whole = pieces[0] if len(pieces) == 1 else "".join(pieces)
    header, begun = split_header(format, opened) if opened else ("", "")
    if begun or not opened:
        begun = missing_thought_opener(format, begun + whole) + begun
        opened = header + begun
    reader = Reader(format, tools, header, recover=recover)
    events: list[ModelEvent] = []
    if begun:
        events = reader.feed(begun)
    if begun and not any(isinstance(event, Text | Thought) for event in events):
        reader, events = Reader(format, tools, opened, recover=recover), []
    for piece in pieces[:-1]:
        events += reader.feed(piece)
    return collect(events + reader.close(*pieces[-1:]))


def read(format: Format, text: str, tools: Iterable[Tool] = (), opened: str = "") -> list[ModelEvent]:
    """The events of a whole text."""
    reader = Reader(format, tools, opened)
    return reader.close(text)


def collect(events: Sequence[ModelEvent]) -> Parsed:
    """The answer that the events of a reader make up."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[Call] = []
    unreadable: list[Unreadable] = []
    repairs: set[str] = set()
    for event in events:
        if isinstance(event, CallReady):
            calls.append(event.call)
            repairs.update(event.repairs)
        elif isinstance(event, Text):
            content.append(event.text)
        elif isinstance(event, Thought):
            reasoning.append(event.text)
        elif isinstance(event, Unreadable):
            unreadable.append(event)
    return Parsed("".join(content), "".join(reasoning), tuple(calls), tuple(unreadable), tuple(sorted(repairs)))


# --- answers that the prompt has begun ------------------------------------------------------------------------------------


def split_header(format: Format, opened: str) -> tuple[str, str]:
    """Split the end of a prompt into the header of the turn and the beginning of the answer."""
    frames = [part for part in format.parts if not isinstance(part, Calls)]
    marked = [at for part in frames for marker in first_literals(nodes_of(part.open)) if (at := opened.find(marker)) >= 0]
    header = HEADER.match(opened)
    end = min(marked) if marked else header.end() if header else 0
    return opened[:end], opened[end:]


def missing_thought_opener(format: Format, text: str) -> str:
    """What the text lacks of the opener of reasoning, if it closes reasoning that it does not open; else an empty string."""
    closers, openers, opener = _reasoning_of(format)
    ends = [at for closer in closers if (at := text.find(closer)) >= 0]
    if not ends or any(text.find(other, 0, min(ends)) >= 0 for other in openers):
        return ""
    return opener[: next((at for at in range(1, len(opener)) if text.startswith(opener[at:])), len(opener))]


@lru_cache(1024)
def _reasoning_of(format: Format) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """What closes reasoning, what may open it, and how that is written; nothing if what closes it may also close text."""
    thinks = format.thinks
    closers = first_literals(nodes_of(thinks.close)) if thinks else ()
    says = [first_literals(nodes_of(part.close)) for part in format.parts if isinstance(part, Says)]
    if thinks is None or any(closer in others for closer in closers for others in says):
        return (), (), ""
    return closers, first_literals(nodes_of(thinks.open)), literal_text(nodes_of(thinks.open))
