"""Rendered turns with the holes punched in: every made-up word becomes one character that stands for its hole.

Two turns that differ only in what they hold then are the same text, and what repeats can be found by comparing: `divide` takes
a text with one item and the same with two, and finds where the item begins and ends and what stands between.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from callsmith.core.values import Call
from callsmith.formats.layout import JSON, PYTHON, RAW, Hole, Notation, Spelling
from callsmith.formats.shown import IDS, KEYS, NAMES, WORDS, Scene, edges
from callsmith.formats.write import spell

MARK = {hole: chr(0xE000 + number) for number, hole in enumerate(Hole)}  # private use: no template writes these
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
    for found in re.finditer(r"\{", text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, found.start())
        except ValueError:
            continue
        if value == arguments:
            return text[found.start() : end]
    return None


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


def notations(scene: Scene, text: str) -> Iterator[Notation]:
    """The notations an object of arguments may be in, given a turn with two arguments."""
    yield JSON
    for item, key in ((",", ":"), (", ", ":"), (",", ": ")):
        yield replace(JSON, item_separator=item, key_separator=key)
    yield PYTHON
    (one, word), (other, last) = scene.calls[0].arguments.items()
    found = re.search(rf"\{{{one}(\s*:\s*)(\S*?){word}\2(\s*,\s*){other}\1\2{last}\2\}}", text)
    if found and found[2]:
        plain = len(found[2]) == 1
        yield Notation((found[2],), bare_keys=True, escapes=plain, item_separator=found[3], key_separator=found[1])
