r"""A grammar that a user wrote in GBNF, as llama.cpp has it, translated to Lark.

    root ::= "yes" | "no" [!.]{0,3}

GBNF goes by the character: what one part could match may as well be left to the next. A Lark grammar has terminals, and each
takes as much as it can. So a grammar that does not refer to itself becomes one regular expression, and in any other each
character is a terminal of its own. Not covered: tokens (`<think>`, `<[1000]>`).
"""

import re
from dataclasses import dataclass
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.grammar.limits import MAX_BYTES, MAX_DEPTH, MAX_RULES
from callsmith.grammar.nodes import Alt, Lit, Many, Node, Pattern, Ref, Seq, references

_MAX_REPEATS: Final = 2000
_MAX_REGEX: Final = 32 * 1024  # characters of a regular expression that a whole grammar may become
_ANYTHING: Final = r"[\x{0}-\x{10ffff}]"
_DEFINED: Final = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*::=", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_SPACE: Final = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_COUNT: Final = re.compile(r"\{[ \t]*(\d{1,9})?[ \t]*(,)?[ \t]*(\d{1,9})?[ \t]*\}")
_ESCAPED: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tnr\\\"\[\]^-]))")
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r"}


def is_gbnf(text: str) -> bool:
    """Whether a grammar is written in GBNF, and not in Lark."""
    return bool(_DEFINED.search(text))


