"""The keywords of numbers and strings, of several schemas that hold at once: one set of them, or the reason why nothing fits."""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, lcm
from typing import Any

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


# --- patterns -----------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
    (?P<class>\[\^?(?:\\.|[^\]\\])+\])
    | (?P<group>\((?:\?:|\?<\w+>|\?P<\w+>)?(?![?*+])) | (?P<close>\))
    | (?P<counted>\{\d{1,5}(?:,\d{0,5})?\}\??) | (?P<repeat>[*+?]\??)
    | (?P<escape>\\(?:u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|[pP]\{\w+(?:=\w+)?\}|[dDwWsStnrfv0]|[^\w\s]|\ ))
    | (?P<dot>\.) | (?P<other>[^\\\[\](){}*+?.])
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[dDwWsStnrfv0]|[^\w\s]|b)|[^\\]", re.DOTALL)
_SPACES = r"\t\n\x0B\x0C\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_MEANS = {
    "\\d": "[0-9]", "\\D": "[^0-9]", "\\w": "[a-zA-Z0-9_]", "\\W": "[^a-zA-Z0-9_]", "\\s": f"[{_SPACES}]", "\\S": f"[^{_SPACES}]",
    "\\v": r"\x0B", "\\f": r"\x0C", "\\0": r"\x00", "\\/": "/",
}  # fmt: skip
_IN_CLASS_MEANS = {"\\d": "0-9", "\\w": "a-zA-Z0-9_", "\\s": _SPACES, "\\b": r"\x08", "[": r"\[", "&": r"\&", "~": r"\~"}


def portable(pattern: str) -> str | None:
    """A pattern of JSON Schema in the words every engine takes the same; None where it needs more (looking around, and back)."""
    out: list[str] = []
    at = depth = 0
    repeatable = False
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            return None
        at, text, kind = found.end(), found[0], found.lastgroup
        if kind in ("counted", "repeat") and not repeatable:
            return None
        depth += (kind == "group") - (kind == "close")
        if depth < 0:
            return None
        repeatable = kind not in ("counted", "repeat", "group") and text not in ("^", "$", "|")
        spelled = _spelled(kind, text)
        if spelled is None:
            return None
        out.append(spelled)
    return "".join(out) if depth == 0 else None


def _spelled(kind: str | None, text: str) -> str | None:
    match kind:
        case "class":
            return _class(text)
        case "group":
            return "("
        case "dot":
            return r"[^\n\r\u2028\u2029]"
        case "counted":
            least, _, most = text.strip("{}?").partition(",")
            return None if most and int(most) < int(least) else text.rstrip("?")
        case "repeat":
            return text[0]
        case "escape":
            return _MEANS.get(text, text)
        case _:
            return text


def _class(text: str) -> str | None:
    negated = text.startswith("[^")
    body = text[2 if negated else 1 : -1]
    out: list[str] = []
    at = 0
    while at < len(body):
        found = _IN_CLASS.match(body, at)
        if found is None:
            return None
        at, one = found.end(), found[0]
        if one in ("\\D", "\\W", "\\S") or (one == "-" and out and out[-1] in ("0-9", "a-zA-Z0-9_", _SPACES)):
            one = "\\-" if one == "-" else one
            if one != "\\-":
                return text if body in ("\\s\\S", "\\S\\s", "\\d\\D", "\\w\\W") else None
        out.append(_IN_CLASS_MEANS.get(one, _MEANS.get(one, one)))
    made = f"[{'^' if negated else ''}{''.join(out)}]"
    try:
        re.compile(made)
    except re.error:
        return None
    return made
