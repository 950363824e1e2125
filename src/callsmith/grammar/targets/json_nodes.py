"""A JSON value as plain grammar nodes, for engines that know no JSON Schema: from its normal form, with given separators.

All keywords of the normal form are enforced, except those that would make the grammar too large: they are listed in the rules'
`unenforced`. The properties of an object may come in any order if there are at most `ANY_ORDER` of them, otherwise in the order
of the schema; properties that are not declared may come anywhere between them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Json
from callsmith.grammar.nodes import Alt, JsonValue, Many, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.automaton import MAX_STATES, Automaton, TooLarge, to_automaton
from callsmith.grammar.patterns.character_sets import ALL, Ranges
from callsmith.grammar.patterns.regex import (
    ANY,
    ANYTHING,
    Cat,
    Or,
    Regex,
    Repeat,
    UnsupportedRegex,
    length_range,
    literal,
    map_sets,
    match_whole_text,
    parse,
    repeats_empty,
    unparse,
)
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.rules import Rules, automaton_rules
from callsmith.grammar.schema.keywords import NUMBER_KEYWORDS
from callsmith.grammar.schema.normal_form import NormalSchema, collect_unenforced, resolve
from callsmith.grammar.schema.normalize import normalize
from callsmith.grammar.targets.json_text import (
    bound_of,
    json_characters,
    multiples_of,
    number_in,
    number_literal,
    quoted_literal,
)
from callsmith.grammar.values import NOTHING, item_nodes

ANY_ORDER = 4  # up to so many properties may come in any order: with each of them the number of rules doubles
_MAX_STATES = 400
_MAX_NAME_STATES = 20_000  # for all listed names together, about one for each letter
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def json_nodes(value: JsonValue, rules: Rules) -> Node:
    """The nodes of a value. Rules are added to `rules`, and unenforced keywords too, unless the schema is in normal form."""
    schema = value.schema
    if not isinstance(schema, NormalSchema):
        schema = normalize(schema, with_implied=False)
        rules.unenforced += collect_unenforced(schema, schema)
    try:
        return _Compiler(schema, value, rules).node(schema)
    except RecursionError:
        raise UnsupportedSchema("#", "", "it is nested too deeply") from None


class _Compiler:
    def __init__(self, root: NormalSchema, value: JsonValue, rules: Rules) -> None:
        self.root, self.rules = root, rules
        self.comma, self.colon = value.item_separator, value.key_separator
        self._known: dict[str, Node] = {}

    def node(self, schema: NormalSchema) -> Node:
        """The rule of values that fit the schema; equal schemas share a rule, so that recursion ends."""
        key = json.dumps({keyword: value for keyword, value in schema.items() if keyword != "$defs"})
        if key not in self._known:
            name = self.rules.reserve("j")
            self._known[key] = Ref(name)
            self.rules.nodes[name] = self._made(schema)
        return self._known[key]

    def _made(self, schema: NormalSchema) -> Node:
        ways = list(self._ways(schema, set()))
        if len(ways) != 1 or ways[0] is not schema:
            return _one_of(map(self.node, ways))
        if "enum" in schema:
            return _one_of(map(self._literal, schema["enum"]))
        return _one_of(self._compile_type(schema, kind) for kind in _TYPES if kind in schema.distinct_types)

    def _ways(self, schema: NormalSchema, seen: set[str]) -> Iterator[NormalSchema]:
        """The alternatives of the schema, references followed, each once: a rule may not begin with itself."""
        if "$ref" in schema:
            if schema["$ref"] not in seen:
                seen.add(schema["$ref"])
                yield from self._ways(resolve(self.root, schema), seen)
        elif "anyOf" in schema:
            for way in schema["anyOf"]:
                yield from self._ways(way, seen)
        else:
            yield schema

    def _compile_type(self, schema: NormalSchema, kind: str) -> Node:
        match kind:
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(schema, is_whole=kind == "integer")
            case "boolean":
                return Pattern("true|false")
            case "null":
                return Pattern("null")
            case "array":
                return Seq((_text("["), item_nodes(schema, self.node, self.comma), _text("]")))
            case _:
                return self._object(schema)

    def _number(self, schema: NormalSchema, *, is_whole: bool) -> Node:
        low, high = bound_of(schema, "minimum", "exclusiveMinimum"), bound_of(schema, "maximum", "exclusiveMaximum")
        try:
            pattern = number_in(low, high, whole=is_whole)
        except TooLarge:  # bounds of hundreds of digits
            self.rules.add_unenforced(schema, NUMBER_KEYWORDS)
            pattern = number_in(None, None, whole=is_whole)
        if "multipleOf" in schema:
            counted = multiples_of(Decimal(repr(schema["multipleOf"])), whole=is_whole)
            if counted is None:
                self.rules.add_unenforced(schema, ("multipleOf",))
            else:
                pattern = counted & (pattern if isinstance(pattern, Automaton) else to_automaton(pattern))
        if not isinstance(pattern, Automaton):
            return Pattern(unparse(pattern))
        if pattern.is_empty:
            return self.rules.unsatisfiable(schema.path, "minimum", "no number lies between it and the maximum")
        return automaton_rules(pattern, self.rules)

    def _literal(self, value: Json) -> Node:
        """One value in every way it may be written; an integer only without a fraction."""
        match value:
            case str():
                return Pattern(unparse(quoted_literal(value)))
            case bool() | None:
                return Pattern(json.dumps(value))
            case int() | float():
                return Pattern(unparse(number_literal(value, whole=isinstance(value, int))))
            case list():
                listed = [part for item in cast(list[Json], value) for part in (_text(self.comma), self._literal(item))]
                return Seq((_text("["), *listed[1:], _text("]")))
            case dict():
                members = [
                    part
                    for key, member in cast(dict[str, Json], value).items()
                    for part in (_text(self.comma), self._key(key), self._literal(member))
                ]
                return Seq((_text("{"), *members[1:], _text("}")))
            case _:
                raise UnsupportedSchema("#", "enum", "not a JSON value")

    def _key(self, name: str) -> Node:
        """A key and the separator after it."""
        return Pattern(unparse(Cat((quoted_literal(name), literal(self.colon)))))

    # --- strings ----------------------------------------------------------------------------------------------------------

    def _string(self, schema: NormalSchema) -> Node:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        trees = self._expressions(schema)
        inner = self._matching(trees, least, most, schema) if trees else Many(self._any_char(), least, most)
        return Seq((_text('"'), inner, _text('"')))

    def _expressions(self, schema: NormalSchema) -> list[Regex]:
        """The expressions that the whole string must match; those that are not supported are listed as unenforced."""
        trees: dict[Regex, None] = {}
        for item in (schema, *schema.get("allOf", ())):
            if "pattern" in item:
                try:
                    trees[match_whole_text(parse(item["pattern"]))] = None
                except UnsupportedRegex:
                    self.rules.add_unenforced(schema, ("pattern",))
        if "format" in schema:
            trees[parse(FORMATS[schema["format"]])] = None
        return list(trees)

    def _matching(self, trees: list[Regex], least: int, most: int | None, schema: NormalSchema) -> Node:
        """Text that matches all of them and has an allowed length."""
        if len(trees) == 1 and _within(trees[0], least, most) and not _is_slow(trees[0]):
            return Pattern(unparse(map_sets(trees[0], json_characters)))
        try:
            automaton = to_automaton(trees[0])
            for tree in trees[1:]:
                automaton &= to_automaton(tree)
            if not all(_within(tree, least, most) for tree in trees):
                automaton &= to_automaton(Repeat(ANY, least, most))
        except TooLarge:
            automaton = None
        if automaton is None or len(automaton.edges) > MAX_STATES:
            return self._approximate(trees, least, most, schema)
        if automaton.is_empty:
            return self.rules.unsatisfiable(schema.path, "pattern", "no text matches it together with the rest")
        return automaton_rules(automaton, self.rules, self._char)

    def _approximate(self, trees: list[Regex], least: int, most: int | None, schema: NormalSchema) -> Node:
        """Where a grammar of all of them would be too large: the first expression, or the length alone."""
        if repeats_empty(trees[0]):
            self.rules.add_unenforced(schema, ("pattern",))
            return Many(self._any_char(), least, most)
        if len(trees) > 1:
            self.rules.add_unenforced(schema, ("pattern",))
        if not _within(trees[0], least, most):
            self.rules.add_unenforced(schema, ("minLength", "maxLength"))
        return Pattern(unparse(map_sets(trees[0], json_characters)))

    def _char(self, ranges: Ranges) -> Node:
        """A character as it may be written in a string; its escapes are a shared rule."""
        tree = json_characters(ranges)
        if not isinstance(tree, Or):
            return Pattern(unparse(tree))
        raw, behind = tree.items
        return Alt((Pattern(unparse(raw)), self.rules.name(Pattern(unparse(behind)), "escape")))

    def _any_char(self) -> Node:
        return self.rules.name(self._char(ALL), "char")

    # --- objects ----------------------------------------------------------------------------------------------------------

    def _object(self, schema: NormalSchema) -> Node:
        members = {
            name: Seq((self._key(name), self.node(inner)))
            for name, inner in schema.get("properties", {}).items()
            if inner is not False
        }
        others = [
            Seq((_text('"'), automaton_rules(keys, self.rules, self._char), _text(f'"{self.colon}'), self.node(inner)))
            for keys, inner in other_keys(schema, self.rules)
        ]
        return Seq((_text("{"), MemberRules(members, others, _text(self.comma), self.rules).node(schema), _text("}")))


def _one_of(ways: Iterable[Node]) -> Node:
    distinct = tuple(dict.fromkeys(ways))
    return distinct[0] if len(distinct) == 1 else Alt(distinct)


def _text(text: str) -> Node:
    """A literal that is never a special token: its letters are meant."""
    return Pattern(unparse(literal(text)))


def _within(tree: Regex, least: int, most: int | None) -> bool:
    """Whether everything that matches has an allowed length."""
    low, high = length_range(tree)
    return low >= least and (most is None or (high is not None and high <= most))


def _is_slow(tree: Regex) -> bool:
    """Whether an engine that follows all alternatives at once would be slow with it."""
    if repeats_empty(tree):
        return True
    branches = tree.items if isinstance(tree, Or) else (tree,)
    return any(isinstance(branch, Cat) and branch.items[:1] == (ANYTHING,) for branch in branches)


def other_keys(schema: NormalSchema, rules: Rules) -> Iterator[tuple[Automaton, NormalSchema]]:
    """Yield the sets of keys that are not listed, each with the schema of their values: one for each pattern, and the rest."""
    extra: NormalSchema | bool = schema.get("additionalProperties", NormalSchema({}, schema.path))
    if extra is False and "patternProperties" not in schema:
        return
    try:
        rest = to_automaton(ANYTHING) - to_automaton(
            Or(tuple(literal(name) for name in schema.get("properties", {}))), _MAX_NAME_STATES
        )
    except TooLarge:
        raise UnsupportedSchema(schema.path, "properties", "there are too many to tell other names from them") from None
    for pattern, inner in schema.get("patternProperties", {}).items():
        try:
            matching = to_automaton(match_whole_text(parse(pattern)), 300)
            keys, rest = rest & matching, rest - matching
        except (UnsupportedRegex, TooLarge):  # any name may be one of them
            rules.add_unenforced(schema, ("patternProperties", "additionalProperties"))
            extra = NormalSchema({}, schema.path)
            continue
        if not keys.is_empty:
            yield keys, inner
    if isinstance(extra, NormalSchema) and not rest.is_empty:
        yield rest, extra


# Which declared members may still come (those from an index on, or any of a set), and how many members there are already.
State: TypeAlias = tuple[int | frozenset[str], int]


class MemberRules:
    """Makes the rules of an object's members: two for each state, and deterministic."""

    def __init__(self, declared: Mapping[str, Node], others: Sequence[Node], comma: Node, rules: Rules) -> None:
        self.declared, self.names = declared, list(declared)
        self.others = others
        self.comma, self.rules = comma, rules
        self.required: frozenset[str] = frozenset()
        self.least: int = 0
        self.most: int | None = None
        self._made: dict[tuple[Any, ...], Ref] = {}
        self._todo: list[tuple[Any, ...]] = []

    def node(self, schema: NormalSchema) -> Node:
        """The members, as many as the schema allows."""
        self.required = frozenset(schema.get("required", ()))
        self.least, self.most = schema.get("minProperties", 0), schema.get("maxProperties")
        first = frozenset(self.names) if len(self.names) <= ANY_ORDER else 0
        places = len(self.names) + 1 if isinstance(first, int) else 2 ** len(first)
        if places * (self._cap() + 1) > _MAX_STATES:
            self.rules.add_unenforced(schema, ("minProperties", "maxProperties"))
            self.least, self.most = 0, None
        start: State = (first, 0)
        ways = self._ways(start)
        while self._todo:
            make, *arguments = key = self._todo.pop()
            self.rules.nodes[self._made[key].name] = make(*arguments)
        return Alt((*ways, NOTHING)) if self._may_end(start) else Alt(tuple(ways))

    def _cap(self) -> int:
        """The number up to which members are counted."""
        return max(self.least, 0 if self.most is None else self.most)

    def _left(self, place: int | frozenset[str]) -> list[str]:
        return self.names[place:] if isinstance(place, int) else [name for name in self.names if name in place]

    def _may_end(self, state: State) -> bool:
        place, count = state
        return count >= self.least and not any(name in self.required for name in self._left(place))

    def _later(self, *key: Any) -> Ref:
        """A rule whose node is made later, from a list of work: recursion would be too deep for objects with many members."""
        if key not in self._made:
            self._made[key] = Ref(self.rules.reserve("o"))
            self._todo.append(key)
        return self._made[key]

    def _after(self, state: State) -> Node:
        """A comma and another member, or the end."""
        ways = self._ways(state)
        more: list[Node] = [Seq((self.comma, ways[0] if len(ways) == 1 else Alt(tuple(ways))))] if ways else []
        return Alt((*more, NOTHING)) if self._may_end(state) else Alt(tuple(more))

    def _ways(self, state: State) -> list[Node]:
        """The members that may come next, each with what follows it."""
        place, count = state
        if self.most is not None and count >= self.most:
            return []
        counted = min(count + 1, self._cap())
        # An undeclared member that leaves no room for a required one leads to a state that cannot end, and that is pruned.
        ways: list[Node] = [Seq((other, self._later(self._after, (place, counted)))) for other in self.others]
        if isinstance(place, frozenset):
            ways += [
                Seq((self.declared[name], self._later(self._after, (place - {name}, counted)))) for name in self._left(place)
            ]
        elif place < len(self.names):
            ways.append(self._later(self._from, place, counted))
        return ways

    def _from(self, place: int, counted: int) -> Node:
        """The member at this index, or, if it is optional, one after it."""
        with_member = Seq((self.declared[self.names[place]], self._later(self._after, (place + 1, counted))))
        if self.names[place] in self.required or place + 1 == len(self.names):
            return with_member
        return Alt((with_member, self._later(self._from, place + 1, counted)))
