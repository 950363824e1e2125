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
    WORDS,
    Scene,
    Shown,
    edges,
    shared_end,
    shared_start,
)
from callsmith.formats.write import spell

S = TypeVar("S", bound=Spelling)

MARK = {hole: chr(0xE000 + number) for number, hole in enumerate(Hole)}  # private use: no template writes these
KEY, VALUE = MARK[Hole.KEY], MARK[Hole.VALUE]
EACH = chr(0xE100)  # all the arguments, one by one
HOLES = {mark: hole for hole, mark in MARK.items()}
ISOLATED = re.compile(r"(?<![\w.])\d(?![\w.])")


@dataclass(frozen=True, slots=True)
class Series:
    """A text with items in it: what stands before them, the item, what stands between two, what stands behind."""

    open: str
    item: str
    between: str
    close: str

    def with_space_inside(self) -> "Series":
        """White space between items that also stands behind the last belongs to each: then nothing has to be told apart."""
        space = self.between
        if not space.isspace() or not self.close.startswith(space):
            return self
        return Series(self.open, self.item + space, "", self.close.removeprefix(space))


def divide(one: str, two: str, holes: Iterable[str]) -> Iterator[Series]:
    """The ways to see `one` as a text with one item and `two` as the same with two; the widest items first."""
    needed = set(holes)
    places, others = edges(one), set(edges(two))
    starts = [at for at in places if two.endswith(one[at:]) and len(two) - len(one) + at in others]
    ends = [at for at in places if two.startswith(one[:at]) and at in others]
    for start in starts:
        for end in reversed(ends):
            behind = len(two) - len(one) + start  # where the second item begins
            if start < end <= behind and needed <= set(one[start:end]) and not needed & set(one[:start] + one[end:]):
                yield Series(one[:start], one[start:end], two[end:behind], one[end:])


def named(text: str) -> str:
    """A turn with names, keys and ids masked."""
    for words, hole in ((NAMES, Hole.NAME), (KEYS, Hole.KEY), (IDS, Hole.ID)):
        for word in words:
            text = text.replace(word, MARK[hole])
    return text


def whole(text: str, calls: Iterable[Call], notation: Notation) -> str | None:
    """A turn in which the arguments stand as one object; None if they do not."""
    for call in calls:
        found = next((way for way in _ways(call.arguments, notation) if way in text), None)
        if found is None and notation == JSON:
            found = _laid_out(text, dict(call.arguments))
        if found is None:
            return None
        head, _, tail = text.rpartition(found) if not call.arguments else text.partition(found)
        text = head + MARK[Hole.ARGS] + tail
    return named(text)


def _ways(arguments: Any, notation: Notation) -> tuple[str, ...]:
    """How arguments may be spelled as one object: as it is, or once more as a string."""
    text = spell(notation, dict(arguments))
    return (text, json.dumps(text)) if notation == JSON else (text,)


def _laid_out(text: str, arguments: dict[str, Any]) -> str | None:
    """The arguments as JSON in any other spacing."""
    return next((text[start:end] for start, value, end in objects_in(text) if value == arguments), None)


def objects_in(text: str) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The JSON objects of a text, inner ones too, each with where it begins and ends."""
    for found in re.finditer(r"\{", text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, found.start())
        except ValueError:
            continue
        yield found.start(), value, end


def single(text: str, calls: Iterable[Call], spelling: Spelling) -> str | None:
    """A turn in which the arguments stand one by one; None if they do not."""
    for call in calls:
        for key, value in call.arguments.items():
            ways = (spell(spelling, value), str(value)) if spelling == RAW else (spell(spelling, value),)
            start = text.find(key)
            # The last of them: the flag of a type may be spelled like the value, and stands before it.
            at, way = max((text.rfind(way) if value not in WORDS else text.find(way, start), way) for way in ways)
            if start < 0 or at < start:
                return None
            text = text[:at] + MARK[Hole.VALUE] + text[at + len(way) :]
            text = text.replace(key, MARK[Hole.KEY])
    return named(text)


def numbered(text: str) -> str:
    """A masked turn in which single digits may number the calls."""
    return ISOLATED.sub(MARK[Hole.INDEX], text)


def are_numbered(one: str, two: str) -> bool:
    """Whether a single digit counts the calls: the turn with two has one more, and it is the next."""
    numbers, more = ([int(found) for found in ISOLATED.findall(text)] for text in (one, two))
    return len(numbers) == 1 and more == [numbers[0], numbers[0] + 1]


def first_number(text: str) -> int:
    """What the first call is numbered with."""
    found = ISOLATED.search(text)
    return int(found[0]) if found else 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A turn with one call and a turn with two, masked under one idea of how arguments are written.

    `argument` says how they stand one by one; its item is empty where they are one object.
    """

    one: str
    two: str
    values: Spelling
    argument: Series = Series("", "", "", "")


