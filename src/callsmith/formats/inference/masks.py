"""Masking rendered probes: every made-up name, key, value and id becomes one character that stands for its hole.

Two turns that differ only in those are then the same text, and what repeats is found by comparing: `find_repetitions` takes a
text with one item and the same text with two, and finds where the item begins and ends and what is between.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from callsmith.core.values import Call
from callsmith.formats.algebra import JSON, PYTHON, RAW, Hole, Nested, Notation, Raw, Spelling
from callsmith.formats.inference.probes import (
    IDS,
    KEYS,
    NAMES,
    NO_ARGUMENT,
    ONE_ARGUMENT,
    TWO_ARGUMENTS,
    TWO_CALLS,
    TYPED,
    VALUES,
    ProbeTurn,
    RenderedTurns,
    shared_end,
    shared_start,
    token_edges,
)
from callsmith.formats.write import spell

S = TypeVar("S", bound=Spelling)

MASK = {hole: chr(0xE000 + number) for number, hole in enumerate(Hole)}  # private use characters, which no template writes
KEY_MASK, VALUE_MASK = MASK[Hole.KEY], MASK[Hole.VALUE]
EACH_MASK = chr(0xE100)  # all the arguments, one by one
HOLE_OF_MASK = {mask: hole for hole, mask in MASK.items()}
SINGLE_DIGIT = re.compile(r"(?<![\w.])\d(?![\w.])")


@dataclass(frozen=True, slots=True)
class Repetition:
    """A text with repeated items: the text before them, the item, the text between two items, the text after them."""

    open: str
    item: str
    between: str
    close: str

    def with_space_inside(self) -> "Repetition":
        """The same text, with white space that follows every item made a part of the item."""
        space = self.between
        if not space.isspace() or not self.close.startswith(space):
            return self
        return Repetition(self.open, self.item + space, "", self.close.removeprefix(space))


def find_repetitions(one: str, two: str, holes: Iterable[str]) -> Iterator[Repetition]:
    """All ways to divide `one` into a text with one item, and `two` into the same with two; the longest items first."""
    needed = set(holes)
    places, others = token_edges(one), set(token_edges(two))
    starts = [at for at in places if two.endswith(one[at:]) and len(two) - len(one) + at in others]
    ends = [at for at in places if two.startswith(one[:at]) and at in others]
    for start in starts:
        for end in reversed(ends):
            behind = len(two) - len(one) + start  # where the second item begins
            if start < end <= behind and needed <= set(one[start:end]) and not needed & set(one[:start] + one[end:]):
                yield Repetition(one[:start], one[start:end], two[end:behind], one[end:])


def mask_names(text: str) -> str:
    """Mask the names, keys and ids of a turn."""
    for words, hole in ((NAMES, Hole.NAME), (KEYS, Hole.KEY), (IDS, Hole.ID)):
        for word in words:
            text = text.replace(word, MASK[hole])
    return text


def mask_object(text: str, calls: Iterable[Call], notation: Notation) -> str | None:
    """Mask a turn whose arguments stand as one object; None if they do not."""
    for call in calls:
        spelled = spell(notation, dict(call.arguments))
        ways = (spelled, json.dumps(spelled)) if notation == JSON else (spelled,)
        object_text = next((way for way in ways if way in text), None)
        if object_text is None and notation == JSON:  # in another spacing
            objects = find_json_objects(text)
            object_text = next((text[start:end] for start, value, end in objects if value == dict(call.arguments)), None)
        if object_text is None:
            return None
        head, _, tail = text.rpartition(object_text) if not call.arguments else text.partition(object_text)
        text = head + MASK[Hole.ARGS] + tail
    return mask_names(text)


def find_json_objects(text: str) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The JSON objects of a text, inner ones too, each with its start and end."""
    for brace in re.finditer(r"\{", text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, brace.start())
        except ValueError:
            continue
        yield brace.start(), value, end


def mask_arguments(text: str, calls: Iterable[Call], spelling: Spelling) -> str | None:
    """Mask a turn whose arguments stand one by one; None if they do not."""
    for call in calls:
        for key, value in call.arguments.items():
            ways = (spell(spelling, value), str(value)) if spelling == RAW else (spell(spelling, value),)
            start = text.find(key)
            # The last of them: the flag of a type may be spelled like the value, and is before it.
            at, way = max((text.rfind(way) if value not in VALUES else text.find(way, start), way) for way in ways)
            if start < 0 or at < start:
                return None
            text = text[:at] + MASK[Hole.VALUE] + text[at + len(way) :]
            text = text.replace(key, MASK[Hole.KEY])
    return mask_names(text)


def mask_numbers(one: str, two: str) -> tuple[str, str, int]:
    """A turn with one call and one with two, with the single digits masked that number their calls; and the first number.

    In the turn with two calls the next digit is there too: where it does not, calls have no numbers.
    """
    numbers, more = ([int(digit) for digit in SINGLE_DIGIT.findall(text)] for text in (one, two))
    if len(numbers) != 1 or more != [numbers[0], numbers[0] + 1]:
        return one, two, 0
    return SINGLE_DIGIT.sub(MASK[Hole.INDEX], one), SINGLE_DIGIT.sub(MASK[Hole.INDEX], two), numbers[0]


@dataclass(frozen=True, slots=True)
class MaskedTurns:
    """A turn with one call and a turn with two, masked under one assumption of how arguments are written.

    `argument` is how they repeat one by one; its item is empty where the arguments are one object.
    """

    one: str
    two: str
    values: Spelling
    argument: Repetition = Repetition("", "", "", "")


