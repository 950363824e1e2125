r"""A grammar that a user wrote in GBNF, as llama.cpp has it, translated to Lark.

    root ::= "yes" | "no" [!.]{0,3}

GBNF goes by the character: what one part could match may as well be left to the next. A Lark grammar has terminals, and each
takes as much as it can. So a grammar that does not refer to itself becomes one regular expression, and in any other each
character is a terminal of its own. Not covered: tokens (`<think>`, `<[1000]>`).
"""

import re
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.grammar.languages.reader import GrammarReader, literal_pattern
from callsmith.grammar.languages.regular import to_regex
from callsmith.grammar.limits import MAX_RULES
from callsmith.grammar.nodes import Alt, Many, Node, Pattern, Ref, Seq, references
from callsmith.grammar.patterns.character_sets import ALL, Ranges, complement, union
from callsmith.grammar.patterns.regex import Cat, CharSet, parse, portable_text, unparse

_DEFINED: Final = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*::=", re.MULTILINE)
_ESCAPED: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tnr\\\"\[\]^-]))")
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r"}


def is_gbnf(text: str) -> bool:
    """Whether a grammar is written in GBNF, and not in Lark."""
    return bool(_DEFINED.search(text))


def gbnf_to_lark(text: str) -> str:
    """The Lark grammar of a GBNF text; a UsageError says what is wrong in which line."""
    rules = _GbnfReader(text).read()
    tree = to_regex(Ref("root"), rules)
    if tree is not None:
        return f"start: /{portable_text(tree)}/\n" if tree != Cat(()) else 'start: ""\n'
    numbers = {name: f"r{number}" for number, name in enumerate(rules)}
    lines = (f"{numbers[name]}: {_lark(node, numbers)}" for name, node in rules.items())
    return "\n".join((f"start: {numbers['root']}", *lines, ""))


class _GbnfReader(GrammarReader):
    """Reads the rules of a GBNF text."""

    space = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
    space_and_lines = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
    name = re.compile(r"[A-Za-z0-9_-]+")
    ends = "|)\r\n"

    def read(self) -> dict[str, Node]:
        """The rules by their names: those that are referred to are all there."""
        rules: dict[str, Node] = {}
        self.skip(lines=True)
        while self.at < len(self.text):
            name = self.read_name()
            self.skip()
            if not self.text.startswith("::=", self.at):
                raise self.error("expected ::=")
            self.at += 3
            self.skip(lines=True)
            rules[name] = self.read_alternatives()
            if self.at < len(self.text) and self.text[self.at] not in "\r\n":
                raise self.error("expected the end of the rule")
            self.skip(lines=True)
            if len(rules) > MAX_RULES:
                raise self.error(f"there are more than {MAX_RULES} rules")
        for name in ("root", *(name for node in rules.values() for name in references(node))):
            if name not in rules:
                raise UsageError(f"grammar: there is no rule {name!r}", field="grammar")
        return rules

    def read_item(self) -> Node:
        match self.text[self.at]:
            case '"':
                self.at += 1
                return literal_pattern("".join(iter(lambda: self._character('"'), "")))
            case "[":
                self.at += 1
                return Pattern(unparse(CharSet(self._character_class())))
            case ".":
                self.at += 1
                return Pattern(unparse(CharSet(ALL)))
            case "(":
                return self.read_group()
            case "<" | "!":
                raise self.error("tokens in a grammar are not supported")
            case _:
                return Ref(self.read_name())

    def _character_class(self) -> Ranges:
        negated = self.text.startswith("^", self.at)
        self.at += negated
        listed: list[tuple[int, int]] = []
        while first := self._character("]"):
            last = first
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                last = self._character("]")
            if last < first:
                raise self.error("a range goes from the lower to the higher character")
            listed.append((ord(first), ord(last)))
        if not listed:
            raise self.error("a class without characters")
        ranges = union(tuple(listed))
        return complement(ranges) if negated else ranges

    def _character(self, end: str) -> str:
        """The next character, which may be escaped; empty at the end, which is passed over."""
        if self.at >= len(self.text) or (self.text[self.at] in "\r\n" and end == '"'):
            raise self.error(f"expected {end}")
        if self.text.startswith(end, self.at):
            self.at += 1
            return ""
        if self.text[self.at] != "\\":
            self.at += 1
            return self.text[self.at - 1]
        match = _ESCAPED.match(self.text, self.at)
        if not match:
            raise self.error("unknown escape")
        self.at = match.end()
        if match[4]:
            return _NAMED.get(match[4], match[4])
        code = int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self.error(f"there is no character {code:x}")
        return chr(code)


def _lark(node: Node, numbers: dict[str, str]) -> str:
    match node:
        case Pattern(regex):
            tree = parse(regex)
            parts = tree.items if isinstance(tree, Cat) else (tree,)
            return " ".join(f"/{portable_text(part)}/" for part in parts) or '""'
        case Ref(name):
            return numbers[name]
        case Many(item, least, most):
            return f"({_lark(item, numbers)}){{{least},{'' if most is None else most}}}"
        case Seq(items):
            parts = ((item, _lark(item, numbers)) for item in items)
            return " ".join(f"({part})" if isinstance(item, Alt) else part for item, part in parts) or '""'
        case Alt(items):
            return " | ".join(_lark(item, numbers) for item in items)
        case _:
            raise TypeError(f"no part of a GBNF grammar: {node}")
