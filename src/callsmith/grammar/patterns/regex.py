"""Regular expressions as in JSON Schema: parsed into a tree, and written as text again.

    >>> unparse(match_whole_text(parse("^ab?")))
    'ab?[^]*'

Classes, `\\d \\w \\s`, repetition, groups, alternatives and anchors are supported. Look-around, back references, word boundaries
and Unicode properties are not: they raise `UnsupportedRegex`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, assert_never

from callsmith.grammar.patterns.character_sets import (
    ALL,
    DIGIT,
    LINE_ENDS,
    SPACE,
    WORD,
    Ranges,
    chars,
    class_text,
    complement,
    union,
)


class UnsupportedRegex(ValueError):
    """A regular expression with something that is not supported; the message says what."""


@dataclass(frozen=True, slots=True)
class CharSet:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Cat:
    """A sequence: one item after another."""

    items: tuple["Regex", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """A choice: one of these items."""

    items: tuple["Regex", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition, `least` to `most` times (None: no limit)."""

    item: "Regex"
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` or `$`: the beginning of the text, or its end."""

    end: bool


Regex: TypeAlias = CharSet | Cat | Or | Repeat | Anchor

ANY = CharSet(ALL)
ANYTHING = Repeat(ANY)
EMPTY = Cat(())


def literal(text: str) -> Regex:
    """An expression that matches exactly this text."""
    return Cat(tuple(CharSet(((ord(char), ord(char)),)) for char in text))


_CLASSES = {"d": DIGIT, "w": WORD, "s": SPACE} | {"D": complement(DIGIT), "W": complement(WORD), "S": complement(SPACE)}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})")


@lru_cache(4096)
def parse(text: str) -> Regex:
    """Parse an expression into a tree."""
    try:
        return RegexParser(text).whole()
    except RecursionError:
        raise UnsupportedRegex("nested too deeply") from None


class RegexParser:
    """Parses one expression. Other dialects change what a dot, a class or an escape means."""

    first_bracket_is_member = False  # whether `[]a]` is a class of `]` and `a`

    def __init__(self, text: str) -> None:
        self.text = text
        self.at: int = 0

    def whole(self) -> Regex:
        tree = self.alternatives()
        if self.at < len(self.text):
            raise UnsupportedRegex(f"unexpected {self.text[self.at]!r} at {self.at}")
        return tree

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, text: str) -> bool:
        """Skip this text if it comes next; whether it did."""
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def alternatives(self) -> Regex:
        ways = [self.sequence()]
        while self.take("|"):
            ways.append(self.sequence())
        return ways[0] if len(ways) == 1 else Or(tuple(ways))

    def sequence(self) -> Regex:
        items: list[Regex] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.parse_count(self.atom()))
        return items[0] if len(items) == 1 else Cat(tuple(items))

    def parse_count(self, item: Regex) -> Regex:
        char = self.peek()
        if char in ("*", "+", "?") and char:
            self.at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif char == "{" and (match := _COUNT.match(self.text, self.at)):
            self.at = match.end()
            least = int(match[1])
            most = least if match[2] is None else int(match[3]) if match[3] else None
            if most is not None and most < least:
                raise UnsupportedRegex(f"the repetition {match[0]} counts backwards")
        else:
            return item
        if isinstance(item, Anchor):
            raise UnsupportedRegex("a repeated anchor")
        if self.take("+"):
            raise UnsupportedRegex("a possessive repetition")
        self.take("?")  # lazy or greedy: the same texts match
        return self.parse_count(Repeat(item, least, most))

    def atom(self) -> Regex:
        char = self.peek()
        self.at += 1
        match char:
            case "(":
                return self.group()
            case "[":
                return CharSet(self.members())
            case ".":
                return CharSet(complement(LINE_ENDS))
            case "^" | "$":
                return Anchor(end=char == "$")
            case "\\":
                return self.escape()
            case "*" | "+" | "?":
                raise UnsupportedRegex(f"nothing to repeat at {self.at - 1}")
            case _:
                return CharSet(((ord(char), ord(char)),))

    def group(self) -> Regex:
        if self.take("?"):
            if self.take("s:"):  # a dot that also matches line ends; only our own expressions have it
                inner = self.text[self.at :]
                if not inner.startswith(".*)"):
                    raise UnsupportedRegex("flags")
                self.at += 3
                return ANYTHING
            name = re.compile(r"P?<[A-Za-z_]\w*>").match(self.text, self.at)
            if name:
                self.at = name.end()
            elif not self.take(":"):
                raise UnsupportedRegex("look-around" if self.peek() in ("=", "!", "<") else "flags")
        tree = self.alternatives()
        if not self.take(")"):
            raise UnsupportedRegex("a bracket that is not closed")
        return tree

    def escape(self) -> Regex:
        char = self.peek()
        if char in ("b", "B", "A", "Z", "z"):
            raise UnsupportedRegex("a word boundary" if char in "bB" else f"\\{char}")
        if char in "123456789k" and char:
            raise UnsupportedRegex("a back reference")
        chars_or_code = self.parse_escape()
        return CharSet(chars_or_code if isinstance(chars_or_code, tuple) else ((chars_or_code, chars_or_code),))

    def parse_escape(self) -> int | Ranges:
        """The character or class after a backslash."""
        char = self.peek()
        if not char:
            raise UnsupportedRegex("a backslash at the end")
        if match := _HEX.match(self.text, self.at):
            self.at = match.end()
            return int(next(group for group in match.groups() if group), 16)
        self.at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if char in ("p", "P"):
            raise UnsupportedRegex("Unicode properties")
        if char == "c" and self.peek().isalpha():
            self.at += 1
            return ord(self.text[self.at - 1]) % 32
        return _CONTROLS.get(char, ord(char))

    def members(self) -> Ranges:
        """The set of characters in square brackets."""
        negated = self.take("^")
        sets: list[Ranges] = [chars("]")] if self.first_bracket_is_member and self.take("]") else []
        while not self.take("]"):
            low = self.member()
            if not isinstance(low, int):
                sets.append(low)
                continue
            high = low
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self.member()
                if not isinstance(last, int):  # a class cannot end a range: the hyphen is meant literally
                    sets += [chars("-"), last]
                else:
                    high = last
            if high < low:
                raise UnsupportedRegex("a range that runs backwards")
            sets.append(((low, high),))
        ranges = self.class_of(union(*sets), negated=negated)
        if not ranges:
            raise UnsupportedRegex("a class without a character")
        return ranges

    def class_of(self, listed: Ranges, *, negated: bool) -> Ranges:
        """The characters that a class stands for, given those it lists."""
        return complement(listed) if negated else listed

    def member(self) -> int | Ranges:
        char = self.peek()
        if not char:
            raise UnsupportedRegex("a class that is not closed")
        self.at += 1
        if char != "\\":
            return ord(char)
        if self.peek() == "b":
            self.at += 1
            return 8
        return self.parse_escape()


# --- properties and rewriting of expressions ----------------------------------------------------------------------------------


def match_whole_text(tree: Regex) -> Regex:
    """The expression for whole texts in which this one is found: without anchors, and with any text where there is none."""
    whole = _unanchor(_unanchor(tree, end=False), end=True)
    if has_anchor(whole):
        raise UnsupportedRegex("an anchor in the middle")
    return whole


def _unanchor(tree: Regex, *, end: bool) -> Regex:
    match tree:
        case Or():
            return Or(tuple(_unanchor(item, end=end) for item in tree.items))
        case Cat(items=items) if items:
            edge, rest = (items[-1], items[:-1]) if end else (items[0], items[1:])
            if edge == Anchor(end):
                return _unanchor(Cat(rest), end=end) if rest and (rest[-1] if end else rest[0]) == edge else Cat(rest)
            opened = _unanchor(edge, end=end)
            return Cat((*rest, opened)) if end else Cat((opened, *rest))
        case Anchor() if tree.end == end:
            return EMPTY
        case Repeat(item=inner, least=0, most=1) if has_anchor(inner):
            return Or((_unanchor(inner, end=end), _unanchor(EMPTY, end=end)))
        case _:
            return Cat((tree, ANYTHING)) if end else Cat((ANYTHING, tree))


def has_anchor(tree: Regex) -> bool:
    """Whether there is an anchor anywhere in the expression."""
    match tree:
        case Anchor():
            return True
        case Cat() | Or():
            return any(map(has_anchor, tree.items))
        case Repeat():
            return has_anchor(tree.item)
        case CharSet():
            return False


def length_range(tree: Regex) -> tuple[int, int | None]:
    """The lengths of the shortest and the longest text that matches, in characters; None: there is no longest."""
    match tree:
        case CharSet():
            return 1, 1
        case Cat():
            spans = [length_range(item) for item in tree.items]
            highs = [high for _, high in spans]
            return sum(low for low, _ in spans), None if None in highs else sum(high or 0 for high in highs)
        case Or():
            spans = [length_range(item) for item in tree.items]
            highs = [high for _, high in spans]
            return min(low for low, _ in spans), None if None in highs else max(high or 0 for high in highs)
        case Repeat():
            low, high = length_range(tree.item)
            most = 0 if high == 0 or tree.most == 0 else None if high is None or tree.most is None else high * tree.most
            return low * tree.least, most
        case Anchor():
            return 0, 0
        case _:
            assert_never(tree)


def map_sets(tree: Regex, change: Callable[[Ranges], Regex]) -> Regex:
    """The expression with every set of characters replaced."""
    match tree:
        case CharSet():
            return change(tree.ranges)
        case Cat():
            return Cat(tuple(map_sets(item, change) for item in tree.items))
        case Or():
            return Or(tuple(map_sets(item, change) for item in tree.items))
        case Repeat():
            return Repeat(map_sets(tree.item, change), tree.least, tree.most)
        case Anchor():
            return tree


def repeats_empty(tree: Regex) -> bool:
    """Whether something that may be empty is repeated: a grammar made directly from it would be left-recursive."""
    match tree:
        case Repeat():
            return (tree.most != 1 and length_range(tree.item)[0] == 0) or repeats_empty(tree.item)
        case Cat() | Or():
            return any(map(repeats_empty, tree.items))
        case CharSet() | Anchor():
            return False


# --- writing as text ----------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def unparse(tree: Regex) -> str:
    """The expression as text that `parse` reads."""
    match tree:
        case CharSet():
            return class_text(tree.ranges)
        case Cat():
            return "".join(f"({unparse(item)})" if isinstance(item, Or) else unparse(item) for item in tree.items)
        case Or():
            return "|".join(map(unparse, tree.items))
        case Repeat():
            inner = unparse(tree.item)
            return (inner if isinstance(tree.item, CharSet) else f"({inner})") + count_text(tree.least, tree.most)
        case Anchor():
            return "$" if tree.end else "^"


def portable_text(tree: Regex) -> str:
    """The expression as text that other engines read, too: not all of them know `[^]`."""
    return unparse(tree).replace("[^]", r"[\s\S]")


def count_text(least: int, most: int | None) -> str:
    """The suffix of a repetition: `*`, `+`, `?`, `{2,5}`."""
    short: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}
    known = short.get((least, most))
    return known if known is not None else f"{{{least}}}" if most == least else f"{{{least},{'' if most is None else most}}}"
