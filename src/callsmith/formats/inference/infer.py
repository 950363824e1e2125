"""A format for a chat template that no known format fits, read off from what the template writes.

    match infer(template):
        case Inferred(format=format): ...
        case Unclear(reasons=reasons): ...

The template renders made-up calls (`shown`), their words are masked (`masks`), and comparing one argument with two, one call
with two, a string with a number shows what is literal and what repeats. What comes out is believed only if it keeps the laws and
reads back every call the template wrote.

Not found: calls with no marker of their own, values that look different inside lists, and reasoning that a template never shows.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from callsmith.formats.algebra import Calls, Each, Format, Hole, Node, Nodes, Obj, Part, Says, Thinks
from callsmith.formats.inference.detect import detect
from callsmith.formats.inference.laws import FAILURES, calls_in, check, text_in
from callsmith.formats.inference.masks import (
    EACH_MASK,
    HOLE_OF_MASK,
    MASK,
    MaskedTurns,
    Repetition,
    find_json_objects,
    find_repetitions,
    first_number,
    has_call_numbers,
    mask_numbers,
    masked_turns,
)
from callsmith.formats.inference.probes import (
    NO_ARGUMENT,
    ONE_ARGUMENT,
    TOOLS,
    TWO_ARGUMENTS,
    TWO_CALLS,
    TYPED,
    ProbeTurn,
    RenderedTurns,
    token_edges,
)
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.reader import read

NINE = "[a-zA-Z0-9]{9}"  # what templates that are picky about ids want
NUMBERS = "[0-9]{1,3}"
ONE_A_MESSAGE = "one call a message"
# Where literals are cut, since white space at their edges is soft: between two tags, and where an array begins or ends.
CUTS = re.compile(r"(?<=>)(?=<)|(?<=>\n)(?=<)|(?<=[A-Z]\]|.>)(?=\[\s*\Z)|(?<=\A\])(?=<[/|｜])|(?<=\A\n\])(?=<[/|｜])")
REASONING = re.compile(r"<((?:\w+:)?think(?:ing)?)>|\[(THINK)\]")


@dataclass(frozen=True, slots=True)
class Inferred:
    """A format that was worked out, a turn it was worked out from, and what should be known about it."""

    format: Format
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nothing could be worked out, and why."""

    reasons: tuple[str, ...]


def infer(template: Template, name: str = "inferred") -> Inferred | Unclear:
    """The format in which a template writes calls, found out by rendering."""
    if not template.traits.calls:
        return Unclear(("the template shows no calls",))
    reasons: list[str] = []
    for answered in (False, True):
        shown = RenderedTurns(template, answered)
        if any(not shown.turn(scene) for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS)):
            reasons.append(f"the template shows no turn with calls {'and their results' if answered else 'alone'}")
            continue
        for guess in _guess_formats(shown):
            format = guess.format(name)
            try:
                problem = _problem(shown, format, guess.lead)
            except FAILURES as error:  # a wrong guess may be no format at all
                problem = f"a guess cannot be read with: {error}"
            if problem is None:
                return Inferred(format, shown.turn(TWO_CALLS) or "", tuple(_notes(shown, format, guess.lead)))
            reasons.append(problem)
    return Unclear((*dict.fromkeys(reasons), "the calls have no shape that is understood"))


# --- from masked turns to a format --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Guess:
    """One way to see the turns. `lead` is the end of the header where that belongs to the calls; `index` numbers the first."""

    rendered: RenderedTurns
    masked: MaskedTurns
    repetition: Repetition
    lead: str
    index: int

    def format(self, name: str) -> Format:
        nodes, pattern = self._item()
        many = ONE_A_MESSAGE not in self.rendered.template.traits.adaptations
        calls = Calls(
            *nodes,
            open=self._nodes(self.repetition.open),
            between=self.repetition.between if many else "",
            close=self._nodes(self.repetition.close),
            values=self.masked.values,
            index=self.index,
            most=None if many else 1,
        )
        thinks = _thinks(self.rendered, self.lead)
        parts: list[Part] = [thinks] if thinks else []
        open, close = self.rendered.text_markers
        if open.strip() and not (thinks and open.strip() == str(thinks.open).strip()):
            parts.append(Says(self.lead + open, close or ()))
        return Format(name, (*parts, calls), ids=pattern)

    def _item(self) -> tuple[Nodes, str]:
        """The nodes of a call, and the pattern of its id."""
        item = self.repetition.item
        if envelope := _envelope(item):
            head, node, tail = envelope
            pattern = NUMBERS if MASK[Hole.INDEX] in item else self._pattern(item)
            return (*self._nodes(head), node, *self._nodes(tail)), pattern
        return self._nodes(item), self._pattern(item)

    def _pattern(self, item: str) -> str:
        return NINE if MASK[Hole.ID] in item and self.rendered.needs_short_ids else ""

    def _nodes(self, text: str) -> Nodes:
        """Masked text as literals and holes."""
        nodes: list[Node] = []
        literal = ""
        for char in text:
            if char in HOLE_OF_MASK or char == EACH_MASK:
                nodes += CUTS.split(literal) if literal else []
                nodes.append(self._each() if char == EACH_MASK else HOLE_OF_MASK[char])
                literal = ""
            else:
                literal += char
        return (*nodes, *(CUTS.split(literal) if literal else []))

    def _each(self) -> Each:
        argument = self.masked.argument
        return Each(self._nodes(argument.item), argument.between)


