"""Combine the number and string keywords of several schemas that apply to the same value."""

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, lcm
from typing import Any

from callsmith.core.schema import GRAMMAR
from callsmith.grammar.patterns.automaton import TooLarge, to_automaton
from callsmith.grammar.patterns.portable import to_portable
from callsmith.grammar.patterns.regex import (
    ANY,
    Cat,
    Or,
    Regex,
    Repeat,
    UnsupportedRegex,
    length_range,
    match_whole_text,
    parse,
    portable_text,
)
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.schema.normal_form import SchemaPart, UnenforcedKeywords, Unsatisfiable, strictest_bound, with_keyword

# Beyond these limits the arithmetic of a grammar engine is inexact, or it refuses the schema.
MAX_NUMBER = 2**53
MIN_STEP = Fraction(1, 10**9)
MAX_STEP = 10**6
MAX_LENGTH = 100_000
# A grammar engine refuses what matches a pattern where its length is counted further, times the repetitions counted in it.
MAX_LENGTH_OF_PATTERN = 4000
_FEW_CHARACTERS, _FEW_LENGTHS, _FEW_STATES = 64, 4, 300

_NO_ANCHOR = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|[^$^]", re.DOTALL)

# Values of `format` that say how a program stores a value, not how it is written.
STORAGE_FORMATS = frozenset({"int32", "int64", "float", "double", "password", "binary", "byte", "string", "number", "integer"})


def number_keywords(
    parts: Sequence[SchemaPart], unenforced: UnenforcedKeywords, *, whole: bool
) -> dict[str, Any] | Unsatisfiable:
    """The combined bounds and `multipleOf`, or why no number fits. `whole`: only integers are allowed."""
    low, high = _bound(parts, is_upper=False), _bound(parts, is_upper=True)
    keywords: dict[str, Any] = {}
    steps = [Fraction(str(part.raw["multipleOf"])) for part in with_keyword(parts, "multipleOf")]
    step = _common_multiple([*steps, *([Fraction(1)] if whole else [])])
    if low and high and (why := _why_empty(low, high, step)):
        return Unsatisfiable(low[2], low[0], why)
    for bound, is_upper in ((low, False), (high, True)):
        if bound is None:
            continue
        keyword, value, _ = bound
        if abs(value) <= MAX_NUMBER:
            keywords[keyword] = value
        else:  # and so are all that are less strict
            unenforced += [(part.path, name) for name in _bounds(is_upper=is_upper) for part in with_keyword(parts, name)]
    if steps:
        wanted = _common_multiple(steps) or Fraction(1)
        if wanted.numerator <= MAX_STEP and wanted >= MIN_STEP and 10**9 % wanted.denominator == 0:
            keywords["multipleOf"] = wanted.numerator if wanted.denominator == 1 else float(wanted)
        else:
            unenforced += [(part.path, "multipleOf") for part in with_keyword(parts, "multipleOf")]
    return keywords


def _bound(parts: Sequence[SchemaPart], *, is_upper: bool) -> tuple[str, Any, str] | None:
    """The strictest of all inclusive and exclusive bounds: keyword, value, path."""
    plain, strict = _bounds(is_upper=is_upper)
    bounds: list[tuple[Any, bool, str]] = []
    for part in parts:
        is_open = part.raw.get(strict) is True  # as in draft 4
        for keyword, beyond in ((plain, is_open), (strict, True)):
            if type(value := part.raw.get(keyword)) in (int, float):
                bounds.append((value, beyond, part.path))
    if not bounds:
        return None
    sign = -1 if is_upper else 1
    value, beyond, path = max(bounds, key=lambda bound: (sign * bound[0], bound[1]))
    return (strict if beyond else plain), value, path


def _bounds(*, is_upper: bool) -> tuple[str, str]:
    return ("maximum", "exclusiveMaximum") if is_upper else ("minimum", "exclusiveMinimum")


def _why_empty(low: tuple[str, Any, str], high: tuple[str, Any, str], step: Fraction | None) -> str:
    """Why no number lies between the bounds; an empty text if one does."""
    least, most = Fraction(str(low[1])), Fraction(str(high[1]))
    if step:
        first, last = ceil(least / step), floor(most / step)
        first += low[0] == "exclusiveMinimum" and first * step == least
        last -= high[0] == "exclusiveMaximum" and last * step == most
        return "" if first <= last else f"nothing that it allows lies between {low[1]} and {high[1]}"
    strict = "exclusive" in low[0] + high[0]
    return f"nothing lies between {low[1]} and {high[1]}" if least > most or (least == most and strict) else ""


def _common_multiple(steps: Sequence[Fraction]) -> Fraction | None:
    """The smallest number that is a multiple of all steps."""
    if not steps or any(step <= 0 for step in steps):
        return None
    below = lcm(*(step.denominator for step in steps))
    return Fraction(lcm(*(int(step * below) for step in steps)), below)


