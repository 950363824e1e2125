"""Simple schemas as llguidance is to have them: the same values, without what it takes too loosely.

A property that is not listed may be written there with escapes in its name, `"\\u0061"` for `"a"`, and so get around what is said
of `a`. By a pattern it is held to plain letters. So the names that are not listed are given as a pattern. Some formats are
given as one too.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from callsmith.core.values import Schema
from callsmith.grammar.simple import Simple
from callsmith.grammar.string_formats import FORMATS

NAMED = ("properties", "patternProperties", "$defs")
LISTED = ("anyOf", "prefixItems")
ALONE = ("items", "additionalProperties")
LAX = ("time", "date-time", "hostname")  # 10:00:60 is a time to llguidance, and a host may begin with a hyphen
COUNTS = ("minProperties", "maxProperties")  # llguidance counts only where no listed property is optional
ANY = r"[\s\S]"


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
    if made.get("format") in LAX:
        made["allOf"] = [*made.get("allOf", ()), {"pattern": f"^({FORMATS[made.pop('format')]})$"}]
    listed, extra = made.get("properties", {}), made.get("additionalProperties", True)
    if isinstance(schema, Simple) and any(
        one is not False and name not in made.get("required", ()) for name, one in listed.items()
    ):
        for keyword in COUNTS:
            made.pop(keyword, None)
    if extra is False or not (listed or "patternProperties" in made):
        return made
    if "patternProperties" not in made:
        made["patternProperties"] = {f"^{other_than(listed)}$": extra}
    made["additionalProperties"] = False
    return made


def _inner(schema: Any) -> Any:
    return guided(cast(Schema, schema)) if isinstance(schema, Mapping) else schema


def other_than(words: Iterable[str]) -> str:
    """A regular expression of every text but these words."""
    by_letter: dict[str, list[str]] = {}
    ends = False
    for word in words:
        if word:
            by_letter.setdefault(word[0], []).append(word[1:])
        else:
            ends = True
    ways = [] if ends else [""]
    if by_letter:
        ways += [_letter(letter) + other_than(rest) for letter, rest in by_letter.items()]
        ways.append(f"[^{''.join(map(_letter, by_letter))}]{ANY}*")
    else:
        ways.append(f"{ANY}+")
    return f"({'|'.join(ways)})"


def _letter(letter: str) -> str:
    return letter if letter.isalnum() and letter.isascii() else f"\\x{{{ord(letter):x}}}"
