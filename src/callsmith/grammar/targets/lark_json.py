"""Simple schemas as llguidance is to have them: the same values, without what it takes too loosely.

A property that is not listed may be written there with escapes in its name, `"\\u0061"` for `"a"`, and so get around what is said
of `a`. By a pattern it is held to plain letters. So the names that are not listed are given as a pattern. Some formats are
given as one too. And where all control characters may stand it lets `\\"` and `\\\\` through as well, whatever the pattern says.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from callsmith.core.values import Schema
from callsmith.grammar.patterns.character_sets import LAST, Ranges, chars, overlap
from callsmith.grammar.patterns.regex import Irregular, Set, parse
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.schema.normal_form import Simple

NAMED = ("properties", "patternProperties", "$defs")
LISTED = ("anyOf", "prefixItems")
ALONE = ("items", "additionalProperties")
# To llguidance 10:00:60 is a time, every year has a 29th of February, a host may begin with a hyphen, ::1.2.3.4 is no address.
OWN = ("time", "date", "date-time", "hostname", "ipv6")
COUNTS = ("minProperties", "maxProperties")  # llguidance counts only where no listed property is optional
ANY = r"[\s\S]"
NOTHING = "[a&&b]"
_PREFIX = re.compile(r"\^([\w-]+)")  # a pattern of what begins with these letters
_CLASS = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])+\]", re.DOTALL)
_CONTROL: Ranges = ((0, 0x1F),)


def guided(schema: Schema) -> dict[str, Any]:
    """The schema for llguidance."""
    made: dict[str, Any] = dict(schema)
    for keyword in NAMED:
        if keyword in made:
            made[keyword] = {name: _inner(one) for name, one in made[keyword].items()}
    for keyword in LISTED:
        if keyword in made:
            made[keyword] = [_inner(one) for one in made[keyword]]
    for keyword in ALONE:
        if keyword in made:
            made[keyword] = _inner(made[keyword])
    if made.get("format") in OWN:
        made["allOf"] = [*made.get("allOf", ()), {"pattern": f"^({FORMATS[made.pop('format')]})$"}]
    if "pattern" in made:
        made["pattern"] = held(made["pattern"])
    if "allOf" in made:
        made["allOf"] = [{**one, "pattern": held(one["pattern"])} for one in made["allOf"]]
    if "patternProperties" in made:
        made["patternProperties"] = {held(pattern): one for pattern, one in made["patternProperties"].items()}
    listed, extra = made.get("properties", {}), made.get("additionalProperties", True)
    if isinstance(schema, Simple) and any(
        one is not False and name not in made.get("required", ()) for name, one in listed.items()
    ):
        for keyword in COUNTS:
            made.pop(keyword, None)
    if extra is False or not (listed or "patternProperties" in made):
        return made
    if "patternProperties" not in made:
        made["patternProperties"] = {held(f"^{other_than(listed)}$"): extra}
    elif all(begin := [_PREFIX.fullmatch(pattern) for pattern in made["patternProperties"]]):
        names = other_than(listed, [found[1] for found in begin if found])
        made["patternProperties"] = {**made["patternProperties"], held(f"^{names}$"): extra}
    made["additionalProperties"] = False
    return made


def _inner(schema: Any) -> Any:
    return guided(cast(Schema, schema)) if isinstance(schema, Mapping) else schema


def other_than(words: Iterable[str], beginnings: Iterable[str] = ()) -> str:
    """A regular expression of every text but these words, and but what begins like this."""
    by_letter: dict[str, tuple[list[str], list[str]]] = {}
    ends = False
    for kind, texts in enumerate((words, beginnings)):
        for text in texts:
            if text:
                by_letter.setdefault(text[0], ([], []))[kind].append(text[1:])
            elif kind:
                return NOTHING
            else:
                ends = True
    ways = [] if ends else [""]
    if by_letter:
        ways += [_letter(letter) + rest for letter, two in by_letter.items() if (rest := other_than(*two)) != NOTHING]
        ways.append(f"[^{''.join(map(_letter, by_letter))}]{ANY}*")
    else:
        ways.append(f"{ANY}+")
    return f"({'|'.join(ways)})"


def _letter(letter: str) -> str:
    return letter if letter.isalnum() and letter.isascii() else f"\\x{{{ord(letter):x}}}"


def held(pattern: str) -> str:
    """The pattern in words that llguidance does not take too loosely: without the one control character nobody misses."""
    return _CLASS.sub(lambda found: _held(found[0]), pattern) if "[" in pattern else pattern


def _held(piece: str) -> str:
    try:
        tree = parse(piece)
    except Irregular:
        return piece
    if not isinstance(tree, Set) or overlap(tree.ranges, _CONTROL) != _CONTROL:
        return piece
    if all(overlap(tree.ranges, chars(char)) for char in '"\\'):
        return piece
    spans = [f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in overlap(tree.ranges, ((1, LAST),))]
    return f"[{''.join(spans)}]"