def masked_turns(rendered: RenderedTurns) -> Iterator[MaskedTurns]:
    """The probes, masked under each assumption that fits them, the likeliest first."""
    for notation in _notations(rendered.turn(TWO_ARGUMENTS) or ""):
        one, two_arguments, two = (
            _mask(rendered, probe, notation, mask_object) for probe in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS)
        )
        if one is not None and two is not None and one == two_arguments:
            yield MaskedTurns(one, two, notation)
    styles = [style for spelling in _spellings(rendered) if (style := _ArgumentStyle.of(rendered, spelling))]
    for style in sorted(styles, key=lambda style: -len(style.separators)):
        yield from style.masked_turns(mask_names(rendered.turn(NO_ARGUMENT) or ""))


def _notations(text: str) -> Iterator[Notation]:
    """The notations an object of arguments may be in, given a turn with two arguments."""
    yield JSON
    yield from (replace(JSON, item_separator=item, key_separator=key) for item, key in ((",", ":"), (", ", ":"), (",", ": ")))
    yield PYTHON
    (one, word), (other, last) = TWO_ARGUMENTS.calls[0].arguments.items()
    match = re.search(rf"\{{{one}(\s*:\s*)(\S+?){word}\2(\s*,\s*){other}\1\2{last}\2\}}", text)
    if match:
        plain = len(match[2]) == 1
        yield Notation((match[2],), bare_keys=True, escapes=plain, item_separator=match[3], key_separator=match[1])


def _spellings(rendered: RenderedTurns) -> Iterator[Spelling]:
    yield from (RAW, JSON, PYTHON)
    masked = _mask(rendered, ONE_ARGUMENT, RAW, mask_arguments) or ""
    if match := re.search(f"{VALUE_MASK}([^{VALUE_MASK}]*)</{KEY_MASK}>", masked):
        yield Nested(prefix=match[1])


def _mask(
    rendered: RenderedTurns, probe: ProbeTurn, spelling: S, mask: Callable[[str, Iterable[Call], S], str | None]
) -> str | None:
    text = rendered.turn(probe)
    return None if text is None else mask(text, probe.calls, spelling)


@dataclass(frozen=True, slots=True)
class _ArgumentStyle:
    """Arguments one by one in one spelling. `separators`: by type of value, the text between key and value."""

    spelling: Spelling
    one: str
    two_arguments: str
    two: str
    separators: dict[str, str]

    @classmethod
    def of(cls, rendered: RenderedTurns, spelling: Spelling) -> "_ArgumentStyle | None":
        one, two_arguments, two = (
            _mask(rendered, probe, spelling, mask_arguments) for probe in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS)
        )
        if one is None or two_arguments is None or two is None:
            return None
        separators = {"string": _separator(one)}
        for kind, probe in TYPED.items():
            text = _mask(rendered, probe, spelling, mask_arguments)
            if text is None:
                continue
            separator = _separator(text)
            if text.replace(KEY_MASK + separator + VALUE_MASK, KEY_MASK + separators["string"] + VALUE_MASK) == one:
                separators[kind] = separator
        return cls(spelling, one, two_arguments, two, separators)

    def masked_turns(self, none: str) -> Iterator[MaskedTurns]:
        """The turns with arguments masked; divisions whose rest is `none`, a turn without arguments, come first."""
        ways = list(find_repetitions(self.one, self.two_arguments, (KEY_MASK, VALUE_MASK)))
        for way in sorted(ways, key=lambda way: (way.open + way.close != none, way.item.startswith("\n"))):
            argument = way.with_space_inside()
            one, two = argument.open + EACH_MASK + argument.close, self.two.replace(argument.item, EACH_MASK)
            if two.count(EACH_MASK) == 2:
                values = self.spelling if self.spelling != RAW else Raw(self._flags())
                yield MaskedTurns(one, two, values, replace(argument, item=self._with_flag(argument.item)))

    def _flags(self) -> tuple[tuple[str, str], ...]:
        head, tail = self._around()
        flags = {kind: separator[len(head) : len(separator) - len(tail)] for kind, separator in self.separators.items()}
        if len(set(flags.values())) < 2:
            return ()
        others = {flag for kind, flag in flags.items() if kind != "string"}
        if len(others) == 1:
            return ((flags["string"], "string"), (others.pop(), "json"))
        return tuple({flag: kind for kind, flag in reversed(flags.items())}.items())

    def _around(self) -> tuple[str, str]:
        """The common start and the common end of all separators."""
        separators = list(self.separators.values())
        start = min(shared_start(separators[0], separator) for separator in separators)
        end = min(shared_end(separators[0][start:], separator[start:]) for separator in separators)
        return separators[0][:start], separators[0][len(separators[0]) - end :]

    def _with_flag(self, item: str) -> str:
        if self.spelling != RAW or not self._flags():
            return item
        return item.replace(
            KEY_MASK + self.separators["string"] + VALUE_MASK,
            KEY_MASK + MASK[Hole.TYPE].join(self._around()) + VALUE_MASK,
        )


def _separator(text: str) -> str:
    """The text between a key and its value."""
    match = re.search(f"{KEY_MASK}([^{KEY_MASK}{VALUE_MASK}]*){VALUE_MASK}", text)
    return match[1] if match else ""
