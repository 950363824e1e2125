r"""Grammar → GBNF, the grammar language of llama.cpp; xgrammar reads the same text.

    root ::= "<tool_call>\n{\"name\": \"now\", \"arguments\": " j0 "}\n</tool_call>"

Special tokens are named by id (`<[151657]>`) where they are given. Unlike in Lark, a special token also matches any rule that its
letters match. So a text that ends at a special token may not contain its letters either, and inside JSON strings a special token
counts as its letters.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from callsmith.core.errors import UsageError
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
from callsmith.grammar.patterns.automaton import MAX_WORD_STATES, TooLarge, containing, excluding, to_automaton
from callsmith.grammar.patterns.character_sets import ALL, SPACE, Ranges, chars, class_text, union
from callsmith.grammar.patterns.regex import (
    ANYTHING,
    Anchor,
    Cat,
    CharSet,
    Or,
    Regex,
    Repeat,
    UnsupportedRegex,
    count_text,
    literal,
    match_whole_text,
    parse,
    repeats_empty,
    unparse,
)
from callsmith.grammar.productive import keep_productive
from callsmith.grammar.rules import Rules, automaton_rules
from callsmith.grammar.schema.normal_form import NormalSchema
from callsmith.grammar.targets.gbnf_words import NotInGbnf, TextsWithoutWords
from callsmith.grammar.targets.json_nodes import MemberRules, json_nodes

ROOT = "root"
_MAX_REPEAT = 500  # llama.cpp allows at most 2000 repetitions, and ignores an upper bound beyond that
_WHITE = union(SPACE, ((0x1C, 0x1F), (0x85, 0x85)))  # everything that counts as white space before a value


@dataclass(frozen=True, slots=True)
class Gbnf:
    """A grammar as GBNF text; its first rule is `root`. `unenforced` is validated after generation."""

    text: str
    unenforced: tuple[tuple[str, str], ...] = ()


def to_gbnf(grammar: Grammar, specials: Mapping[str, int] | None = None) -> Gbnf:
    """The grammar as GBNF. `specials` maps the text of each special token to its id; without them everything is plain text."""
    rules = Rules()
    rules.nodes.update(grammar.rules)
    lowering = _Lowering(rules, specials or {})
    start = lowering.node(grammar.start)
    nodes = {name: lowering.node(node) for name, node in list(rules.nodes.items())}
    nodes = {**rules.nodes, **nodes}
    text = _GbnfEmitter(specials or {}).emit(*keep_productive(start, nodes, rules.reason))
    return Gbnf(text, tuple(dict.fromkeys((*grammar.unenforced, *rules.unenforced))))


class _Lowering:
    """Rewrites the nodes that GBNF cannot express directly: JSON values, records, and text without certain words."""

    def __init__(self, rules: Rules, specials: Mapping[str, int]) -> None:
        self.rules, self.specials = rules, specials
        self._made: dict[Until | FreeText, Node] = {}
        self._values: dict[str, Node] = {}

    def node(self, node: Node) -> Node:
        match node:
            case Lit() | Ref():
                return node
            case Seq():
                return Seq(tuple(map(self.node, node.items)))
            case Alt():
                return Alt(tuple(map(self.node, node.items)))
            case Many():
                return Many(self.node(node.item), node.least, node.most)
            case Pattern():
                return self.pattern(node)
            case Record():
                return self.record(node)
            case JsonValue():
                if (known := repr(node)) not in self._values:
                    self._values[known] = json_nodes(node, self.rules)
                return self._values[known]
            case Until() | FreeText():
                if node not in self._made:
                    self._made[node] = self.text(node)
                return self._made[node]
            case Closed():
                return self.closed(node)
            case UserGrammar():
                raise UsageError("a grammar in Lark cannot be converted to GBNF", field="response_format")

    def record(self, node: Record) -> Node:
        declared = {str(at): self.node(item) for at, item in enumerate(node.items)}
        required = [name for name, needed in zip(declared, node.required, strict=True) if needed]
        return MemberRules(declared, (), Lit(node.separator), self.rules).node(NormalSchema({"required": required}, "#"))

    def pattern(self, node: Pattern) -> Node:
        try:
            tree = parse(node.regex)
            if not repeats_empty(tree):
                return node
            return automaton_rules(to_automaton(tree), self.rules)
        except (UnsupportedRegex, TooLarge) as error:
            raise NotInGbnf(f"the expression {node.regex!r} cannot be written as GBNF: {error}") from None

    def closed(self, node: Closed) -> Node:
        if node.deeper is not None:
            return Seq((TextsWithoutWords(node.deeper, node.excluded, self.rules).node(), Lit(node.close)))
        try:
            automaton = to_automaton(parse(node.regex)) - containing(node.excluded)
        except TooLarge:
            raise NotInGbnf("the expression of a text becomes too large for GBNF") from None
        if automaton.is_empty:
            raise NotInGbnf(f"no text of its grammar can be written here: each would contain {node.excluded[0]!r}")
        return Seq((automaton_rules(automaton, self.rules), Lit(node.close)))

    def text(self, node: Until | FreeText) -> Node:
        if isinstance(node, FreeText):
            return automaton_rules(excluding(node.stops), self.rules) if node.stops else Pattern(unparse(ANYTHING))
        special = next((text for text in self.specials if text in node.close), None)
        if special is not None:
            automaton = excluding((node.close, *node.excluded))
        else:
            automaton = to_automaton(Cat((ANYTHING, literal(node.close))), MAX_WORD_STATES).shortest()
            automaton = automaton & excluding(node.excluded) if node.excluded else automaton
        if node.not_starting_with:
            automaton -= to_automaton(Cat((Repeat(CharSet(_WHITE)), CharSet(chars(node.not_starting_with)), ANYTHING)))
        body = automaton_rules(automaton, self.rules)
        return body if special is None else Seq((body, Lit(node.close)))


# --- text ---------------------------------------------------------------------------------------------------------------------


class _GbnfEmitter:
    """Writes nodes as GBNF: a sequence as text, alternatives in brackets, nothing as an empty text."""

    def __init__(self, specials: Mapping[str, int]) -> None:
        self.specials = specials
        longest_first = sorted(specials, key=len, reverse=True)
        self.special = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if specials else None
        self.names: dict[str, str] = {}
        self.lines: dict[str, str] = {}  # body → name, of the rules added here
        self.trees: dict[str, str] = {}

    def emit(self, start: Node, rules: Mapping[str, Node]) -> str:
        used = {ROOT}
        for name in rules:
            plain = re.sub("[^a-zA-Z0-9-]+", "-", name)
            self.names[name] = plain if plain not in used else f"{plain}-{len(self.names)}"
            used.add(self.names[name])
        lines = [f"{ROOT} ::= {self.body(start)}"]
        lines += [f"{self.names[name]} ::= {self.body(node)}" for name, node in rules.items()]
        return "\n".join((*lines, *(f"{name} ::= {body}" for body, name in self.lines.items()))) + "\n"

    def body(self, node: Node) -> str:
        """A node as the right-hand side of a rule; an empty alternative comes last, as some parsers require."""
        if isinstance(node, Alt):
            return _either(self.node(item) for item in node.items)
        return self.node(node) or '""'

    def add_rule(self, body: str) -> str:
        return self.lines.setdefault(body, f"x{len(self.lines)}")

    def node(self, node: Node) -> str:
        match node:
            case Lit():
                return self.literal(node.text)
            case Seq():
                return " ".join(filter(None, map(self.node, node.items)))
            case Alt():
                return _group([self.node(item) for item in node.items])
            case Many():
                return self.repeat(self.node(node.item), node.least, node.most)
            case Ref():
                return self.names[node.name]
            case Pattern():
                if node.regex not in self.trees:
                    self.trees[node.regex] = self.tree(parse(node.regex))
                return self.trees[node.regex]
            case JsonValue() | Record() | Until() | FreeText() | Closed() | UserGrammar():
                raise AssertionError(f"{node} has been rewritten")

    def literal(self, text: str) -> str:
        pieces = self.special.split(text) if self.special else [text]
        return " ".join(f"<[{self.specials[piece]}]>" if piece in self.specials else _quote(piece) for piece in pieces if piece)

    def tree(self, tree: Regex) -> str:
        match tree:
            case CharSet():
                return _class(tree.ranges)
            case Cat():
                out: list[str] = []
                letters = ""
                for item in tree.items:
                    if isinstance(item, CharSet) and len(item.ranges) == 1 and item.ranges[0][0] == item.ranges[0][1]:
                        letters += chr(item.ranges[0][0])
                        continue
                    out += [_quote(letters)] if letters else []
                    out, letters = [*out, self.tree(item)], ""
                return " ".join(filter(None, (*out, _quote(letters) if letters else "")))
            case Or():
                return _group([self.tree(item) for item in tree.items])
            case Repeat():
                return self.repeat(self.tree(tree.item), tree.least, tree.most)
            case Anchor():
                return self.tree(match_whole_text(tree))
            case _:
                assert_never(tree)

    def repeat(self, item: str, least: int, most: int | None) -> str:
        """A repetition; a high count is split into steps, because the engine counts only so far."""
        if not item or most == 0:
            return ""
        if not _REPEATABLE.fullmatch(item):
            item = self.add_rule(item[1:-1] if item.startswith("(") and _closes_last(item) else item)
        if (most or least) <= _MAX_REPEAT:
            return item + count_text(least, most)
        step = self.add_rule(item + count_text(_MAX_REPEAT, _MAX_REPEAT))
        out: list[str] = []
        if least:
            steps, rest = divmod(least, _MAX_REPEAT)
            out += [self.repeat(step, steps, steps), self.repeat(item, rest, rest)]
        if most is None:
            out.append(item + "*")
        elif (optional := most - least) <= _MAX_REPEAT:
            out.append(self.repeat(item, 0, optional))
        else:
            steps, rest = divmod(optional, _MAX_REPEAT)
            out.append(self.repeat(step, 0, steps - 1))
            out += [self.repeat(item, 0, _MAX_REPEAT), self.repeat(item, 0, rest)]
        return " ".join(filter(None, out))


_REPEATABLE = re.compile(r'[a-zA-Z0-9-]+|\[(\\.|[^\]\\])*\]|"(\\.|[^"\\])*"|\.')


def _closes_last(text: str) -> bool:
    """Whether the bracket that opens at the beginning closes at the end, as in the result of `_group`."""
    depth = 0
    for match in re.finditer(r'"(\\.|[^"\\])*"|\[(\\.|[^\]\\])*\]|[()]', text):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0 and match[0] == ")":
            return match.end() == len(text)
    return False


def _either(ways: Iterable[str]) -> str:
    listed = list(dict.fromkeys(ways))
    return " | ".join((*filter(None, listed), *(['""'] if "" in listed else [])))


def _group(ways: list[str]) -> str:
    distinct = list(dict.fromkeys(ways))
    return distinct[0] if len(distinct) == 1 else f"({_either(distinct)})"


def _class(ranges: Ranges) -> str:
    if ranges == ALL:
        return "."
    text = class_text(ranges, _escape)
    return text if text.startswith("[") and len(text) > 1 else _quote(chr(ranges[0][0])) if ranges else "[]"


def _quote(text: str) -> str:
    return '"' + "".join(_escape(ord(char), inside='"\\') for char in text) + '"'


def _escape(code: int, inside: str = '\\[]-"^') -> str:
    char = chr(code)
    escape = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if escape:
        return escape
    if char == "^" and "^" in inside:
        return "\\x5E"
    if char in inside:
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\x{code:02X}" if code < 0x80 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
