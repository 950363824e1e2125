"""Grammar → llguidance's Lark.

Special tokens are named by id (`<[151657]>`): a string literal never matches them, and text never contains them. So a literal is
split at every special token of the tokenizer, and text that ends at one needs nothing excluded.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from callsmith.grammar.nodes import Alt, Free, Grammar, JsonValue, Lit, Many, Node, Own, Pattern, Record, Ref, Seq, Until
from callsmith.grammar.targets.lark_any_order import loosened
from callsmith.grammar.targets.lark_json import guided

ANYTHING = "(?s:.*)"
EMPTY = '""'
_BITS = 64  # of the parameter a rule can have
_SELF = "\0"


def to_lark(grammar: Grammar, specials: Mapping[str, int] | None = None) -> str:
    """The grammar as text. `specials` maps the text of each special token to its id."""
    return _Emitter(specials or {}).emit(grammar)


class _Emitter:
    def __init__(self, specials: Mapping[str, int]) -> None:
        self.specials = specials
        self.special = _any_of(tuple(specials)) if specials else None
        self.lines: dict[str, str] = {}  # body → name, for the rules and terminals made here
        self.values: dict[str, str] = {}  # value → name
        self.loose: dict[str, str] = {}  # name → body, of those

    def emit(self, grammar: Grammar) -> str:
        rules = [f"start: {self.node(grammar.start)}"]
        rules += [f"{name}: {self.node(node)}" for name, node in grammar.rules.items()]
        made = [f"{name}{body}".replace(_SELF, name) for body, name in self.lines.items()]
        loose = [f"{name}: {body}" for name, body in self.loose.items()]
        return "\n".join((*rules, *loose, *made)) + "\n"

    def made(self, body: str, *, terminal: bool) -> str:
        """A rule or terminal of our own; `body` begins behind its name, for which `_SELF` stands in it."""
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
                return f"/{_slashes(node.regex)}/"
            case JsonValue():
                return self.json(node)
            case Until():
                return self.until(node)
            case Free():
                return self.free(node)
            case Own():
                return self.made(f": %lark {{\n{node.lark}\n}}", terminal=False)

    def inner(self, node: Node) -> str:
        """A node inside a sequence: alternatives in brackets, nothing as nothing."""
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
        parts = loosened(node)
        if parts is None:
            return self.made(f": %json {json.dumps(_guided(node), ensure_ascii=False)}", terminal=False)
        known = repr(node)  # by which one that holds itself comes to an end
        if known not in self.values:
            name = self.values[known] = f"v{len(self.values)}"
            self.loose[name] = self.node(parts)
        return self.values[known]

    def record(self, node: Record) -> str:
        members = [self.made(f": {self.node(item)}", terminal=False) for item in node.items]
        separator = f"{_quoted(node.separator)} " if node.separator else ""
        if all(node.required[:-1]) or len(members) > _BITS:
            return self.in_order(members, node.required, separator)
        # A bit for each member says whether it has been written.
        places = range(len(members))
        before = [max((place for place in range(one) if node.required[place]), default=None) for one in places]
        left = [
            f"bit_clear({one})" if last is None else f"and(bit_clear({one}), bit_set({last}))"
            for one, last in zip(places, before, strict=True)
        ]
        ways = [f"{separator}{members[one]} {_SELF}::set_bit({one}) %if {left[one]}" for one in places]
        last = max((place for place in places if node.required[place]), default=None)
        more = self.made(f'::_: "" %if {"true" if last is None else f"bit_set({last})"} | {" | ".join(ways)}', terminal=False)
        if not separator:
            return f"{more}::0"
        first = [f"{members[one]} {more}::{1 << one}" for one in places if before[one] is None]
        return self.made(f": {' | '.join(first if last is not None else [*first, EMPTY])}", terminal=False)

    def in_order(self, members: Sequence[str], required: Sequence[bool], separator: str) -> str:
        """Two rules a member: where nothing stands before it, and where something does."""
        first = after = EMPTY
        for member, needed in reversed(list(zip(members, required, strict=True))):
            led = f": {member} {after}", f": {separator}{member} {after}"
            if not needed:
                led = f"{led[0]} | {first}", f"{led[1]} | {after}"
            first, after = (self.made(body, terminal=False) for body in led)
        return first

    def literal(self, text: str) -> str:
        if not self.special or not self.special.search(text):
            return _quoted(text)
        pieces = self.special.split(text)
        return " ".join(self.token(piece) if piece in self.specials else _quoted(piece) for piece in pieces if piece) or EMPTY

    def token(self, text: str) -> str:
        return f"<[{self.specials[text]}]>"

    def until(self, node: Until) -> str:
        close, barred = node.close, self.barred(node.without)
        if node.unlike:
            barred += f" & ~/[\\s\\x1c-\\x1f]*[{_escaped(node.unlike)}]{ANYTHING}/"
        found = self.special.search(close) if self.special else None
        if found is None and node.apart and not self.barred(node.without) and _is_bracketed(close, node.unlike):
            return self.pieces(node)
        if found is None:
            text = f"/{ANYTHING}{_escaped(close)}/{barred}"
            return self.made(f"[lazy]: {self.made(f': {text}', terminal=True) if barred else text}", terminal=False)
        text = self.made(f": /{ANYTHING}{_escaped(close[: found.start()])}/{barred}", terminal=True)
        return f"{text} {self.literal(close[found.start() :])}"

    def pieces(self, node: Until) -> str:
        """Text up to a closing tag, in pieces that are each any number of characters of a kind: only those have cheap masks.

        A piece begins with `<` and ends before the next; or it ends before `>`, and another one goes on from there. Where both
        together would be the closing tag they are not taken apart, for the longest match counts, and the tag is longer.
        """
        first, last = (_escaped(char) for char in (node.close[0], node.close[-1]))
        unlike = f" & ~/[\\s\\x1c-\\x1f]*[{_escaped(node.unlike)}]{ANYTHING}/" if node.unlike else ""
        pieces = (f"[^{first}]+/{unlike}", f"{first}[^{first}{last}]*/", f"{last}[^{first}]*/", f"{_escaped(node.close)}/")
        head, opened, closed, end = (self.made(f": /{piece}", terminal=True) for piece in pieces)
        return self.made(f": {head}? ({opened} {closed}?)* {end}", terminal=False)

    def free(self, node: Free) -> str:
        return self.made(f": /{ANYTHING}/{self.barred(node.stops)}", terminal=True)

    def barred(self, texts: Iterable[str]) -> str:
        """What rules these texts out. One with a special token in it needs no ruling out."""
        plain = [_escaped(text) for text in texts if not (self.special and self.special.search(text))]
        return f" & ~/{ANYTHING}({'|'.join(plain)}){ANYTHING}/" if plain else ""


def _is_bracketed(close: str, unlike: str) -> bool:
    """Whether the text has a first and a last character that it has nowhere else, like `</a>`."""
    first, last = close[:1], close[-1:]
    return close.count(first) == close.count(last) == 1 < len(close) and first not in unlike


@lru_cache(16)
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(" + "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) + ")")


def _guided(node: JsonValue) -> object:
    style = {"whitespace_flexible": False, "item_separator": node.item_separator, "key_separator": node.key_separator}
    return {**guided(node.schema), "x-guidance": style}


_quoted = json.encoder.encode_basestring  # what json.dumps does with a string that may stay Unicode, without the detours


def _escaped(text: str) -> str:
    """Text as a regular expression between slashes."""
    return "".join(_ESCAPES.get(char, char) for char in text)


def _slashes(regex: str) -> str:
    return re.sub(r"(?<!\\)/", r"\\/", regex)


_ESCAPES = {char: f"\\{char}" for char in r"\/.^$*+?()[]{}|-&~#"} | {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
