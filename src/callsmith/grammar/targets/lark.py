"""Grammar → Lark, the grammar language of llguidance.

Special tokens are named by id (`<[151657]>`): a string literal never matches them, and text never contains them. So a literal is
split at every special token of the tokenizer, and from text that ends at one nothing needs to be excluded.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from callsmith.grammar.nodes import (
    Alt,
    Closed,
    FreeText,
    Grammar,
    JsonValue,
    Lit,
    Many,
    Node,
    Pattern,
    Record,
    Ref,
    Seq,
    Until,
    UserGrammar,
)
from callsmith.grammar.schema.normal_form import NormalSchema
from callsmith.grammar.targets.lark_as_written import SELF, AsWritten
from callsmith.grammar.targets.lark_json import any_order, for_llguidance

ANYTHING = "(?s:.*)"
EMPTY = '""'
_BITS = 64  # of the parameter that a rule can have


def to_lark(grammar: Grammar, specials: Mapping[str, int] | None = None) -> str:
    """The grammar as Lark text. `specials` maps the text of each special token to its id."""
    return _LarkEmitter(specials or {}).emit(grammar)


class _LarkEmitter:
    def __init__(self, specials: Mapping[str, int]) -> None:
        self.specials = specials
        self.special = _any_of(tuple(specials)) if specials else None
        self.lines: dict[str, str] = {}  # body → name, of the rules and terminals added here
        self.values: dict[str, str] = {}  # value → name
        self.any_order: dict[str, str] = {}  # name → body, of the rules of those values

    def emit(self, grammar: Grammar) -> str:
        rules = [f"start: {self.node(grammar.start)}"]
        rules += [f"{name}: {self.node(node)}" for name, node in grammar.rules.items()]
        definitions = [f"{name}{body}".replace(SELF, name) for body, name in self.lines.items()]
        any_order = [f"{name}: {body}" for name, body in self.any_order.items()]
        return "\n".join((*rules, *any_order, *definitions)) + "\n"

    def add_rule(self, body: str, *, terminal: bool) -> str:
        """Add a rule or terminal and return its name; `body` is what follows the name, and `SELF` in it stands for the name."""
        return self.lines.setdefault(body, f"{'T' if terminal else 'x'}{len(self.lines)}")

    def node(self, node: Node) -> str:
        match node:
            case Lit():
                return self.literal(node.text)
            case Seq():
                return " ".join(filter(None, (self.inner(item) for item in node.items))) or EMPTY
            case Alt():
                return " | ".join(self.node(item) for item in node.items)
            case Many():
                return self.many(node)
            case Record():
                return self.record(node)
            case Ref():
                return node.name
            case Pattern():
                return _between_slashes(node.regex)
            case JsonValue():
                return self.json(node)
            case Until():
                return self.until(node)
            case FreeText():
                return self.add_rule(f": /{ANYTHING}/{self.excluding(node.stops)}", terminal=True)
            case Closed():
                return self.closed(node)
            case UserGrammar():
                return self.add_rule(f": %lark {{\n{node.lark}\n}}", terminal=False)

    def inner(self, node: Node) -> str:
        """A node inside a sequence: alternatives in brackets, nothing as an empty text."""
        text = self.node(node)
        if isinstance(node, Alt) and len(node.items) > 1:
            return f"({text})"
        return "" if text == EMPTY else text

    def many(self, node: Many) -> str:
        if node.most == 0:
            return EMPTY
        item = self.node(node.item)
        short = {"0,": "*", "1,": "+", "0,1": "?"}
        count = f"{node.least},{'' if node.most is None else node.most}"
        return f"({item}){short.get(count) or '{' + count + '}'}"

    def json(self, node: JsonValue) -> str:
        if node.as_written:
            return self.node(AsWritten(node, self, self.any_order).node(cast(NormalSchema, node.schema)))
        parts = any_order(node)
        if parts is None:
            style = {"whitespace_flexible": False, "item_separator": node.item_separator, "key_separator": node.key_separator}
            directive = {**for_llguidance(node.schema), "x-guidance": style}
            return self.add_rule(f": %json {json.dumps(directive, ensure_ascii=False)}", terminal=False)
        known = repr(node)  # a value that contains itself refers to its own rule
        if known not in self.values:
            name = self.values[known] = f"v{len(self.values)}"
            self.any_order[name] = self.node(parts)
        return self.values[known]

    def record(self, node: Record) -> str:
        members = [self.add_rule(f": {self.node(item)}", terminal=False) for item in node.items]
        separator = f"{_quoted(node.separator)} " if node.separator else ""
        if all(node.required[:-1]) or len(members) > _BITS:
            return self.in_order(members, node.required, separator)
        # A bit for each member says whether it has been written.
        places = range(len(members))
        before = [max((place for place in range(item) if node.required[place]), default=None) for item in places]
        conditions = [
            f"bit_clear({place})" if last is None else f"and(bit_clear({place}), bit_set({last}))"
            for place, last in zip(places, before, strict=True)
        ]
        ways = [f"{separator}{members[place]} {SELF}::set_bit({place}) %if {conditions[place]}" for place in places]
        last = max((place for place in places if node.required[place]), default=None)
        more = self.add_rule(f'::_: "" %if {"true" if last is None else f"bit_set({last})"} | {" | ".join(ways)}', terminal=False)
        if not separator:
            return f"{more}::0"
        first = [f"{members[place]} {more}::{1 << place}" for place in places if before[place] is None]
        return self.add_rule(f": {' | '.join(first if last is not None else [*first, EMPTY])}", terminal=False)

    def in_order(self, members: Sequence[str], required: Sequence[bool], separator: str) -> str:
        """Members in the given order, with two rules each: one for the first member written, one for a later one."""
        first = after = EMPTY
        for member, needed in reversed(list(zip(members, required, strict=True))):
            led = f": {member} {after}", f": {separator}{member} {after}"
            if not needed:
                led = f"{led[0]} | {first}", f"{led[1]} | {after}"
            first, after = (self.add_rule(body, terminal=False) for body in led)
        return first

    def literal(self, text: str) -> str:
        if not self.special or not self.special.search(text):
            return _quoted(text)
        pieces = self.special.split(text)
        tokens = {piece: f"<[{self.specials[piece]}]>" for piece in pieces if piece in self.specials}
        return " ".join(tokens.get(piece) or _quoted(piece) for piece in pieces if piece) or EMPTY

    def until(self, node: Until) -> str:
        close, exclusion = node.close, self.excluding(node.excluded)
        is_plain = not exclusion
        exclusion += _not_starting_with(node)
        special = self.special.search(close) if self.special else None
        if special is None and node.is_distinct and is_plain and _is_tag(node):
            return self.pieces(node)
        if special is None:
            text = f"/{ANYTHING}{_escape(close)}/{exclusion}"
            return self.add_rule(f"[lazy]: {self.add_rule(f': {text}', terminal=True) if exclusion else text}", terminal=False)
        text = self.add_rule(f": /{ANYTHING}{_escape(close[: special.start()])}/{exclusion}", terminal=True)
        return f"{text} {self.literal(close[special.start() :])}"

    def closed(self, node: Closed) -> str:
        """One terminal with what closes it: on its own it would take the beginning of that, too."""
        special = self.special.search(node.close) if self.special else None
        close = node.close if special is None else node.close[: special.start()]
        text = self.add_rule(f": {_between_slashes(node.regex)}{self.excluding(node.excluded)}", terminal=True)
        text = self.add_rule(f": {text} {_quoted(close)}", terminal=True) if close else text
        return text if special is None else f"{text} {self.literal(node.close[special.start() :])}"

    def pieces(self, node: Until) -> str:
        """Text up to a closing tag, in pieces that each repeat one character class: only for those are token masks cheap.

        A piece begins with `<` and ends before the next `<` or `>`; in the latter case another piece begins with `>`. The closing
        tag is never split into such pieces: the longest match wins, and the tag is longer.
        """
        first, last = (_escape(char) for char in (node.close[0], node.close[-1]))
        pieces = (
            f"[^{first}]+/{_not_starting_with(node)}",
            f"{first}[^{first}{last}]*/",
            f"{last}[^{first}]*/",
            f"{_escape(node.close)}/",
        )
        head, opened, closed, end = (self.add_rule(f": /{piece}", terminal=True) for piece in pieces)
        return self.add_rule(f": {head}? ({opened} {closed}?)* {end}", terminal=False)

    def excluding(self, texts: Iterable[str]) -> str:
        """The condition that none of these texts occurs. One with a special token in it cannot occur anyway."""
        plain = [_escape(text) for text in texts if not (self.special and self.special.search(text))]
        return f" & ~/{ANYTHING}({'|'.join(plain)}){ANYTHING}/" if plain else ""


def _between_slashes(regex: str) -> str:
    return "/" + re.sub(r"(?<!\\)/", r"\\/", regex) + "/"


def _not_starting_with(node: Until) -> str:
    """The condition that the text does not begin with one of the characters that the node excludes."""
    return f" & ~/[\\s\\x1c-\\x1f]*[{_escape(node.not_starting_with)}]{ANYTHING}/" if node.not_starting_with else ""


def _is_tag(node: Until) -> bool:
    """Whether the first and the last character of `close` occur nowhere else in it, like those of `</a>`."""
    first, last = node.close[:1], node.close[-1:]
    return node.close.count(first) == node.close.count(last) == 1 < len(node.close) and first not in node.not_starting_with


@lru_cache(16)
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(" + "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) + ")")


_quoted = json.encoder.encode_basestring  # as json.dumps(ensure_ascii=False), but faster


def _escape(text: str) -> str:
    """Text as a regular expression between slashes."""
    return "".join(_ESCAPES.get(char, char) for char in text)


_ESCAPES = {char: f"\\{char}" for char in r"\/.^$*+?()[]{}|-&~#"} | {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
