"""Sets of characters, as sorted ranges of code points."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

MAX_CODE_POINT = 0x10FFFF
Ranges: TypeAlias = tuple[tuple[int, int], ...]  # first and last code points, sorted, not touching each other
ALL: Ranges = ((0, MAX_CODE_POINT),)


def union(*sets: Ranges) -> Ranges:
    """The characters that are in any of the sets."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(interval for ranges in sets for interval in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """The characters that are not in the set."""
    out: list[tuple[int, int]] = []
    at = 0
    for low, high in ranges:
        if low > at:
            out.append((at, low - 1))
        at = high + 1
    return (*out, (at, MAX_CODE_POINT)) if at <= MAX_CODE_POINT else tuple(out)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """The characters that are in both sets."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return union(tuple((low, high) for low, high in pairs if low <= high))


def chars(text: str) -> Ranges:
    """The set of the characters in a text."""
    return union(tuple((ord(char), ord(char)) for char in text))


DIGIT = ((0x30, 0x39),)
WORD = union(DIGIT, ((0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
SPACE = union(chars("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), ((0x2000, 0x200A),))
LINE_ENDS = chars("\n\r\u2028\u2029")


def class_text(ranges: Ranges, escape: Callable[[int], str] | None = None) -> str:
    """The set as a regular expression: in square brackets, or just the character if there is only one."""
    escape = escape or _escape
    if ranges and ranges[-1][1] == MAX_CODE_POINT:
        return f"[^{_range_text(complement(ranges), escape)}]"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return escape(ranges[0][0])
    return f"[{_range_text(ranges, escape)}]"


def _range_text(ranges: Iterable[tuple[int, int]], escape: Callable[[int], str]) -> str:
    return "".join(
        escape(low) if low == high else escape(low) + ("" if high == low + 1 else "-") + escape(high) for low, high in ranges
    )


def _escape(code: int) -> str:
    char = chr(code)
    if char.isascii() and (char.isalnum() or char in " !\"#%&',:;<=>@_`~"):
        return char
    if char.isascii() and char.isprintable():
        return "\\" + char
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
