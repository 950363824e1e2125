r"""Regular expressions as Rust and Python have them, which is how users write them in grammars; they match the whole text.

    >>> unparse(parse_user_regex(r"(?i)a.\d+"))
    '[Aa][^\\u000a][0-9]+'

`\d`, `\w` and `\s` are those of ASCII. `\D` and `\S` exclude what any language has of them, `\W` stands for ASCII alone. So
whatever is written fits in either language.
"""

from functools import cache, lru_cache

from callsmith.grammar.patterns.character_sets import (
    ALL,
    DIGIT,
    MAX_CODE_POINT,
    SPACE,
    WORD,
    Ranges,
    chars,
    complement,
    intersection,
    union,
)
from callsmith.grammar.patterns.regex import (
    EMPTY,
    Anchor,
    Cat,
    CharSet,
    Or,
    Regex,
    RegexParser,
    UnsupportedRegex,
    has_anchor,
)

_ASCII: Ranges = ((0, 0x7F),)
_HALVES: Ranges = ((0xD800, 0xDFFF),)  # of surrogate pairs: no text has them
_MAX_RANGES = 256  # of one class
_CODES = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "0": 0}
_HEX_ESCAPES = "xuU"
_KNOWN_FLAGS = frozenset("ismu")  # m is about anchors, and those are at the ends alone


@lru_cache(1024)
def parse_user_regex(text: str, flags: str = "") -> Regex:
    """The expression as a tree without anchors, which a whole text has to match. `flags` are letters: i, s, m, u."""
    if unknown := sorted(set(flags) - _KNOWN_FLAGS):
        raise UnsupportedRegex(f"the flag {unknown[0]!r}")
    try:
        tree = _strip_anchors(_UserRegexParser(text, flags).whole())
    except RecursionError:
        raise UnsupportedRegex("nested too deeply") from None
    if has_anchor(tree):
        raise UnsupportedRegex("an anchor in the middle")
    return tree


class _UserRegexParser(RegexParser):
    first_bracket_is_member = True

    def __init__(self, text: str, flags: str) -> None:
        super().__init__(text)
        self.flags = frozenset(flags)
        self._lists_words = False

    def atom(self) -> Regex:
        if self.take("."):
            return CharSet(ALL if "s" in self.flags else complement(chars("\n")))
        is_class = self.peek() == "["
        tree = super().atom()
        if not isinstance(tree, CharSet):
            return tree
        return CharSet(_checked(tree.ranges if is_class or "i" not in self.flags else _in_both_cases(tree.ranges)))

    def group(self) -> Regex:
        """A group, or flags: for the rest of the group around them, or for the group that they begin."""
        before = self.flags
        if self.take("?") and self.peek() not in (":", "P", "<"):
            added, _, dropped = self._flag_letters().partition("-")
            if unknown := sorted({*added, *dropped} - _KNOWN_FLAGS):
                raise UnsupportedRegex("look-around" if self.peek() in ("=", "!") else f"the flag {unknown[0]!r}")
            self.flags = (self.flags | frozenset(added)) - frozenset(dropped)
            if self.take(")"):
                return EMPTY  # the flags stay: those of a group around are restored by it
            if not self.take(":"):
                raise UnsupportedRegex("look-around" if self.peek() in ("=", "!") else "a group of this kind")
            return self._inside(before)
        if self.text[self.at - 1] == "?":
            self.at -= 1
            tree = super().group()
            self.flags = before
            return tree
        return self._inside(before)

    def _flag_letters(self) -> str:
        start = self.at
        while self.peek().isalpha() or self.peek() == "-":
            self.at += 1
        return self.text[start : self.at]

    def _inside(self, before: frozenset[str]) -> Regex:
        tree = self.alternatives()
        if not self.take(")"):
            raise UnsupportedRegex("a bracket that is not closed")
        self.flags = before
        return tree

    def escape(self) -> Regex:
        if self.peek() in ("A", "z", "Z"):
            self.at += 1
            return Anchor(end=self.text[self.at - 1] != "A")
        return super().escape()

    def parse_escape(self) -> int | Ranges:
        char = self.peek()
        if char in _HEX_ESCAPES and char:
            start = self.at
            code = super().parse_escape()
            if self.at == start + 1:
                raise UnsupportedRegex(f"\\{char} without its number")
            if not isinstance(code, int) or code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise UnsupportedRegex(f"a character that there is none of, at {start}")
            return code
        match char:
            case "d" | "w" | "s":
                self._lists_words |= char == "w"
                self.at += 1
                return {"d": DIGIT, "w": WORD, "s": intersection(SPACE, _ASCII)}[char]
            case "D" | "S":
                self.at += 1
                return complement(_all_digits() if char == "D" else _all_space())
            case "W":
                self.at += 1
                return intersection(complement(WORD), _ASCII)
            case _ if char in _CODES and char:
                self.at += 1
                return _CODES[char]
            case _ if char.isalnum() and char not in ("p", "P"):
                raise UnsupportedRegex(f"the escape \\{char}")
            case _:
                return super().parse_escape()

    def member(self) -> int | Ranges:
        if self.text.startswith(("&&", "--", "~~", "[:"), self.at):
            raise UnsupportedRegex(f"{self.text[self.at : self.at + 2]!r} in a class")
        return super().member()

    def members(self) -> Ranges:
        self._lists_words = False
        return super().members()

    def class_of(self, listed: Ranges, *, negated: bool) -> Ranges:
        _check_size(listed)
        listed = _in_both_cases(listed) if "i" in self.flags else listed
        if not negated:
            return listed
        if intersection(listed, DIGIT) == DIGIT:
            listed = union(listed, _all_digits())
        if intersection(listed, intersection(SPACE, _ASCII)) == intersection(SPACE, _ASCII):
            listed = union(listed, _all_space())
        return intersection(complement(listed), _ASCII) if self._lists_words else complement(listed)


