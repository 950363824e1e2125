"""Rendered turns with the holes punched in: every made-up word becomes one character that stands for its hole.

Two turns that differ only in what they hold then are the same text, and what repeats can be found by comparing: `divide` takes
a text with one item and the same with two, and finds where the item begins and ends and what stands between.
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

MASK = {hole: chr(0xE000 + number) for number, hole in enumerate(Hole)}  # private use: no template writes these
KEY_MASK, VALUE_MASK = MASK[Hole.KEY], MASK[Hole.VALUE]
EACH_MASK = chr(0xE100)  # all the arguments, one by one
HOLE_OF_MASK = {mark: hole for hole, mark in MASK.items()}
SINGLE_DIGIT = re.compile(r"(?<![\w.])\d(?![\w.])")


@dataclass(frozen=True, slots=True)
class Repetition:
    """A text with items in it: what stands before them, the item, what stands between two, what stands behind."""

    open: str
    item: str
    between: str
    close: str

    def with_space_inside(self) -> "Repetition":
        """White space between items that also stands behind the last belongs to each: then nothing has to be told apart."""
        space = self.between
        if not space.isspace() or not self.close.startswith(space):
            return self
        return Repetition(self.open, self.item + space, "", self.close.removeprefix(space))


def find_repetitions(one: str, two: str, holes: Iterable[str]) -> Iterator[Repetition]:
    """The ways to see `one` as a text with one item and `two` as the same with two; the widest items first."""
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
    """A turn with names, keys and ids masked."""
    for words, hole in ((NAMES, Hole.NAME), (KEYS, Hole.KEY), (IDS, Hole.ID)):
        for word in words:
            text = text.replace(word, MASK[hole])
    return text


def mask_object(text: str, calls: Iterable[Call], notation: Notation) -> str | None:
    """A turn in which the arguments stand as one object; None if they do not."""
    for call in calls:
        found = next((way for way in _spellings_of_object(call.arguments, notation) if way in text), None)
        if found is None and notation == JSON:
            found = _find_object(text, dict(call.arguments))
        if found is None:
            return None
        head, _, tail = text.rpartition(found) if not call.arguments else text.partition(found)
        text = head + MASK[Hole.ARGS] + tail
    return mask_names(text)


def _spellings_of_object(arguments: Any, notation: Notation) -> tuple[str, ...]:
    """How arguments may be spelled as one object: as it is, or once more as a string."""
    text = spell(notation, dict(arguments))
    return (text, json.dumps(text)) if notation == JSON else (text,)


def _find_object(text: str, arguments: dict[str, Any]) -> str | None:
    """The arguments as JSON in any other spacing."""
    return next((text[start:end] for start, value, end in find_json_objects(text) if value == arguments), None)


def find_json_objects(text: str) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The JSON objects of a text, inner ones too, each with where it begins and ends."""
    for found in re.finditer(r"\{", text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, found.start())
        except ValueError:
            continue
        yield found.start(), value, end


def mask_arguments(text: str, calls: Iterable[Call], spelling: Spelling) -> str | None:
    """A turn in which the arguments stand one by one; None if they do not."""
    for call in calls:
        for key, value in call.arguments.items():
            ways = (spell(spelling, value), str(value)) if spelling == RAW else (spell(spelling, value),)
            start = text.find(key)
            # The last of them: the flag of a type may be spelled like the value, and stands before it.
            at, way = max((text.rfind(way) if value not in VALUES else text.find(way, start), way) for way in ways)
            if start < 0 or at < start:
                return None
            text = text[:at] + MASK[Hole.VALUE] + text[at + len(way) :]
            text = text.replace(key, MASK[Hole.KEY])
    return mask_names(text)


def mask_numbers(text: str) -> str:
    """A masked turn in which single digits may number the calls."""
    return SINGLE_DIGIT.sub(MASK[Hole.INDEX], text)


def has_call_numbers(one: str, two: str) -> bool:
    """Whether a single digit counts the calls: the turn with two has one more, and it is the next."""
    numbers, more = ([int(found) for found in SINGLE_DIGIT.findall(text)] for text in (one, two))
    return len(numbers) == 1 and more == [numbers[0], numbers[0] + 1]


def first_number(text: str) -> int:
    """What the first call is numbered with."""
    found = SINGLE_DIGIT.search(text)
    return int(found[0]) if found else 0


@dataclass(frozen=True, slots=True)
class MaskedTurns:
    """A turn with one call and a turn with two, masked under one idea of how arguments are written.

    `argument` says how they stand one by one; its item is empty where they are one object.
    """

    one: str
    two: str
    values: Spelling
    argument: Repetition = Repetition("", "", "", "")


def masked_turns(shown: RenderedTurns) -> Iterator[MaskedTurns]:
    """The ideas that fit what is shown, the likeliest first."""
    yield from _masked_as_object(shown)
    yield from _masked_one_by_one(shown)


def _masked_as_object(shown: RenderedTurns) -> Iterator[MaskedTurns]:
    for notation in _notations(shown.turn(TWO_ARGUMENTS) or ""):
        one, more, two = (_masked(shown, scene, notation, mask_object) for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS))
        if one is not None and two is not None and one == more:
            yield MaskedTurns(one, two, notation)