def string_keywords(parts: Sequence[SchemaPart], unenforced: UnenforcedKeywords) -> dict[str, Any] | Unsatisfiable:
    """The combined lengths, patterns and `format`, or why no string fits."""
    keywords: dict[str, Any] = {}
    least, most = strictest_bound(parts, "minLength", is_upper=False), strictest_bound(parts, "maxLength", is_upper=True)
    if least and most and least[0] > most[0]:
        return Unsatisfiable(least[1], "minLength", f"nothing is at least {least[0]} and at most {most[0]} long")
    for keyword, bound in (("minLength", least if least and least[0] > 0 else None), ("maxLength", most)):
        if bound and bound[0] <= MAX_LENGTH:
            keywords[keyword] = int(bound[0])
        elif bound:
            unenforced.append((bound[1], keyword))
    for part in with_keyword(parts, "pattern"):
        regex = _with_outer_anchors(to_portable(str(part.raw["pattern"])))
        if regex is None:
            unenforced.append((part.path, "pattern"))
        elif "pattern" not in keywords:
            keywords["pattern"] = regex
        elif regex != keywords["pattern"]:
            keywords["allOf"] = [*keywords.get("allOf", ()), {"pattern": regex}]
    for part in with_keyword(parts, "format"):
        name = part.raw["format"]
        if name in FORMATS and keywords.get("format", name) == name:
            keywords["format"] = name
        elif name not in STORAGE_FORMATS:
            unenforced.append((part.path, "format"))
    if why := _fit_lengths(keywords, unenforced, (least, most)):
        keyword = "pattern" if with_keyword(parts, "pattern") else "format"
        return Unsatisfiable(with_keyword(parts, keyword)[0].path, keyword, why)
    grammars = with_keyword(parts, GRAMMAR)
    if grammars:
        keywords[GRAMMAR] = grammars[0].raw[GRAMMAR]
        unenforced += [(part.path, GRAMMAR) for part in grammars[1:]]
    return keywords


def _fit_lengths(
    keywords: dict[str, Any], unenforced: UnenforcedKeywords, lengths: tuple[tuple[Any, str] | None, tuple[Any, str] | None]
) -> str:
    """Why no text matches the patterns and `format` in these lengths; empty if one may. Lengths that say no more are dropped."""
    patterns = [item["pattern"] for item in (keywords, *keywords.get("allOf", ())) if "pattern" in item]
    patterns += [f"^({FORMATS[keywords['format']]})$"] if "format" in keywords else []
    try:
        trees = [match_whole_text(parse(pattern)) for pattern in patterns]
    except UnsupportedRegex:
        return ""
    least, most = keywords.get("minLength", 0), keywords.get("maxLength")
    spans = [length_range(tree) for tree in trees]
    shortest = max((low for low, _ in spans), default=0)
    longest = min((high for _, high in spans if high is not None), default=None)
    if shortest >= least:
        keywords.pop("minLength", None)
    if longest is not None and (most is None or longest <= most):
        keywords.pop("maxLength", None)
    held = [keyword for keyword in ("minLength", "maxLength") if keyword in keywords]
    if not trees or len(trees) + len(held) < 2:
        return ""
    if (most is not None and shortest > most) or (longest is not None and longest < least) or _match_nothing(trees, least, most):
        return "no text matches what is said of it together"
    counted = max(map(_counted, trees))
    for keyword, bound in zip(("minLength", "maxLength"), lengths, strict=True):
        if keywords.get(keyword, 0) * counted > MAX_LENGTH_OF_PATTERN and bound:
            del keywords[keyword]
            unenforced.append((bound[1], keyword))
    return ""


def _counted(tree: Regex) -> int:
    """How often an expression repeats, by a limited count, what has no longest text."""
    match tree:
        case Cat() | Or():
            return max(map(_counted, tree.items), default=1)
        case Repeat():
            is_unbounded = length_range(tree.item)[1] is None
            return (tree.most or 1 if is_unbounded else 1) * _counted(tree.item)
        case _:
            return 1


def may_break_format(schema: Any, value: Any) -> bool:
    """Whether a value that is valid but for `format`, which not every validator looks at, may break one in the schema."""
    if '"format"' not in json.dumps(schema):
        return False
    if json.dumps(schema).count('"format"') > 1 or schema.get("format") not in FORMATS:
        return isinstance(value, str | list | dict) and schema.get("format") not in STORAGE_FORMATS
    return isinstance(value, str) and not re.fullmatch(FORMATS[schema["format"]], value)


def _match_nothing(trees: Sequence[Regex], least: int, most: int | None) -> bool:
    """Whether certainly no text of such a length matches all of them; not found out where that takes long."""
    lengths = [Repeat(ANY, least, most)] if most is not None and most <= _FEW_CHARACTERS and most - least <= _FEW_LENGTHS else []
    try:
        first, *others = (to_automaton(tree, _FEW_STATES) for tree in (*trees, *lengths))
        for other in others:
            first &= other
    except TooLarge:
        return False
    return first.is_empty


def _with_outer_anchors(pattern: str | None) -> str | None:
    """The pattern with anchors at its ends only, where grammar engines want them; None if it means something else."""
    if pattern is None or not _NO_ANCHOR.sub("", pattern.removeprefix("^").removesuffix("$")):
        return pattern
    try:
        whole = portable_text(match_whole_text(parse(pattern)))
    except UnsupportedRegex:
        return None
    return f"^({whole})$"
