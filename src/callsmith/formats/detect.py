"""Which format a chat template speaks, by what it really writes: its own rendering of known calls, read back by every format."""

from collections.abc import Iterable
from dataclasses import dataclass

from callsmith.core.errors import CallsmithError
from callsmith.core.events import CallReady, Text, Unreadable
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.formats.layout import Format
from callsmith.formats.prompt import prompt_for
from callsmith.formats.read import read
from callsmith.formats.template import Template

TOOLS = tuple(
    Tool(name, "A tool.", {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]})
    for name, key in (("probe_alpha", "first_key"), ("probe_beta", "second_key"))
)
CALLS = (
    Call("probe_alpha", {"first_key": "value one"}, "aaaaaaaa1"),
    Call("probe_beta", {"second_key": "value two"}, "bbbbbbbb2"),
)
QUESTION = Message.user("What now?")


@dataclass(frozen=True, slots=True)
class Evidence:
    """How well a format reads what the template wrote: calls found of those shown, and characters it left as text."""

    format: Format
    found: int
    shown: int
    leftover: int
    text: str


def detect(template: Template, formats: Iterable[Format]) -> Evidence | None:
    """The format that reads the template's own calls back, with the least text left over; None if none does."""
    best: Evidence | None = None
    for format in formats:
        for calls in (CALLS, CALLS[:1]):
            text = _shown(template, format, calls)
            evidence = _weigh(format, text, calls) if text else None
            if evidence and (best is None or (evidence.found, -evidence.leftover) > (best.found, -best.leftover)):
                best = evidence
    return best


def _shown(template: Template, format: Format, calls: tuple[Call, ...]) -> str | None:
    """The assistant's turn with these calls, as the template writes it."""
    if not template.manners.calls:
        return None
    try:
        asked = prompt_for(Request((QUESTION,)), TOOLS, template, format)
        told = prompt_for(Request((QUESTION, Message.assistant(calls=calls))), TOOLS, template, format)
    except CallsmithError:
        return None
    before = asked.text[: len(asked.text) - len(asked.opened)]
    return told.text.removeprefix(before).removesuffix(told.opened) if told.text.startswith(before) else None


def _weigh(format: Format, text: str, calls: tuple[Call, ...]) -> Evidence | None:
    events = read(format, text, TOOLS)
    made = [(event.call.name, event.call.arguments) for event in events if isinstance(event, CallReady)]
    if made != [(call.name, call.arguments) for call in calls]:
        return None
    leftover = sum(len(event.text) for event in events if isinstance(event, Text | Unreadable))
    return Evidence(format, len(made), len(calls), leftover, text)
