"""Regular expressions for JSON strings and numbers: all ways to write a character, and all numbers within bounds.

ASCII characters are written raw unless JSON requires an escape (a slash may have one); all others raw or as `\\uXXXX`. In a
string without any restriction, every character may be escaped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from callsmith.grammar.patterns.automaton import Automaton, to_automaton
from callsmith.grammar.patterns.character_sets import ALL, Ranges, chars, complement, intersection
from callsmith.grammar.patterns.regex import Cat, CharSet, Or, Regex, literal, parse, unparse
from callsmith.grammar.schema.normal_form import NormalSchema

_RAW = complement(((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0xD800, 0xDFFF)))
_CONTROLS = ((0, 0x1F),)
_BEYOND_ASCII = ((0x80, 0xD7FF), (0xE000, 0xFFFF))
_PLAIN = ((0, 0xD7FF), (0xE000, 0xFFFF))
_PAIRED = ((0x10000, 0x10FFFF),)
_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


@lru_cache(1024)
def json_characters(ranges: Ranges) -> Regex:
    """A character of this set, in every way it may be written in a JSON string."""
    ways: list[Regex] = [CharSet(raw)] if (raw := intersection(ranges, _RAW)) else []
    short = "".join(short for char, short in _SHORT.items() if intersection(ranges, chars(char)))
    behind: list[Regex] = [CharSet(chars(short))] if short else []
    by_number = _PLAIN if ranges == ALL else (*_CONTROLS, *_BEYOND_ASCII)
    numbers: list[Regex] = [_hex_range(low, high, 4) for low, high in intersection(ranges, by_number)]
    numbers += [way for low, high in intersection(ranges, _PAIRED) for way in _surrogate_pairs(low - 0x10000, high - 0x10000)]
    if numbers:
        behind.append(Cat((literal("u"), Or(tuple(numbers)))))
    if behind:
        ways.append(Cat((literal("\\"), Or(tuple(behind)))))
    return ways[0] if len(ways) == 1 else Or(tuple(ways))


def _hex_range(low: int, high: int, count: int) -> Regex:
    """The numbers from `low` to `high`, in `count` hexadecimal digits."""
    if count == 0:
        return Cat(())
    step = 16 ** (count - 1)
    first, last = low // step, high // step
    if first == last:
        return Cat((_digit(first, last), _hex_range(low % step, high % step, count - 1)))
    ways: list[Regex] = []
    if low % step:
        ways.append(Cat((_digit(first, first), _hex_range(low % step, step - 1, count - 1))))
        first += 1
    partial = (high + 1) % step
    if first <= (whole := last - 1 if partial else last):
        ways.append(Cat((_digit(first, whole), *(_digit(0, 15) for _ in range(count - 1)))))
    if partial:
        ways.append(Cat((_digit(last, last), _hex_range(0, high % step, count - 1))))
    return ways[0] if len(ways) == 1 else Or(tuple(ways))


def _digit(low: int, high: int) -> Regex:
    return CharSet(chars("".join(form(f"{digit:x}") for digit in range(low, high + 1) for form in (str.lower, str.upper))))


def _surrogate_pairs(low: int, high: int) -> list[Regex]:
    """The characters from `low` to `high` beyond U+FFFF, both less 0x10000, as escapes of the high and the low surrogate."""
    ways: list[tuple[int, int, int, int]] = []
    while low <= high:
        top, rest = divmod(low, 0x400)
        last = high // 0x400 - (0 if high % 0x400 == 0x3FF else 1)
        if rest == 0 and last >= top:
            ways.append((top, last, 0, 0x3FF))
            low = (last + 1) * 0x400
        else:
            end = min(high, top * 0x400 + 0x3FF)
            ways.append((top, top, rest, end % 0x400))
            low = end + 1
    return [
        Cat((_hex_range(0xD800 + a, 0xD800 + b, 4), literal("\\u"), _hex_range(0xDC00 + c, 0xDC00 + d, 4))) for a, b, c, d in ways
    ]


def quoted_literal(text: str) -> Regex:
    """A JSON string with exactly this content, its characters written in any of the allowed ways."""
    return Cat((literal('"'), *(json_characters(((ord(char), ord(char)),)) for char in text), literal('"')))


# --- numbers ------------------------------------------------------------------------------------------------------------------

INTEGER = "-?(0|[1-9][0-9]*)"
_EXPONENT = r"([eE][+\-]?[0-9]{1,2})?"  # with more digits the number may be too large for a float
NUMBER = INTEGER + r"(\.[0-9]+)?" + _EXPONENT
_MOST_STEPS = 200
_MOST_PLACES = 6


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower or upper bound of numbers; `open`: the bound itself is not allowed."""

    value: Decimal
    open: bool = False