def _guess_formats(shown: RenderedTurns) -> Iterator[_Guess]:
    for reading in masked_turns(shown):
        needed = MASK[Hole.NAME], EACH_MASK if reading.argument.item else MASK[Hole.ARGS]
        counted = has_call_numbers(reading.one, reading.two)
        one, two = (mask_numbers(text) if counted else text for text in (reading.one, reading.two))
        for series in find_repetitions(one, two, needed):
            lead = _lead(shown, series)
            yield _Guess(shown, reading, _tidy(series, lead), lead, first_number(reading.one) if counted else 0)


def _lead(shown: RenderedTurns, series: Repetition) -> str:
    """The end of the header that also stands between calls, where calls would have no marker without it: `>>>`."""
    if series.item[0] not in HOLE_OF_MASK or series.open.strip():
        return ""
    ways = (series.between[at:] for at in token_edges(series.between) if shown.prefix.endswith(series.between[at:]))
    return next(ways, "")


def _tidy(series: Repetition, lead: str) -> Repetition:
    """White space at the edges of a call belongs to what is around it; around the whole it belongs to nobody."""
    item = lead + series.item
    head, tail = item[: len(item) - len(item.lstrip())], item[len(item.rstrip()) :]
    between = tail + series.between.removesuffix(lead) + head
    return Repetition((series.open + head).lstrip(), item.strip(), between, (tail + series.close).rstrip())


def _envelope(item: str) -> tuple[str, Obj, str] | None:
    """The JSON object around name and arguments, and what stands before and behind it."""
    text = item.replace(MASK[Hole.ARGS], json.dumps(MASK[Hole.ARGS], ensure_ascii=False))
    for start, value, end in reversed(list(find_json_objects(text))):
        fields = tuple(_field(key, one) for key, one in value.items())
        held = {one for field in fields if field for one in field}
        if None not in fields and {Hole.NAME, Hole.ARGS} <= held:
            return text[:start], Obj(tuple(field for field in fields if field)), text[end:]
    return None


def _field(key: str, value: Any) -> tuple[str | Hole, Hole] | None:
    hole = HOLE_OF_MASK.get(value) if isinstance(value, str) else None
    if hole is None:
        return None
    return HOLE_OF_MASK.get(key, key), Hole.ID if hole is Hole.INDEX else hole


def _thinks(shown: RenderedTurns, lead: str) -> Thinks | None:
    """The reasoning: as the template shows it, else by the markers its source knows."""
    if shown.reasoning_markers:
        open, close = shown.reasoning_markers
        return Thinks(lead + open, close)
    source = shown.template.source + shown.opened
    for found in REASONING.finditer(source):
        close = f"</{found[1]}>" if found[1] else f"[/{found[2]}]"
        if close in source:
            return Thinks(found[0], close)
    return None


# --- whether it is right ------------------------------------------------------------------------------------------------------


def _problem(shown: RenderedTurns, format: Format, lead: str) -> str | None:
    """Why a format is not what the template writes; None if it is."""
    for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS, TYPED["number"], NO_ARGUMENT):
        if problem := _misread(shown, format, scene, lead):
            return problem
    if detect(shown.template, [format]) is None:
        return "the calls are not read back out of the whole turn"
    for breach in check(format, 12):
        return f"a format that reads them breaks a law: {breach.law} ({breach.what})"
    return None


def _misread(shown: RenderedTurns, format: Format, scene: ProbeTurn, lead: str) -> str | None:
    text = shown.turn(scene)
    if text is None:
        return None
    events = read(format, text, TOOLS, lead)
    found, expected = calls_in(events), [(call.name, dict(call.arguments)) for call in scene.calls]
    if found != expected:
        return f"the turn {text!r} is read as {found}"
    left = text_in(events).strip()
    return f"of the turn {text!r}, {left!r} is left as text" if left and format.calls.most is None else None


def _notes(shown: RenderedTurns, format: Format, lead: str) -> Iterator[str]:
    """What the user should know."""
    for kind, scene in TYPED.items():
        if _misread(shown, format, scene, lead):
            yield f"the template writes a value of type {kind} in a way that does not read back as one"
    if format.calls.most == 1:
        yield "the template shows one call a message, so the model is held to one"
    if format.thinks and not shown.reasoning_markers:
        yield "the markers of reasoning are taken from the template's source; it never shows any"
    if shown.with_results:
        yield "the template shows calls only together with their results"