def gbnf_to_lark(text: str) -> str:
    """The Lark grammar of a GBNF text; a UsageError says what is wrong in which line."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise UsageError(f"grammar: has {size} bytes, more than {MAX_BYTES}", field="grammar")
    rules = _GbnfReader(text).read()
    regex = _Regex(rules).of("root")
    if regex is not None:
        return f"start: /{regex}/\n" if regex else 'start: ""\n'
    numbers = {name: f"r{number}" for number, name in enumerate(rules)}
    lines = (f"{numbers[name]}: {_lark(node, numbers)}" for name, node in rules.items())
    return "\n".join((f"start: {numbers['root']}", *lines, ""))


@dataclass(slots=True)
class _GbnfReader:
    """Reads the rules of a GBNF text."""

    text: str
    at: int = 0
    depth: int = 0

    def read(self) -> dict[str, Node]:
        """The rules by their names: those that are referred to are all there."""
        rules: dict[str, Node] = {}
        self._skip(lines=True)
        while self.at < len(self.text):
            name = self._name()
            self._skip()
            if not self.text.startswith("::=", self.at):
                raise self._error("expected ::=")
            self.at += 3
            self._skip(lines=True)
            rules[name] = self._alternatives()
            if self.at < len(self.text) and self.text[self.at] not in "\r\n":
                raise self._error("expected the end of the rule")
            self._skip(lines=True)
            if len(rules) > MAX_RULES:
                raise self._error(f"there are more than {MAX_RULES} rules")
        for name in ("root", *(name for node in rules.values() for name in references(node))):
            if name not in rules:
                raise UsageError(f"grammar: there is no rule {name!r}", field="grammar")
        return rules

    def _alternatives(self) -> Node:
        sequences = [self._sequence()]
        while self.text.startswith("|", self.at):
            self.at += 1
            self._skip(lines=True)
            sequences.append(self._sequence())
        return sequences[0] if len(sequences) == 1 else Alt(tuple(sequences))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)\r\n":
            items.append(self._repeat(self._item()))
            self._skip(lines=self.depth > 0)
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _item(self) -> Node:
        match self.text[self.at]:
            case '"':
                self.at += 1
                return Lit("".join(iter(lambda: self._character('"'), "")))
            case "[":
                self.at += 1
                return Pattern(self._character_class())
            case ".":
                self.at += 1
                return Pattern(_ANYTHING)
            case "(":
                return self._group()
            case "<" | "!":
                raise self._error("tokens in a grammar are not supported")
            case _:
                return Ref(self._name())

    def _group(self) -> Node:
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._error(f"brackets are nested more than {MAX_DEPTH} deep")
        self._skip(lines=True)
        node = self._alternatives()
        if not self.text.startswith(")", self.at):
            raise self._error("expected )")
        self.at += 1
        self.depth -= 1
        return node

    def _character_class(self) -> str:
        negated = self.text.startswith("^", self.at)
        self.at += negated
        parts: list[str] = []
        while first := self._character("]"):
            last = first
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                last = self._character("]")
            if last < first:
                raise self._error("a range goes from the lower to the higher character")
            parts.append(_spell(first) if first == last else f"{_spell(first)}-{_spell(last)}")
        if not parts:
            raise self._error("a class without characters")
        return f"[{'^' * negated}{''.join(parts)}]"

    def _character(self, end: str) -> str:
        """The next character, which may be escaped; empty at the end, which is passed over."""
        if self.at >= len(self.text) or (self.text[self.at] in "\r\n" and end == '"'):
            raise self._error(f"expected {end}")
        if self.text.startswith(end, self.at):
            self.at += 1
            return ""
        if self.text[self.at] != "\\":
            self.at += 1
            return self.text[self.at - 1]
        match = _ESCAPED.match(self.text, self.at)
        if not match:
            raise self._error("unknown escape")
        self.at = match.end()
        if match[4]:
            return _NAMED.get(match[4], match[4])
        code = int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self._error(f"there is no character {code:x}")
        return chr(code)

    def _repeat(self, node: Node) -> Node:
        self._skip(lines=self.depth > 0)
        sign = self.text[self.at : self.at + 1]
        if sign not in ("*", "+", "?", "{"):
            return node
        if sign != "{":
            self.at += 1
            return Many(node, int(sign == "+"), 1 if sign == "?" else None)
        counted = _COUNT.match(self.text, self.at)
        if not counted or not (counted[1] or counted[3]):
            raise self._error("expected a number of repetitions")
        least = int(counted[1] or 0)
        most = int(counted[3]) if counted[3] else None if counted[2] else least
        if max(least, most or 0) > _MAX_REPEATS or (most is not None and most < least):
            raise self._error(f"repetitions go from the lower to the higher number, at most {_MAX_REPEATS}")
        self.at = counted.end()
        return Many(node, least, most)

    def _name(self) -> str:
        match = _NAME.match(self.text, self.at)
        if not match:
            raise self._error("expected a name")
        self.at = match.end()
        return match[0]

    def _skip(self, *, lines: bool = False) -> None:
        match = (_SPACE_AND_LINES if lines else _SPACE).match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _error(self, why: str) -> UsageError:
        line, near = self.text.count("\n", 0, self.at) + 1, self.text[self.at : self.at + 20].split("\n")[0]
        return UsageError(f"grammar: line {line}: {why}, at {near!r}", field="grammar")


class _Regex:
    """Rules as regular expressions, where they do not refer to themselves and do not become too long."""

    def __init__(self, rules: dict[str, Node]) -> None:
        self._rules = rules
        self._made: dict[str, str | None] = {}
        self._depth = 0

    def of(self, name: str) -> str | None:
        """The expression of a rule; None if it has none."""
        if name not in self._made:
            self._made[name] = None  # while it is being made: a rule that is in itself has none
            self._depth += 1
            if self._depth < MAX_DEPTH:
                self._made[name] = self._node(self._rules[name])
            self._depth -= 1
        return self._made[name]

    def _node(self, node: Node) -> str | None:
        match node:
            case Lit(text):
                return "".join(map(_spell, text))
            case Pattern(regex):
                return regex
            case Ref(name):
                return self.of(name)
            case Many(item, least, most):
                inner = self._node(item)
                return inner and f"(?:{inner}){{{least},{'' if most is None else most}}}"
            case Seq(items) | Alt(items):
                known = [part for part in map(self._node, items) if part is not None]
                if len(known) < len(items) or sum(map(len, known)) + len(known) > _MAX_REGEX:
                    return None
                return "".join(known) if isinstance(node, Seq) else f"(?:{'|'.join(known)})"
            case _:
                raise TypeError(f"no part of a GBNF grammar: {node}")


def _lark(node: Node, numbers: dict[str, str]) -> str:
    match node:
        case Lit(text):
            return " ".join(f"/{_spell(character)}/" for character in text) or '""'
        case Pattern(regex):
            return f"/{regex}/"
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


def _spell(character: str) -> str:
    """A character as a regular expression that means just that."""
    return character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"
