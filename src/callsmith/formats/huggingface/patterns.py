"""Regular expressions of response templates as nodes: literals, white space, optional and alternative literals, named groups.

`<tool_call>\\s*<function=(?P<name>[^>]+)>` is "<tool_call>\\n", "<function=", NAME, ">". What else an expression may hold has no
counterpart among nodes and is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from callsmith.core.errors import UsageError
from callsmith.formats.algebra import Hole, Ident, Node, Nodes, OneOf, Opt

GROUPS = {hole.value: hole for hole in (Hole.NAME, Hole.ID, Hole.INDEX, Hole.KEY, Hole.TYPE, Hole.VALUE)}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
MOST_GROUPS = 200  # in one expression
REPEATED = re.compile(r"(?:[*+?]|\{\d*,?\d*\})[?+]?")
_CLASS = re.compile(r"(\\.)|\[(\^?\]?(?:\\.|[^\]\\])*\]?)", re.DOTALL)  # or something escaped
_WARNED_OF = re.compile(r"(\\.)|((?<=-)-|[\[&~|])", re.DOTALL)  # in a class
SPACE = re.compile(r"(?:\\s|\[\\s\\n\]|\\n| |\\t|\n)")


@dataclass(frozen=True, slots=True)
class Space:
    """Any white space; `written` is how it is written."""

    written: str


@dataclass(frozen=True, slots=True)
class Ahead:
    """A look at what follows (`(?=…)`), which takes no text."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Choices:
    """Alternatives, each a sequence of items; a single one that is `optional` may be missing."""

    ways: "tuple[tuple[Item, ...], ...]"
    optional: bool = False


Item = str | Space | Ahead | Choices | Hole | Ident


@dataclass(frozen=True, slots=True)
class ParsedPattern:
    """A regular expression, taken apart. `where` names it in errors. `types` are the alternatives of the group `type`."""

    ways: tuple[tuple[Item, ...], ...]
    where: str
    types: tuple[str, ...] = ()

    @property
    def only(self) -> tuple[Item, ...]:
        """The items of a pattern without alternatives; of several that are literals, one choice."""
        return self.ways[0] if len(self.ways) == 1 else (Choices(self.ways),)


def take_apart(pattern: str, where: str) -> ParsedPattern:
    """Take a regular expression apart; a `UsageError` names what has no counterpart among nodes."""
    if pattern.count("(") > MOST_GROUPS:
        raise UsageError(f"{where}: an expression may have {MOST_GROUPS} groups, and this one has more", field=where)
    try:
        re.compile(_CLASS.sub(_escape_members, pattern))
    except re.error as error:
        raise UsageError(f"{where}: {pattern!r} is no regular expression: {error}", field=where) from error
    parser = _PatternParser(pattern, where)
    ways = parser.ways()
    if parser.at < len(pattern):
        raise parser.make_error(pattern[parser.at :])
    return ParsedPattern(ways, where, parser.types)


def nodes_from(items: tuple[Item, ...], where: str) -> Nodes:
    """The nodes of items. White space is written at the end of the literal before it, else at the start of the next one."""
    nodes: list[Node] = []
    space, is_open = "", False  # white space that waits for a literal; whether the last literal goes on
    for item in items:
        if isinstance(item, Ahead):
            continue
        if isinstance(item, Space):
            if nodes and isinstance(nodes[-1], str):
                nodes[-1] += item.written
            else:
                space += item.written
            is_open = False
            continue
        node = item if isinstance(item, str | Hole | Ident) else _choice(item, where)
        if node in ("", Opt((), write=True), OneOf(())):
            continue
        if isinstance(node, str) and is_open and nodes and isinstance(nodes[-1], str):
            nodes[-1] += node
        elif isinstance(node, str):
            nodes.append(space + node)
            space = ""
        else:
            nodes += [space, node] if space else [node]
            space = ""
        is_open = isinstance(node, str)
    return tuple(nodes) + ((space,) if space else ())


def _choice(choice: Choices, where: str) -> Node:
    if len(choice.ways) == 1:
        inner = nodes_from(choice.ways[0], where)
        return Opt(inner, write=True) if choice.optional else inner[0] if len(inner) == 1 else Opt(inner, write=True)
    texts = [nodes_from(way, where) for way in choice.ways]
    literals = tuple(text[0] for text in texts if len(text) == 1 and isinstance(text[0], str))
    if len(literals) != len([text for text in texts if text]):
        raise UsageError(f"{where}: alternatives must be plain literals", field=where)
    node = OneOf(literals)
    return Opt((node,), write=True) if choice.optional or len(literals) < len(texts) else node


