"""Simple schema → nodes: a value in its JSON spelling, with the separators a model family writes.

What the simple form says is said exactly; what would make a grammar too large is left out and listed in the rules' `left`.
Objects of up to `ANY_ORDER` properties are accepted in any order, larger ones in the schema's; properties that are not declared
may stand anywhere between them.
"""

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Json
from callsmith.grammar.nodes import Alt, JsonValue, Many, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.automaton import STATES, Automaton, TooLarge, compiled
from callsmith.grammar.patterns.character_sets import ALL, Ranges
from callsmith.grammar.patterns.regex import (
    ANY,
    ANYTHING,
    Cat,
    Irregular,
    Or,
    Regex,
    Repeat,
    literal,
    loops_on_nothing,
    mapped,
    parse,
    span,
    unparse,
    whole,
)
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.rules import Rules
from callsmith.grammar.schema.keywords import OF_NUMBERS
from callsmith.grammar.schema.normal_form import Simple, resolved
from callsmith.grammar.schema.normalize import simplified, unenforced
from callsmith.grammar.targets.automaton_rules import automaton_rules
from callsmith.grammar.targets.json_objects import Members, other_keys
from callsmith.grammar.targets.json_text import Bound, escaped, multiples, number_in, number_literal, quoted_literal
from callsmith.grammar.values import items

_KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")


def json_nodes(value: JsonValue, rules: Rules) -> Node:
    """The grammar of a value. New rules go into `rules`, and what is not enforced, unless the schema comes simplified."""
    simple = value.schema
    if not isinstance(simple, Simple):
        simple = simplified(simple, habits=False)
        rules.left += unenforced(simple, simple)
    try:
        return _Compiler(simple, value, rules).node(simple)
    except RecursionError:
        raise UnsupportedSchema("#", "", "it is nested too deeply") from None