def _notations(text: str) -> Iterator[Notation]:
    """The notations an object of arguments may be in, given a turn with two arguments."""
    yield JSON
    yield from (replace(JSON, item_separator=item, key_separator=key) for item, key in ((",", ":"), (", ", ":"), (",", ": ")))
    yield PYTHON
    (one, word), (other, last) = TWO_ARGUMENTS.calls[0].arguments.items()
    found = re.search(rf"\{{{one}(\s*:\s*)(\S+?){word}\2(\s*,\s*){other}\1\2{last}\2\}}", text)
    if found:
        plain = len(found[2]) == 1
        yield Notation((found[2],), bare_keys=True, escapes=plain, item_separator=found[3], key_separator=found[1])


def _masked_one_by_one(shown: RenderedTurns) -> Iterator[MaskedTurns]:
    ideas = [idea for spelling in _spellings(shown) if (idea := _ArgumentStyle.of(shown, spelling))]
    for idea in sorted(ideas, key=lambda idea: -len(idea.between_key_and_value)):
        yield from idea.masked_turns(mask_names(shown.turn(NO_ARGUMENT) or ""))


def _spellings(shown: RenderedTurns) -> Iterator[Spelling]:
    yield from (RAW, JSON, PYTHON)
    one = _masked(shown, ONE_ARGUMENT, RAW, mask_arguments) or ""
    if found := re.search(f"{VALUE_MASK}([^{VALUE_MASK}]*)</{KEY_MASK}>", one):
        yield Nested(prefix=found[1])


def _masked(
    shown: RenderedTurns, scene: ProbeTurn, spelling: S, mask: Callable[[str, Iterable[Call], S], str | None]
) -> str | None:
    text = shown.turn(scene)
    return None if text is None else mask(text, scene.calls, spelling)


@dataclass(frozen=True, slots=True)
class _ArgumentStyle:
    """Arguments one by one in a certain spelling. `flagged`: for each type it explains, what stands between key and value."""

    spelling: Spelling
    one: str
    two_arguments: str
    two: str
    between_key_and_value: dict[str, str]

    @classmethod
    def of(cls, shown: RenderedTurns, spelling: Spelling) -> "_ArgumentStyle | None":
        one, more, two = (_masked(shown, scene, spelling, mask_arguments) for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS))
        if one is None or more is None or two is None:
            return None
        flagged = {"string": _between_key_and_value(one)}
        for kind, scene in TYPED.items():
            text = _masked(shown, scene, spelling, mask_arguments)
            if (
                text is not None
                and text.replace(
                    KEY_MASK + _between_key_and_value(text) + VALUE_MASK, KEY_MASK + _between_key_and_value(one) + VALUE_MASK
                )
                == one
            ):
                flagged[kind] = _between_key_and_value(text)
        return cls(spelling, one, more, two, flagged)

    def masked_turns(self, none: str) -> Iterator[MaskedTurns]:
        """`none` is a turn without arguments: the best way to divide is the one that leaves just that, and whole lines."""
        ways = list(find_repetitions(self.one, self.two_arguments, (KEY_MASK, VALUE_MASK)))
        for way in sorted(ways, key=lambda way: (way.open + way.close != none, way.item.startswith("\n"))):
            argument = way.with_space_inside()
            one, two = argument.open + EACH_MASK + argument.close, self.two.replace(argument.item, EACH_MASK)
            if two.count(EACH_MASK) == 2:
                yield MaskedTurns(one, two, self._values(argument.item), replace(argument, item=self._with_flag(argument.item)))

    def _values(self, item: str) -> Spelling:
        if self.spelling != RAW:
            return self.spelling
        return Raw(self._flags(), trim=f"\n{VALUE_MASK}\n" in item)

    def _flags(self) -> tuple[tuple[str, str], ...]:
        head, tail = self._around()
        flags = {kind: gap[len(head) : len(gap) - len(tail)] for kind, gap in self.between_key_and_value.items()}
        if len(set(flags.values())) < 2:
            return ()
        others = {flag for kind, flag in flags.items() if kind != "string"}
        if len(others) == 1:
            return ((flags["string"], "string"), (others.pop(), "json"))
        return tuple({flag: kind for kind, flag in reversed(flags.items())}.items())

    def _around(self) -> tuple[str, str]:
        """What all the texts between key and value begin and end with."""
        gaps = list(self.between_key_and_value.values())
        start = min(shared_start(gaps[0], gap) for gap in gaps)
        end = min(shared_end(gaps[0][start:], gap[start:]) for gap in gaps)
        return gaps[0][:start], gaps[0][len(gaps[0]) - end :]

    def _with_flag(self, item: str) -> str:
        if self.spelling != RAW or not self._flags():
            return item
        return item.replace(
            KEY_MASK + self.between_key_and_value["string"] + VALUE_MASK,
            KEY_MASK + MASK[Hole.TYPE].join(self._around()) + VALUE_MASK,
        )


def _between_key_and_value(text: str) -> str:
    """What stands between a key and its value."""
    found = re.search(f"{KEY_MASK}([^{KEY_MASK}{VALUE_MASK}]*){VALUE_MASK}", text)
    return found[1] if found else ""