def bound_of(schema: NormalSchema, plain: str, strict: str) -> Bound | None:
    """The bound that a schema in normal form has by one of these two keywords."""
    value: Any = schema.get(plain, schema.get(strict))
    return None if value is None else Bound(Decimal(repr(value or 0)), open=strict in schema)  # -0.0 is 0


def number_in(low: Bound | None, high: Bound | None, *, whole: bool) -> Regex | Automaton:
    """The numbers within these bounds. An exponent is allowed only where the bounds just decide on the sign."""
    if low is None and high is None:
        return parse(INTEGER if whole else NUMBER)
    if not whole and all(bound is None or bound.value == 0 for bound in (low, high)) and (low is None or high is None):
        return parse(_write_signed(low, high))
    sides = [to_automaton(parse(side)) for side in bound_expressions(low, high, whole=whole)]
    return sides[0] if len(sides) == 1 else sides[0] & sides[1]


def bound_expressions(low: Bound | None, high: Bound | None, *, whole: bool) -> list[str]:
    """An expression for each bound, of the numbers on its right side, without an exponent."""
    sides = [_at_least(low, whole=whole)] if low else []
    return [*sides, _at_most(high, whole=whole)] if high else sides


def _write_signed(low: Bound | None, high: Bound | None) -> str:
    """The numbers on one side of zero."""
    bound, sign = (low, "") if low is not None else (high, "-")
    assert bound is not None
    more = rf"{sign}([1-9][0-9]*(\.[0-9]+)?|0\.0*[1-9][0-9]*){_EXPONENT}"
    return more if bound.open else rf"{more}|-?0(\.0+)?{_EXPONENT}"


def _at_least(bound: Bound, *, whole: bool) -> str:
    any_fraction = "" if whole else r"(\.[0-9]+)?"
    if bound.value > 0 or (bound.value == 0 and bound.open):
        return _above(bound, whole=whole)
    below = _below(Bound(-bound.value, bound.open), whole=whole)
    return f"(0|[1-9][0-9]*){any_fraction}" + (f"|-({below})" if below else "")


def _at_most(bound: Bound, *, whole: bool) -> str:
    any_fraction = "" if whole else r"(\.[0-9]+)?"
    if bound.value < 0 or (bound.value == 0 and bound.open):
        return f"-({_above(Bound(-bound.value, bound.open), whole=whole)})"
    below = _below(bound, whole=whole)
    return f"-(0|[1-9][0-9]*){any_fraction}" + (f"|{below}" if below else "")


def _parts(value: Decimal) -> tuple[str, str]:
    """The digits before the decimal point, and those after it without trailing zeros."""
    before, _, behind = f"{value:f}".partition(".")
    return before, behind.rstrip("0")


def _above(bound: Bound, *, whole: bool) -> str:
    """Numbers without a sign that are at least this one."""
    before, behind = _parts(bound.value)
    size = len(before)
    longer = f"[1-9][0-9]{{{size},}}" + ("" if whole else r"(\.[0-9]+)?")
    higher = [
        f"{before[:at]}[{chr(ord(digit) + 1)}-9][0-9]{{{size - at - 1}}}" + ("" if whole else r"(\.[0-9]+)?")
        for at, digit in enumerate(before)
        if digit != "9"
    ]
    same: list[str] = []
    if whole:
        same = [before] if not behind and not bound.open else []
    else:
        same += [rf"{before}\.{behind[:at]}[{chr(ord(digit) + 1)}-9][0-9]*" for at, digit in enumerate(behind) if digit != "9"]
        if bound.open:
            same.append(rf"{before}\.{behind}0*[1-9][0-9]*")
        else:
            same.append(rf"{before}\.{behind}[0-9]*" if behind else rf"{before}(\.[0-9]+)?")
    return "|".join((longer, *higher, *same))