class _Compiler:
    def __init__(self, root: Simple, value: JsonValue, rules: Rules) -> None:
        self.root, self.rules = root, rules
        self.comma, self.colon = value.item_separator, value.key_separator
        self._known: dict[str, Node] = {}

    def node(self, simple: Simple) -> Node:
        """A value that satisfies the schema; equal schemas share a rule, so that recursion ends."""
        key = json.dumps({keyword: one for keyword, one in simple.items() if keyword != "$defs"})
        if key not in self._known:
            name = self.rules.promise("j")
            self._known[key] = Ref(name)
            self.rules.nodes[name] = self._made(simple)
        return self._known[key]

    def _made(self, simple: Simple) -> Node:
        ways = list(self._ways(simple, set()))
        if len(ways) != 1 or ways[0] is not simple:
            return _one_of(map(self.node, ways))
        if "enum" in simple:
            return _one_of(map(self._literal, simple["enum"]))
        types = simple.types - ({"integer"} if "number" in simple.types else set())
        return _one_of(self._typed(simple, kind) for kind in _KINDS if kind in types)

    def _ways(self, simple: Simple, seen: set[str]) -> Iterator[Simple]:
        """The alternatives, references followed, each once: none of them may begin with itself."""
        if "$ref" in simple:
            if simple["$ref"] not in seen:
                seen.add(simple["$ref"])
                yield from self._ways(resolved(self.root, simple), seen)
        elif "anyOf" in simple:
            for way in simple["anyOf"]:
                yield from self._ways(way, seen)
        else:
            yield simple

    def _typed(self, simple: Simple, kind: str) -> Node:
        match kind:
            case "string":
                return self._string(simple)
            case "integer" | "number":
                return self._number(simple, is_whole=kind == "integer")
            case "boolean":
                return Pattern("true|false")
            case "null":
                return Pattern("null")
            case "array":
                return Seq((_text("["), items(simple, self.node, self.comma), _text("]")))
            case _:
                return self._object(simple)

    def _number(self, simple: Simple, *, is_whole: bool) -> Node:
        low, high = _bound(simple, "minimum", "exclusiveMinimum"), _bound(simple, "maximum", "exclusiveMaximum")
        try:
            made = number_in(low, high, whole=is_whole)
        except TooLarge:  # bounds of hundreds of digits
            self.rules.unenforced(simple, OF_NUMBERS)
            made = number_in(None, None, whole=is_whole)
        if "multipleOf" in simple:
            counted = multiples(Decimal(repr(simple["multipleOf"])), whole=is_whole)
            if counted is None:
                self.rules.unenforced(simple, ("multipleOf",))
            else:
                made = counted & (made if isinstance(made, Automaton) else compiled(made))
        if not isinstance(made, Automaton):
            return Pattern(unparse(made))
        if made.empty:
            return self.rules.never(simple.path, "minimum", "no number lies between it and the maximum")
        return automaton_rules(made, self.rules)

    def _literal(self, value: Json) -> Node:
        """One value, as it may be written: an integer only as one."""
        match value:
            case str():
                return Pattern(unparse(quoted_literal(value)))
            case bool() | None:
                return Pattern(json.dumps(value))
            case int() | float():
                return Pattern(unparse(number_literal(value, whole=isinstance(value, int))))
            case list():
                listed = [part for one in cast(list[Json], value) for part in (_text(self.comma), self._literal(one))]
                return Seq((_text("["), *listed[1:], _text("]")))
            case dict():
                members = [
                    part
                    for key, one in cast(dict[str, Json], value).items()
                    for part in (_text(self.comma), self._key(key), self._literal(one))
                ]
                return Seq((_text("{"), *members[1:], _text("}")))
            case _:
                raise UnsupportedSchema("#", "enum", "not a JSON value")

    def _key(self, name: str) -> Node:
        """A key and the colon behind it."""
        return Pattern(unparse(Cat((quoted_literal(name), literal(self.colon)))))

    # --- strings ----------------------------------------------------------------------------------------------------------

    def _string(self, simple: Simple) -> Node:
        least, most = simple.get("minLength", 0), simple.get("maxLength")
        trees = self._expressions(simple)
        inner = self._matching(trees, least, most, simple) if trees else Many(self._any_char(), least, most)
        return Seq((_text('"'), inner, _text('"')))

    def _expressions(self, simple: Simple) -> list[Regex]:
        """What the string must match as a whole; what cannot be followed is reported."""
        found: dict[Regex, None] = {}
        for one in (simple, *simple.get("allOf", ())):
            if "pattern" in one:
                try:
                    found[whole(parse(one["pattern"]))] = None
                except Irregular:
                    self.rules.unenforced(simple, ("pattern",))
        if "format" in simple:
            found[parse(FORMATS[simple["format"]])] = None
        return list(found)

    def _matching(self, trees: list[Regex], least: int, most: int | None, simple: Simple) -> Node:
        """Text that matches all of them and is long enough and short enough."""
        if len(trees) == 1 and _within(trees[0], least, most) and not _wanders(trees[0]):
            return Pattern(unparse(mapped(trees[0], escaped)))
        try:
            made = compiled(trees[0])
            for tree in trees[1:]:
                made &= compiled(tree)
            if not all(_within(tree, least, most) for tree in trees):
                made &= compiled(Repeat(ANY, least, most))
        except TooLarge:
            made = None
        if made is None or len(made.edges) > STATES:
            return self._roughly(trees, least, most, simple)
        if made.empty:
            return self.rules.never(simple.path, "pattern", "no text matches it together with the rest")
        return automaton_rules(made, self.rules, self._char)

    def _roughly(self, trees: list[Regex], least: int, most: int | None, simple: Simple) -> Node:
        """Where all of it together would be too large: the first expression, or the length alone."""
        if loops_on_nothing(trees[0]):
            self.rules.unenforced(simple, ("pattern",))
            return Many(self._any_char(), least, most)
        if len(trees) > 1:
            self.rules.unenforced(simple, ("pattern",))
        if not _within(trees[0], least, most):
            self.rules.unenforced(simple, ("minLength", "maxLength"))
        return Pattern(unparse(mapped(trees[0], escaped)))

    def _char(self, ranges: Ranges) -> Node:
        """A character as it stands in a string; all ways to escape one are a rule that others share."""
        tree = escaped(ranges)
        if not isinstance(tree, Or):
            return Pattern(unparse(tree))
        raw, behind = tree.items
        return Alt((Pattern(unparse(raw)), self.rules.name(Pattern(unparse(behind)), "escape")))

    def _any_char(self) -> Node:
        return self.rules.name(self._char(ALL), "char")

    # --- objects ----------------------------------------------------------------------------------------------------------

    def _object(self, simple: Simple) -> Node:
        members = {
            name: Seq((self._key(name), self.node(one))) for name, one in simple.get("properties", {}).items() if one is not False
        }
        others = [
            Seq((_text('"'), automaton_rules(keys, self.rules, self._char), _text(f'"{self.colon}'), self.node(one)))
            for keys, one in other_keys(simple, self.rules)
        ]
        return Seq((_text("{"), Members(members, others, _text(self.comma), self.rules).node(simple), _text("}")))


def _one_of(ways: Iterable[Node]) -> Node:
    distinct = tuple(dict.fromkeys(ways))
    return distinct[0] if len(distinct) == 1 else Alt(distinct)


def _bound(simple: Simple, plain: str, strict: str) -> Bound | None:
    value: Any = simple.get(plain, simple.get(strict))
    return None if value is None else Bound(Decimal(repr(value or 0)), open=strict in simple)  # -0.0 is 0


def _text(text: str) -> Node:
    """A literal that is letters whatever the tokenizer holds to be special."""
    return Pattern(unparse(literal(text)))


def _within(tree: Regex, least: int, most: int | None) -> bool:
    """Whether whatever matches is long enough and short enough anyway."""
    low, high = span(tree)
    return low >= least and (most is None or (high is not None and high <= most))


def _wanders(tree: Regex) -> bool:
    """Whether an engine that goes all ways at once would lose itself in it."""
    if loops_on_nothing(tree):
        return True
    branches = tree.items if isinstance(tree, Or) else (tree,)
    return any(isinstance(one, Cat) and one.items[:1] == (ANYTHING,) for one in branches)