def _checked(ranges: Ranges) -> Ranges:
    """The characters of a class, such that no range of it begins or ends with half of a surrogate pair, however it is written."""
    _check_size(ranges)
    if ranges[-1][1] < MAX_CODE_POINT:
        cut = tuple((low, 0xD7FF if 0xD800 <= high <= 0xDFFF else high) for low, high in ranges)
        return tuple((low, high) for low, high in cut if low <= high)
    return union(ranges, _HALVES) if intersection(ranges, ((0xD7FF, 0xE000),)) else ranges


def _check_size(ranges: Ranges) -> None:
    if len(ranges) > _MAX_RANGES:
        raise UnsupportedRegex(f"a class of more than {_MAX_RANGES} ranges")


def _strip_anchors(tree: Regex) -> Regex:
    """The expression without the anchors at its ends: they say what is so anyway."""
    match tree:
        case Or():
            return Or(tuple(map(_strip_anchors, tree.items)))
        case Anchor():
            return EMPTY
        case Cat(items=items):
            kept = [item for item in items if item != EMPTY]
            while kept and kept[0] == Anchor(end=False):
                kept.pop(0)
            while kept and kept[-1] == Anchor(end=True):
                kept.pop()
            return _strip_anchors(kept[0]) if len(kept) == 1 and kept[0] is not tree else Cat(tuple(kept))
        case _:
            return tree


def _in_both_cases(ranges: Ranges) -> Ranges:
    """The characters, and those they are in the other case; for long ranges only as far as letters of ASCII go."""
    more: list[str] = []
    for low, high in ranges:
        codes = range(low, high + 1) if high - low < 128 else range(max(low, 0x41), min(high, 0x7A) + 1)
        more += [other for code in codes for other in (chr(code).lower(), chr(code).upper()) if len(other) == 1]
    return union(ranges, chars("".join(more)))


@cache
def _all_digits() -> Ranges:
    return union(tuple((code, code) for code in range(0x110000) if chr(code).isdecimal()))


@cache
def _all_space() -> Ranges:
    return union(SPACE, tuple((code, code) for code in range(0x110000) if chr(code).isspace()))