def readings(shown: Shown) -> Iterator[Reading]:
    """The ideas that fit what is shown, the likeliest first."""
    yield from _as_object(shown)
    yield from _one_by_one(shown)


def _as_object(shown: Shown) -> Iterator[Reading]:
    for notation in _notations(shown.turn(TWO_ARGUMENTS) or ""):
        one, more, two = (_masked(shown, scene, notation, whole) for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS))
        if one is not None and two is not None and one == more:
            yield Reading(one, two, notation)


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


def _one_by_one(shown: Shown) -> Iterator[Reading]:
    ideas = [idea for spelling in _spellings(shown) if (idea := _Idea.of(shown, spelling))]
    for idea in sorted(ideas, key=lambda idea: -len(idea.flagged)):
        yield from idea.readings(named(shown.turn(NO_ARGUMENT) or ""))


def _spellings(shown: Shown) -> Iterator[Spelling]:
    yield from (RAW, JSON, PYTHON)
    one = _masked(shown, ONE_ARGUMENT, RAW, single) or ""
    if found := re.search(f"{VALUE}([^{VALUE}]*)</{KEY}>", one):
        yield Nested(prefix=found[1])


def _masked(shown: Shown, scene: Scene, spelling: S, mask: Callable[[str, Iterable[Call], S], str | None]) -> str | None:
    text = shown.turn(scene)
    return None if text is None else mask(text, scene.calls, spelling)


@dataclass(frozen=True, slots=True)
class _Idea:
    """Arguments one by one in a certain spelling. `flagged`: for each type it explains, what stands between key and value."""

    spelling: Spelling
    one: str
    more: str
    two: str
    flagged: dict[str, str]

    @classmethod
    def of(cls, shown: Shown, spelling: Spelling) -> "_Idea | None":
        one, more, two = (_masked(shown, scene, spelling, single) for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS))
        if one is None or more is None or two is None:
            return None
        flagged = {"string": _gap(one)}
        for kind, scene in TYPED.items():
            text = _masked(shown, scene, spelling, single)
            if text is not None and text.replace(KEY + _gap(text) + VALUE, KEY + _gap(one) + VALUE) == one:
                flagged[kind] = _gap(text)
        return cls(spelling, one, more, two, flagged)

    def readings(self, none: str) -> Iterator[Reading]:
        """`none` is a turn without arguments: the best way to divide is the one that leaves just that, and whole lines."""
        ways = list(divide(self.one, self.more, (KEY, VALUE)))
        for way in sorted(ways, key=lambda way: (way.open + way.close != none, way.item.startswith("\n"))):
            argument = way.with_space_inside()
            one, two = argument.open + EACH + argument.close, self.two.replace(argument.item, EACH)
            if two.count(EACH) == 2:
                yield Reading(one, two, self._values(argument.item), replace(argument, item=self._with_flag(argument.item)))

    def _values(self, item: str) -> Spelling:
        if self.spelling != RAW:
            return self.spelling
        return Raw(self._flags(), trim=f"\n{VALUE}\n" in item)

    def _flags(self) -> tuple[tuple[str, str], ...]:
        head, tail = self._around()
        flags = {kind: gap[len(head) : len(gap) - len(tail)] for kind, gap in self.flagged.items()}
        if len(set(flags.values())) < 2:
            return ()
        others = {flag for kind, flag in flags.items() if kind != "string"}
        if len(others) == 1:
            return ((flags["string"], "string"), (others.pop(), "json"))
        return tuple({flag: kind for kind, flag in reversed(flags.items())}.items())

    def _around(self) -> tuple[str, str]:
        """What all the texts between key and value begin and end with."""
        gaps = list(self.flagged.values())
        start = min(shared_start(gaps[0], gap) for gap in gaps)
        end = min(shared_end(gaps[0][start:], gap[start:]) for gap in gaps)
        return gaps[0][:start], gaps[0][len(gaps[0]) - end :]

    def _with_flag(self, item: str) -> str:
        if self.spelling != RAW or not self._flags():
            return item
        return item.replace(KEY + self.flagged["string"] + VALUE, KEY + MARK[Hole.TYPE].join(self._around()) + VALUE)


def _gap(text: str) -> str:
    """What stands between a key and its value."""
    found = re.search(f"{KEY}([^{KEY}{VALUE}]*){VALUE}", text)
    return found[1] if found else ""