class _PatternParser:
    """Takes one expression apart, from left to right."""

    def __init__(self, pattern: str, where: str) -> None:
        self.pattern = pattern
        self.where = where
        self.at = 0
        self.types: tuple[str, ...] = ()

    def make_error(self, what: str) -> UsageError:
        return UsageError(f"{self.where}: {what!r} in the expression {self.pattern!r} cannot be expressed", field=self.where)

    def ways(self) -> tuple[tuple[Item, ...], ...]:
        """Alternatives up to the end, or to a parenthesis that closes."""
        ways: list[tuple[Item, ...]] = []
        items: list[Item] = []
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.pattern[self.at] == "|":
                self.at += 1
                ways.append(tuple(items))
                items = []
            else:
                items += self._item()
        return (*ways, tuple(items))

    def _item(self) -> Iterator[Item]:
        if match := SPACE.match(self.pattern, self.at):
            yield self._space(match)
        elif self.pattern[self.at] == "(":
            yield self._group()
        elif self.pattern[self.at] in "$^" or self.pattern.startswith((r"\Z", r"\A", r"\b"), self.at):
            self.at += 1 if self.pattern[self.at] in "$^" else 2
        elif self.pattern[self.at] in "[." or re.match(r"\\[a-zA-Z]", self.pattern[self.at :]):
            yield self._any_word()
        else:
            literal = self._character()
            if repeated := self._repeat():
                if repeated != "?":
                    raise self.make_error(literal + repeated)
                yield Choices(((literal,),), optional=True)
            else:
                yield literal

    def _space(self, match: "re.Match[str]") -> Item:
        self.at = match.end()
        repeated, exact = self._repeat(), {"\\n": "\n", "\\t": "\t"}.get(match[0], match[0])
        if match[0].endswith(("s", "]")):
            return Space(" " if repeated.startswith("+") or not repeated else "\n")
        return Space(exact) if repeated else exact

    def _character(self) -> str:
        self.at += 1
        if self.pattern[self.at - 1] != "\\":
            return self.pattern[self.at - 1]
        self.at += 1
        return ESCAPES.get(self.pattern[self.at - 1], self.pattern[self.at - 1])

    def _repeat(self) -> str:
        match = REPEATED.match(self.pattern, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else ""

    def _any_word(self) -> Item:
        """A class of characters outside a named group: text without meaning. Escapes such as `\\n` are characters."""
        start = self.at
        if self.pattern[start] == "\\" and self.pattern[start + 1] in ESCAPES:
            return self._character()
        self.at = _end_of_class(self.pattern, start)
        if not self._repeat():
            raise self.make_error(self.pattern[start : self.at])
        return Hole.SKIP

    def _group(self) -> Item:
        start = self.at
        if match := re.compile(r"\(\?P?<(\w+)>").match(self.pattern, start):
            return self._parse_named(match)
        if match := re.compile(r"\(\?[=!<]").match(self.pattern, start):
            inner = self._inside(start)
            if not self.pattern.startswith("(?=", start):
                return Ahead("")
            return Ahead(inner.removeprefix("?="))
        self.at += 3 if self.pattern.startswith("(?:", start) else 1
        ways = tuple(_flatten(self.ways()))
        self.at += 1
        repeated = self._repeat()
        if repeated not in ("", "?"):
            raise self.make_error(self.pattern[start : self.at])
        return Choices(ways, optional=bool(repeated))

    def _parse_named(self, match: "re.Match[str]") -> Item:
        name = match[1]
        if name not in GROUPS:
            raise self.make_error(f"the group {name}")
        inner = self._inside(match.start()).partition(">")[2]
        if name == "type":
            self.types = tuple(re.findall(r"\w+", inner))
        if name == "id" and "(?P<name>" in inner:
            return Ident(nodes_from(take_apart(inner, self.where).only, self.where))
        return GROUPS[name]

    def _inside(self, start: int) -> str:
        """The text between the parentheses of a group; the place moves behind it."""
        depth, self.at = 0, start
        while self.at < len(self.pattern):
            here = self.pattern[self.at]
            if here == "\\":
                self.at += 2
            elif here == "[":
                self.at = _end_of_class(self.pattern, self.at)
            else:
                depth += (here == "(") - (here == ")")
                self.at += 1
                if not depth:
                    break
        return self.pattern[start + 1 : self.at - 1]


def _flatten(ways: tuple[tuple[Item, ...], ...]) -> Iterator[tuple[Item, ...]]:
    """Alternatives, with those of an alternative that is itself a choice among them: `(?:a|(?:b|c))`."""
    for way in ways:
        inner = [item for item in way if not isinstance(item, Space)]
        if len(ways) > 1 and len(inner) == 1 and isinstance(choice := inner[0], Choices):
            yield from choice.ways
            if choice.optional:
                yield ()
        else:
            yield way


def _escape_members(found: "re.Match[str]") -> str:
    """A class with a backslash before what Python warns of: that later releases may read it in another way."""
    return found[1] or "[" + _WARNED_OF.sub(lambda member: member[1] or f"\\{member[2]}", found[2])


def _end_of_class(pattern: str, start: int) -> int:
    """Where a class of characters ends: `[…]`, `.`, `\\S`."""
    if pattern[start] != "[":
        return start + (2 if pattern[start] == "\\" else 1)
    at = start + (2 if pattern.startswith("[^", start) else 1)
    at += pattern.startswith("]", at)
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1
