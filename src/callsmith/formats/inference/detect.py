"""Detecting the format of a chat template: the template renders known calls, and every format tries to read them back.

Several formats may read the same text (readers are lenient). The best is the one that writes the calls most alike, needs the
fewest repairs and leaves the least text over.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from callsmith.core.errors import CallsmithError
from callsmith.core.events import CallReady, Text, Unreadable
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats.algebra import Format, nodes_of
from callsmith.formats.prompt.prompt import fit_id, prompt_for
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.parse import read
from callsmith.formats.write import literal_text, write

TOOLS = tuple(
    Tool(name, "A tool.", {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]})
    for name, key in (("probe_alpha", "first_key"), ("probe_beta", "second_key"))
)
CALLS = (Call("probe_alpha", {"first_key": "value one"}, "0"), Call("probe_beta", {"second_key": "value two"}, "1"))
QUESTION = Message.user("What now?")
ANSWERS = tuple(Message.tool(Result(call.id, call.name, "done")) for call in CALLS)


_Rendered: TypeAlias = dict[tuple[str, int], list[str]]  # by a format's ids, or its name, and the number of calls


@dataclass(frozen=True, slots=True)
class Evidence:
    """How well a format reads what the template wrote."""

    format: Format
    expected: int  # calls put into the conversation
    found: int  # calls read back
    similarity: int  # how alike the format writes these calls: 2 exactly, 1 except for white space, 0 otherwise
    repairs: int  # how many repairs were needed
    thinks: bool  # the template contains the opener of the format's reasoning
    leftover: int  # characters left as text
    text: str  # what the template wrote

    @property
    def rank(self) -> tuple[int, ...]:
        """A key to compare by; the largest is the best."""
        return (self.found, min(self.similarity, 1), self.thinks, -self.repairs, -self.leftover, self.similarity)


def detect(template: Template, formats: Iterable[Format]) -> Evidence | None:
    """The format that reads the template's own calls back best; None if none does."""
    if not template.traits.calls:
        return None
    rendered: _Rendered = {}
    evidence = (_evidence(template, format, rendered) for format in formats)
    return max(filter(None, evidence), key=lambda item: item.rank, default=None)


def shows_reasoning(format: Format, template_source: str) -> bool:
    """Whether a template contains the opener of the format's reasoning, so that the model reasons."""
    return format.thinks is not None and literal_text(nodes_of(format.thinks.open)).strip() in template_source


def _evidence(template: Template, format: Format, rendered: _Rendered) -> Evidence | None:
    for calls in (CALLS, CALLS[:1]):
        # Made once for all formats with the same ids, unless the format says how the template shows tools.
        key = (format.ids if template.traits.tools else format.name, len(calls))
        if key not in rendered:
            rendered[key] = [*_renderings(template, format, calls)]
        for text in rendered[key]:
            if evidence := _evaluate(format, text, calls, shows_reasoning(format, template.source)):
                return evidence
    return None


def _renderings(template: Template, format: Format, calls: tuple[Call, ...]) -> Iterator[str]:
    """The turn with these calls as the template renders it: alone, then followed by their results."""
    try:
        prompt = prompt_for(Request((QUESTION,)), TOOLS, template, format)
        for more in ((), ANSWERS[: len(calls)]):
            messages = QUESTION, Message.assistant(calls=calls), *more
            answered = prompt_for(Request(messages), TOOLS, template, format)
            before = prompt.text[: len(prompt.text) - len(prompt.opened)]
            yield answered.text.removeprefix(before).removesuffix(answered.opened)
    except CallsmithError:
        return


def _evaluate(format: Format, text: str, calls: tuple[Call, ...], thinks: bool) -> Evidence | None:
    events = read(format, text, TOOLS)
    ready = [event for event in events if isinstance(event, CallReady)]
    if [(event.call.name, event.call.arguments) for event in ready] != [(call.name, call.arguments) for call in calls]:
        return None
    leftover = sum(len(event.text) for event in events if isinstance(event, Text | Unreadable))
    repairs = len({repair for event in ready for repair in event.repairs})
    return Evidence(format, len(calls), len(ready), _similarity(format, calls, text), repairs, thinks, leftover, text)


def _similarity(format: Format, calls: tuple[Call, ...], text: str) -> int:
    """How alike the format writes the calls: all together or each alone, with ids or without."""
    bare = tuple(Call(call.name, call.arguments) for call in calls)
    fitted = tuple(Call(call.name, call.arguments, fit_id(call.id, format.ids)) for call in calls)
    ways = [[way] if together else [(call,) for call in way] for way in (fitted, bare) for together in (True, False)]
    spellings = [[write(format, item) for item in way] for way in ways]
    without_space = "".join(text.split())
    if any(all(item in text for item in way) for way in spellings):
        return 2
    return int(any(all("".join(item.split()) in without_space for item in way) for way in spellings))