def _below(bound: Bound, *, whole: bool) -> str:
    """Numbers without a sign that are at most this one; an empty text if there are none."""
    before, behind = _parts(bound.value)
    size = len(before)
    any_fraction = "" if whole else r"(\.[0-9]+)?"
    ways = [f"[1-9][0-9]{{0,{size - 2}}}{any_fraction}", f"0{any_fraction}"] if size > 1 else []
    ways += [
        f"{before[:at]}[{'1' if at == 0 and size > 1 else '0'}-{chr(ord(digit) - 1)}][0-9]{{{size - at - 1}}}{any_fraction}"
        for at, digit in enumerate(before)
        if digit > ("1" if at == 0 and size > 1 else "0")
    ]
    if whole:
        ways += [before] if behind or not bound.open else []
    else:
        ways += [rf"{before}\.{behind[:at]}[0-{chr(ord(digit) - 1)}][0-9]*" for at, digit in enumerate(behind) if digit != "0"]
        ways += [rf"{before}\.{behind[:at]}" for at in range(1, len(behind))]
        ways += [before] if behind else []
        if not bound.open:
            ways.append(rf"{before}\.{behind}0*" if behind else rf"{before}(\.0+)?")
    return "|".join(ways)


def multiples_below_one(step: Decimal) -> str | None:
    """An expression of the multiples of a step of which 1 is one: any integer, with certain fractions. None for other steps."""
    _, digits, exponent = step.normalize().as_tuple()
    if step >= 1 or 1 % step != 0:
        return None
    if digits == (1,):
        return rf"{INTEGER}(\.[0-9]{{1,{-int(exponent)}}}0*)?"
    if step * _MOST_STEPS < 1:
        return None
    fractions = [_parts(step * count)[1] for count in range(1, int(1 / step))]
    return rf"{INTEGER}(\.(0+|({'|'.join(fractions)})0*))?"


def multiples_of(step: Decimal, *, whole: bool) -> Automaton | None:
    """An automaton of the multiples of a number, with a state for each remainder; None where there would be too many."""
    places = max(0, -int(step.normalize().as_tuple().exponent))
    modulus = int(step.scaleb(places))
    if not 0 < modulus <= _MOST_STEPS or places > _MOST_PLACES:
        return None
    # A state is how many digits after the point are read (-1: the point is not yet read) and the remainder.
    numbers: dict[object, int] = {"start": 0}
    edges: list[tuple[tuple[int, int, int], ...]] = []
    final: set[int] = set()
    for state in (order := list(numbers)):
        out: list[tuple[int, int, int]] = []
        for char, target in _next(state, modulus, places, whole=whole):
            if target not in numbers:
                numbers[target] = len(numbers)
                order.append(target)
            out.append((ord(char), ord(char), numbers[target]))
        edges.append(tuple(sorted(out)))
        match state:
            case ("zero" | "digits", int(read), int(rest)) if rest * 10 ** (places - max(read, 0)) % modulus == 0:
                final.add(numbers[state])
            case _:
                pass
    return Automaton(tuple(edges), frozenset(final))


def _next(state: object, modulus: int, places: int, *, whole: bool) -> Iterator[tuple[str, object]]:
    """The characters that may come next in a number, each with the state after it."""
    match state:
        case "start" | "sign":
            yield from (("-", "sign"),) if state == "start" else ()
            yield "0", ("zero", -1, 0)
            yield from ((str(digit), ("digits", -1, digit % modulus)) for digit in range(1, 10))
        case (str(kind), -1, int(rest)):
            if kind == "digits":
                yield from ((str(digit), ("digits", -1, (rest * 10 + digit) % modulus)) for digit in range(10))
            if not whole:
                yield ".", ("point", 0, rest)
        case (str(), int(read), int(rest)):
            if read == places:
                yield "0", ("digits", read, rest)
            else:
                yield from ((str(digit), ("digits", read + 1, (rest * 10 + digit) % modulus)) for digit in range(10))
        case _:
            raise AssertionError(state)


def number_literal(value: int | float, *, whole: bool) -> Regex:
    """Exactly this number; `1` also as `1.0`, `2.5` also as `2.50`, and with an exponent where Python writes it with one."""
    number = Decimal(repr(value))
    before, behind = _parts(number)
    if whole:
        return literal(before)
    plain = parse(unparse(literal(before)) + (rf"\.{behind}0*" if behind else r"(\.0+)?"))
    return Or((literal(repr(value)), plain)) if "e" in repr(value) else plain
