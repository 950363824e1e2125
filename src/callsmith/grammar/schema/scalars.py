"""The keywords of numbers and strings, of several schemas that hold at once: one set of them, or the reason why nothing fits."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, lcm
from typing import Any

from callsmith.grammar.patterns.portable import portable
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.schema.normal_form import Left, Never, Part, saying, tightest

# Beyond these an engine's arithmetic is no longer exact, or it refuses.
LARGEST = 2**53
FINEST = Fraction(1, 10**9)
MOST_STEPS = 10**6
LONGEST = 100_000

# Formats that say how a program stores a value, not how it looks.
STORED = frozenset({"int32", "int64", "float", "double", "password", "binary", "byte", "string", "number", "integer"})


def numbers(parts: Sequence[Part], left: Left, *, whole: bool) -> dict[str, Any] | Never:
    """Bounds and steps. `whole`: only integers are meant."""
    low, high = _bound(parts, most=False), _bound(parts, most=True)
    made: dict[str, Any] = {}
    steps = [Fraction(str(part.raw["multipleOf"])) for part in saying(parts, "multipleOf")]
    step = _common([*steps, *([Fraction(1)] if whole else [])])
    if low and high and (why := _empty(low, high, step)):
        return Never(low[2], low[0], why)
    for bound in (low, high):
        if bound is None:
            continue
        keyword, value, path = bound
        if abs(value) <= LARGEST:
            made[keyword] = value
        else:
            left.append((path, keyword))
    if steps:
        wanted = _common(steps) or Fraction(1)
        if wanted.numerator <= MOST_STEPS and wanted >= FINEST and 10**9 % wanted.denominator == 0:
            made["multipleOf"] = wanted.numerator if wanted.denominator == 1 else float(wanted)
        else:
            left += [(part.path, "multipleOf") for part in saying(parts, "multipleOf")]
    return made


def _bound(parts: Sequence[Part], *, most: bool) -> tuple[str, Any, str] | None:
    """The stricter of a bound that is allowed itself and one that is not: keyword, value, place."""
    plain, strict = ("maximum", "exclusiveMaximum") if most else ("minimum", "exclusiveMinimum")
    allowed, beyond = tightest(parts, plain, most=most), tightest(parts, strict, most=most)
    old = [part for part in saying(parts, strict) if part.raw[strict] is True and plain in part.raw]  # as draft 4 says it
    if old:
        return strict, old[0].raw[plain], old[0].path
    if beyond and (not allowed or (beyond[0] <= allowed[0] if most else beyond[0] >= allowed[0])):
        return strict, *beyond
    return (plain, *allowed) if allowed else None


def _empty(low: tuple[str, Any, str], high: tuple[str, Any, str], step: Fraction | None) -> str:
    """Why nothing lies between the bounds; nothing if something does."""
    least, most = Fraction(str(low[1])), Fraction(str(high[1]))
    if step:
        first, last = ceil(least / step), floor(most / step)
        first += low[0] == "exclusiveMinimum" and first * step == least
        last -= high[0] == "exclusiveMaximum" and last * step == most
        return "" if first <= last else f"nothing that it allows lies between {low[1]} and {high[1]}"
    strict = "exclusive" in low[0] + high[0]
    return f"nothing lies between {low[1]} and {high[1]}" if least > most or (least == most and strict) else ""


def _common(steps: Sequence[Fraction]) -> Fraction | None:
    """The smallest number that is a multiple of all."""
    if not steps or any(step <= 0 for step in steps):
        return None
    below = lcm(*(step.denominator for step in steps))
    return Fraction(lcm(*(int(step * below) for step in steps)), below)


def strings(parts: Sequence[Part], left: Left) -> dict[str, Any] | Never:
    """Lengths, patterns and a format."""
    made: dict[str, Any] = {}
    least, most = tightest(parts, "minLength", most=False), tightest(parts, "maxLength", most=True)
    if least and most and least[0] > most[0]:
        return Never(least[1], "minLength", f"nothing is at least {least[0]} and at most {most[0]} long")
    for keyword, bound in (("minLength", least if least and least[0] > 0 else None), ("maxLength", most)):
        if bound and bound[0] <= LONGEST:
            made[keyword] = int(bound[0])
        elif bound:
            left.append((bound[1], keyword))
    for part in saying(parts, "pattern"):
        regex = portable(str(part.raw["pattern"]))
        if regex is None:
            left.append((part.path, "pattern"))
        elif "pattern" not in made:
            made["pattern"] = regex
        elif regex != made["pattern"]:
            made["allOf"] = [*made.get("allOf", ()), {"pattern": regex}]
    for part in saying(parts, "format"):
        name = part.raw["format"]
        if name in FORMATS and made.get("format", name) == name:
            made["format"] = name
        elif name not in STORED:
            left.append((part.path, "format"))
    return made
