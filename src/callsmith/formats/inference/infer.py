"""Inferring a format from a chat template that no known format fits.

    match infer(template):
        case Inferred(format=format): ...
        case Unclear(reasons=reasons): ...

The template renders made-up calls (`probes`), their names and values are masked (`masks`), and comparing one argument with two,
one call with two, a string with a number shows what is literal and what repeats. The result is accepted only if it keeps the laws
and reads back every call the template wrote.

Not found: calls without a marker, values that are written differently inside lists, and reasoning that a template never shows.
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
from callsmith.formats.reader.parse import read

NINE = "[a-zA-Z0-9]{9}"  # what templates accept that are strict about ids
NUMBERS = "[0-9]{1,3}"
ONE_A_MESSAGE = "one call a message"
# Where literals are cut, since white space at their edges is soft: between two tags, and where an array begins or ends.
CUTS = re.compile(r"(?<=>)(?=<)|(?<=>\n)(?=<)|(?<=[A-Z]\]|.>)(?=\[\s*\Z)|(?<=\A\])(?=<[/|｜])|(?<=\A\n\])(?=<[/|｜])")
MASKS = re.compile(f"([{''.join(HOLE_OF_MASK)}{EACH_MASK}])")
REASONING = re.compile(r"<((?:\w+:)?think(?:ing)?)>|\[(THINK)\]")


@dataclass(frozen=True, slots=True)
class Inferred:
    """An inferred format, a rendered turn it was inferred from, and notes for the user."""

    format: Format
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unclear:
    """No format could be inferred, for these reasons."""

    reasons: tuple[str, ...]


def infer(template: Template, name: str = "inferred") -> Inferred | Unclear:
    """Infer the format in which a template writes calls, by rendering probes."""
    if not template.traits.calls:
        return Unclear(("the template shows no calls",))
    reasons: list[str] = []
    for with_results in (False, True):
        rendered = RenderedTurns(template, with_results)
        if any(not rendered.turn(probe) for probe in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS)):
            reasons.append(f"the template shows no turn with calls {'and their results' if with_results else 'alone'}")
            continue
        for guess in _guess_formats(rendered):
            format = guess.format(name)
            try:
                problem = _problem(rendered, format, guess.lead)
            except FAILURES as error:  # a wrong guess may break the reader
                problem = f"a guess cannot be read with: {error}"
            if problem is None:
                return Inferred(format, rendered.turn(TWO_CALLS) or "", tuple(_notes(rendered, format, guess.lead)))
            reasons.append(problem)
    return Unclear((*dict.fromkeys(reasons), "the calls have no shape that is understood"))


# --- from masked turns to a format --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Guess:
    """One possible format. `lead` is the end of the header if that belongs to the calls; `index` numbers the first call."""

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
        pattern = NINE if MASK[Hole.ID] in item and self.rendered.needs_nine_char_ids else ""
        if envelope := _envelope(item):
            head, node, tail = envelope
            return (*self._nodes(head), node, *self._nodes(tail)), NUMBERS if MASK[Hole.INDEX] in item else pattern
        return self._nodes(item), pattern

    def _nodes(self, text: str) -> Nodes:
        """Masked text as literals and holes."""
        nodes: list[Node] = []
        for piece in filter(None, MASKS.split(text)):
            if piece == EACH_MASK:
                argument = self.masked.argument
                nodes.append(Each(self._nodes(argument.item), argument.between))
            else:
                nodes += [HOLE_OF_MASK[piece]] if piece in HOLE_OF_MASK else CUTS.split(piece)
        return tuple(nodes)


def _guess_formats(rendered: RenderedTurns) -> Iterator[_Guess]:
    for masked in masked_turns(rendered):
        needed = MASK[Hole.NAME], EACH_MASK if masked.argument.item else MASK[Hole.ARGS]
        one, two, first = mask_numbers(masked.one, masked.two)
        for repetition in find_repetitions(one, two, needed):
            lead = _lead(rendered, repetition)
            yield _Guess(rendered, masked, _trim(repetition, lead), lead, first)


def _lead(rendered: RenderedTurns, repetition: Repetition) -> str:
    """The end of the header that is also between calls, if calls have no other marker: `>>>`."""
    if repetition.item[0] not in HOLE_OF_MASK or repetition.open.strip():
        return ""
    ways = (
        repetition.between[at:] for at in token_edges(repetition.between) if rendered.prefix.endswith(repetition.between[at:])
    )
    return next(ways, "")


def _trim(repetition: Repetition, lead: str) -> Repetition:
    """Move white space at the edges of a call into the text around it, and drop it around the whole."""
    item = lead + repetition.item
    head, tail = item[: len(item) - len(item.lstrip())], item[len(item.rstrip()) :]
    between = tail + repetition.between.removesuffix(lead) + head
    return Repetition((repetition.open + head).lstrip(), item.strip(), between, (tail + repetition.close).rstrip())


def _envelope(item: str) -> tuple[str, Obj, str] | None:
    """The JSON object around name and arguments, and the text before and after it."""
    text = item.replace(MASK[Hole.ARGS], json.dumps(MASK[Hole.ARGS], ensure_ascii=False))
    for start, value, end in reversed(list(find_json_objects(text))):
        fields = tuple(_field(key, member) for key, member in value.items())
        holes = {hole for field in fields if field for hole in field}
        if None not in fields and {Hole.NAME, Hole.ARGS} <= holes:
            return text[:start], Obj(tuple(field for field in fields if field)), text[end:]
    return None


def _field(key: str, value: Any) -> tuple[str | Hole, Hole] | None:
    hole = HOLE_OF_MASK.get(value) if isinstance(value, str) else None
    if hole is None:
        return None
    return HOLE_OF_MASK.get(key, key), Hole.ID if hole is Hole.INDEX else hole


def _thinks(rendered: RenderedTurns, lead: str) -> Thinks | None:
    """The markers of reasoning: as the template renders them, else as they stand in its source."""
    if rendered.reasoning_markers:
        open, close = rendered.reasoning_markers
        return Thinks(lead + open, close)
    source = rendered.template.source + rendered.opened
    for match in REASONING.finditer(source):
        close = f"</{match[1]}>" if match[1] else f"[/{match[2]}]"
        if close in source:
            return Thinks(match[0], close)
    return None


# --- whether it is right ------------------------------------------------------------------------------------------------------


def _problem(rendered: RenderedTurns, format: Format, lead: str) -> str | None:
    """Why a format does not read what the template writes; None if it does."""
    for probe in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS, TYPED["number"], NO_ARGUMENT):
        if problem := _misread(rendered, format, probe, lead):
            return problem
    if detect(rendered.template, [format]) is None:
        return "the calls are not read back out of the whole turn"
    for breach in check(format, 12):
        return f"a format that reads them breaks a law: {breach.law} ({breach.what})"
    return None


def _misread(rendered: RenderedTurns, format: Format, probe: ProbeTurn, lead: str) -> str | None:
    text = rendered.turn(probe)
    if text is None:
        return None
    events = read(format, text, TOOLS, lead)
    calls, expected = calls_in(events), [(call.name, dict(call.arguments)) for call in probe.calls]
    if calls != expected:
        return f"the turn {text!r} is read as {calls}"
    rest = text_in(events).strip()
    return f"of the turn {text!r}, {rest!r} is left as text" if rest and format.calls.most is None else None


def _notes(rendered: RenderedTurns, format: Format, lead: str) -> Iterator[str]:
    """Notes on the format for the user."""
    for kind, probe in TYPED.items():
        if _misread(rendered, format, probe, lead):
            yield f"the template writes a value of type {kind} in a way that does not read back as one"
    if format.calls.most == 1:
        yield "the template shows one call a message, so the model is held to one"
    if format.thinks and not rendered.reasoning_markers:
        yield "the markers of reasoning are taken from the template's source; it never shows any"
    if rendered.with_results:
        yield "the template shows calls only together with their results"
