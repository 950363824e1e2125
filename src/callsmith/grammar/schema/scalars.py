"""Combine the number and string keywords of several schemas that apply to the same value."""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, lcm
from typing import Any

from callsmith.core.schema import GRAMMAR
from callsmith.grammar.patterns.portable import to_portable
from callsmith.grammar.patterns.regex import UnsupportedRegex, match_whole_text, parse, portable_text
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.schema.normal_form import SchemaPart, UnenforcedKeywords, Unsatisfiable, strictest_bound, with_keyword

# Beyond these limits the arithmetic of a grammar engine is inexact, or it refuses the schema.
MAX_NUMBER = 2**53
MIN_STEP = Fraction(1, 10**9)
MAX_STEP = 10**6
MAX_LENGTH = 100_000

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
    for bound in (low, high):
        if bound is None:
            continue
        keyword, value, path = bound
        if abs(value) <= MAX_NUMBER:
            keywords[keyword] = value
        else:
            unenforced.append((path, keyword))
    if steps:
        wanted = _common_multiple(steps) or Fraction(1)
        if wanted.numerator <= MAX_STEP and wanted >= MIN_STEP and 10**9 % wanted.denominator == 0:
            keywords["multipleOf"] = wanted.numerator if wanted.denominator == 1 else float(wanted)
        else:
            unenforced += [(part.path, "multipleOf") for part in with_keyword(parts, "multipleOf")]
    return keywords


def _bound(parts: Sequence[SchemaPart], *, is_upper: bool) -> tuple[str, Any, str] | None:
    """The stricter of the inclusive and the exclusive bound: keyword, value, path."""
    plain, strict = ("maximum", "exclusiveMaximum") if is_upper else ("minimum", "exclusiveMinimum")
    allowed, beyond = strictest_bound(parts, plain, is_upper=is_upper), strictest_bound(parts, strict, is_upper=is_upper)
    old = [part for part in with_keyword(parts, strict) if part.raw[strict] is True and plain in part.raw]  # as in draft 4
    if old:
        return strict, old[0].raw[plain], old[0].path
    if beyond and (not allowed or (beyond[0] <= allowed[0] if is_upper else beyond[0] >= allowed[0])):
        return strict, *beyond
    return (plain, *allowed) if allowed else None


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
    grammars = with_keyword(parts, GRAMMAR)
    if grammars:
        keywords[GRAMMAR] = grammars[0].raw[GRAMMAR]
        unenforced += [(part.path, GRAMMAR) for part in grammars[1:]]
    return keywords


def _with_outer_anchors(pattern: str | None) -> str | None:
    """The pattern with anchors at its ends only, where grammar engines want them; None if it means something else."""
    if pattern is None or not _NO_ANCHOR.sub("", pattern.removeprefix("^").removesuffix("$")):
        return pattern
    try:
        whole = portable_text(match_whole_text(parse(pattern)))
    except UnsupportedRegex:
        return None
    return f"^({whole})$"
