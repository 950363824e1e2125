"""JSON Schema → nodes: a value in its JSON spelling, with the separators a model family writes.

Everything a grammar can say is said exactly. What it cannot (`not`, `if`, `contains`, `uniqueItems`, …) is left out and listed in
the rules' `left`; what nothing can satisfy is an `UnsupportedSchema`. Objects of up to `ANY_ORDER` properties are accepted in any
order, larger ones in the schema's; properties that are not declared may stand anywhere between them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Json
from callsmith.formats.typed import SCALARS
from callsmith.grammar.automaton import Automaton, TooLarge, compiled
from callsmith.grammar.json_objects import Members, Naming
from callsmith.grammar.json_parts import Document, Impossible, Parts, at, same
from callsmith.grammar.json_text import escaped, multiples, number_in, number_literal, quoted_literal
from callsmith.grammar.nodes import Alt, JsonValue, Many, Node, Pattern, Ref, Seq
from callsmith.grammar.regex import (
    ALL,
    ANY,
    ANYTHING,
    Cat,
    Irregular,
    Or,
    Ranges,
    Regex,
    Repeat,
    Set,
    literal,
    loops_on_nothing,
    mapped,
    parse,
    span,
    unparse,
    whole,
)
from callsmith.grammar.string_formats import FORMATS
from callsmith.grammar.values import NOTHING, Rules

_BRANCHES = 64  # more combinations of alternatives than this are not written out
_DEEP = 100
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")


def json_nodes(value: JsonValue, rules: Rules) -> Node:
    """The grammar of a value. New rules and what is not enforced go into `rules`."""
    compiler = _Compiler(value, rules)
    return compiler.node(compiler.document.root, "#")


class _Compiler:
    def __init__(self, value: JsonValue, rules: Rules) -> None:
        self.document = Document(value.schema)
        self.rules = rules
        self.comma, self.colon = value.item_separator, value.key_separator
        self._known: dict[str, Node] = {}
        self._heads: tuple[str, ...] = ()  # what is being made and has written nothing yet
        self._depth = 0

    def node(self, schema: Any, path: str) -> Node:
        """A value that satisfies the schema; equal schemas share a rule, so that recursion ends."""
        parts = Parts(self.document, schema, path)
        key = parts.key()
        if key in self._heads:
            raise Impossible(path, "$ref", "it leads back to itself")
        if key in self._known:
            return self._known[key]
        if self._depth > _DEEP:
            raise UnsupportedSchema(path, "$ref", "it never ends, or is nested too deeply")
        name = self.rules.promise("j")
        self._known[key] = Ref(name)
        self._heads, self._depth = (*self._heads, key), self._depth + 1
        try:
            made = self._made(parts)
        except Impossible:
            self._known.pop(key)
            raise
        finally:
            self._heads, self._depth = self._heads[:-1], self._depth - 1
        self.rules.nodes[name] = made
        return Ref(name)

    def inner(self, schema: Any, path: str) -> Node:
        """A value inside another: something has been written before it."""
        heads, self._heads = self._heads, ()
        try:
            return self.node(schema, path)
        finally:
            self._heads = heads

    def _made(self, parts: Parts) -> Node:
        self.rules.left += parts.unenforced()
        if parts.choices():
            return self._chosen(parts)
        if parts.values is not None:
            if not parts.values:
                raise Impossible(parts.path, "enum" if parts.said("enum") else "const", "no value of it satisfies the rest")
            return self._literals(parts.values, parts)
        types = parts.types - ({"integer"} if "number" in parts.types else set())
        if not types:
            raise Impossible(parts.path, "type", "no type is left")
        return self._one_of(partial(self._typed, parts, kind) for kind in _KINDS if kind in types)

    def _one_of(self, ways: Iterable[Callable[[], Node]]) -> Node:
        """Those alternatives that something can satisfy."""
        made: list[Node] = []
        failed: Impossible | None = None
        for way in ways:
            try:
                made.append(way())
            except Impossible as none:
                failed = failed or none
        if made:
            return made[0] if len(made) == 1 else Alt(tuple(dict.fromkeys(made)))
        raise failed or Impossible("#", "anyOf", "there is nothing to choose from")

    def _chosen(self, parts: Parts) -> Node:
        choices = parts.choices()
        for keyword, path, branches in choices:
            if keyword == "oneOf" and not self._apart(branches, path):
                self.rules.left.append((path, keyword))
        while len(choices) > 1 and _size(choices) > _BRANCHES:
            keyword, path, _ = choices.pop()
            self.rules.left.append((path, keyword))
        plain = parts.plain()
        keyword, path, branches = choices[0]

        def way(number: int, others: tuple[Any, ...]) -> Callable[[], Node]:
            return lambda: self.node({"allOf": [*plain, branches[number], *others]}, at(path, keyword, number))

        rest = list(product(*(branches for _, _, branches in choices[1:])))
        return self._one_of(way(number, others) for number in range(len(branches)) for others in rest)

    def _apart(self, branches: list[Any], path: str) -> bool:
        """Whether no value satisfies two of them: told by type, by value, or by the value of a property both require."""
        try:
            parts = [Parts(self.document, one, path) for one in branches]
        except Impossible:
            return False
        return all(_disjoint(one, other, self.document) for number, one in enumerate(parts) for other in parts[:number])

    # --- one type ---------------------------------------------------------------------------------------------------------

    def _typed(self, parts: Parts, kind: str) -> Node:
        match kind:
            case "string":
                return self._string(parts)
            case "integer" | "number":
                return self._number(parts, is_whole=kind == "integer")
            case "boolean":
                return Pattern("true|false")
            case "null":
                return Pattern("null")
            case "array":
                return self._array(parts)
            case _:
                return self._object(parts)

    def _number(self, parts: Parts, *, is_whole: bool) -> Node:
        low, high = parts.bounds()
        if low and high and (low.value > high.value or (low.value == high.value and (low.open or high.open))):
            raise Impossible(parts.path, "minimum", "it is more than the maximum")
        try:
            made = number_in(low, high, whole=is_whole)
        except TooLarge:  # bounds of hundreds of digits
            self.rules.left += [(parts.path, keyword) for keyword in _BOUNDS if parts.said(keyword)]
            made = number_in(None, None, whole=is_whole)
        for step in parts.steps():
            counted = multiples(step, whole=is_whole)
            if counted is None:
                self.rules.left.append((parts.path, "multipleOf"))
                continue
            made = counted & (made if isinstance(made, Automaton) else compiled(made))
            if made.empty:
                raise Impossible(parts.path, "multipleOf", "no number of it lies within the bounds")
        if isinstance(made, Automaton):
            if made.empty:
                raise Impossible(parts.path, "minimum", "no number lies between it and the maximum")
            return made.rules(self.rules, _class)
        return Pattern(unparse(made))

    def _literals(self, values: list[Json], parts: Parts) -> Node:
        return self._one_of(partial(self._literal, value, parts.types) for value in values)

    def _literal(self, value: Json, types: frozenset[str]) -> Node:
        """One value, as it may be written."""
        match value:
            case str():
                return Pattern(unparse(quoted_literal(value)))
            case bool() | None:
                return Pattern(json.dumps(value))
            case int() | float():
                return Pattern(unparse(number_literal(value, whole="number" not in types)))
            case list():
                items = [
                    part
                    for one in cast(list[Json], value)
                    for part in (_text(self.comma), self._literal(one, types | {"number"}))
                ][1:]
                return Seq((_text("["), *items, _text("]")))
            case dict():
                members = [
                    part
                    for key, one in cast(dict[str, Json], value).items()
                    for part in (_text(self.comma), self.key(key), self._literal(one, types | {"number"}))
                ]
                return Seq((_text("{"), *members[1:], _text("}")))
            case _:
                raise UnsupportedSchema("#", "enum", "not a JSON value")

    def key(self, name: str) -> Node:
        """A key and the colon behind it."""
        return Pattern(unparse(Cat((quoted_literal(name), literal(self.colon)))))

    # --- strings ----------------------------------------------------------------------------------------------------------

    def _string(self, parts: Parts) -> Node:
        least, most = parts.least("minLength"), parts.most("maxLength")
        if most is not None and most < least:
            raise Impossible(parts.path, "minLength", "it is more than maxLength")
        trees = self._expressions(parts)
        if not trees:
            return Seq((_text('"'), Many(self._any_char(), least, most), _text('"')))
        inner = self._matching(trees, least, most, parts.path)
        return Seq((_text('"'), inner, _text('"')))

    def _expressions(self, parts: Parts) -> list[Regex]:
        """What the string must match as a whole; what cannot be followed is reported."""
        found: dict[Regex, None] = {}
        for schema, path in parts.parts:
            if "pattern" in schema:
                try:
                    found[whole(parse(str(schema["pattern"])))] = None
                except Irregular:
                    self.rules.left.append((path, "pattern"))
            if "format" in schema:
                if schema["format"] in FORMATS:
                    found[parse(FORMATS[schema["format"]])] = None
                else:
                    self.rules.left.append((path, "format"))
        return list(found)

    def _matching(self, trees: list[Regex], least: int, most: int | None, path: str) -> Node:
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
            return self._roughly(trees, least, most, path)
        if made.empty:
            raise Impossible(path, "pattern", "no text matches it together with the rest")
        return made.rules(self.rules, self._char)

    def _roughly(self, trees: list[Regex], least: int, most: int | None, path: str) -> Node:
        """Where all of it together would be too large: the first expression, or the length alone."""
        if loops_on_nothing(trees[0]):
            self.rules.left.append((path, "pattern"))
            return Many(self._any_char(), least, most)
        if len(trees) > 1:
            self.rules.left.append((path, "pattern"))
        for keyword, matters in (("minLength", least > 0), ("maxLength", most is not None)):
            if matters and not _within(trees[0], least, most):
                self.rules.left.append((path, keyword))
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

    # --- arrays -----------------------------------------------------------------------------------------------------------

    def _array(self, parts: Parts) -> Node:
        least, most = parts.least("minItems"), parts.most("maxItems")
        if most is not None and most < least:
            raise Impossible(parts.path, "minItems", "it is more than maxItems")
        tuples = [_tuple(schema) for schema, _ in parts.parts]
        size = max((len(first) for first, _ in tuples), default=0)

        def item(number: int) -> Node:
            wanted = [first[number] if number < len(first) else rest for first, rest in tuples]
            wanted = [one for one in wanted if one is not True]
            steps = ("prefixItems", number) if number < size else ("items",)
            return self.inner(wanted[0] if len(wanted) == 1 else {"allOf": wanted}, at(parts.path, *steps))

        tail: Node | None = None
        try:
            tail = item(size) if most is None or most > size else None
        except Impossible:
            if least > size:
                raise
        node = self._tail(tail, size, least, most)
        for number in reversed(range(size if most is None else min(size, most))):
            try:
                one = item(number)
            except Impossible:
                if least > number:
                    raise
                node = NOTHING
                continue
            led = Seq((_text(self.comma), one, node)) if number else Seq((one, node))
            node = led if least > number else Alt((led, NOTHING))
            node = self.rules.name(node, "a")
        return Seq((_text("["), node, _text("]")))

    def _tail(self, item: Node | None, size: int, least: int, most: int | None) -> Node:
        """What follows the first `size` items."""
        if item is None:
            return NOTHING
        more = Seq((_text(self.comma), item))
        if size:
            return Many(more, max(0, least - size), None if most is None else most - size)
        some = Seq((item, Many(more, max(0, least - 1), None if most is None else most - 1)))
        return some if least else Many(some, 0, 1)

    # --- objects ----------------------------------------------------------------------------------------------------------

    def _object(self, parts: Parts) -> Node:
        naming = Naming(parts, self.rules.left)
        required = dict.fromkeys(str(name) for names in parts.said("required") for name in cast(list[Any], names))
        members: dict[str, Node] = {}
        for name in dict.fromkeys((*naming.declared(), *required)):
            schema, path = naming.value(name)
            try:
                members[name] = Seq((self.key(name), self.inner(schema, path)))
            except Impossible as none:
                if name in required:
                    raise Impossible(none.path, none.keyword, f"{none.why}, but {name!r} is required") from None
                # What contradicts itself is a mistake; what others rule out (or `false`) is just never there.
                if none.keyword != "false" and "allOf" not in schema:
                    raise
        others: list[Node] = []
        for keys, schema, path in naming.others(frozenset((*naming.declared(), *required))):
            try:
                value = self.inner(schema, path)
            except Impossible:
                continue
            others.append(Seq((_text('"'), keys.rules(self.rules, self._char), Pattern(f'"{_regex(self.colon)}'), value)))
        counts = (parts.least("minProperties"), parts.most("maxProperties"))
        body = Members(members, required.keys(), others, _text(self.comma), self.rules).node(counts, parts.path)
        return Seq((_text("{"), body, _text("}")))


def _size(choices: list[tuple[str, str, list[Any]]]) -> int:
    size = 1
    for _, _, branches in choices:
        size *= max(1, len(branches))
    return size


def _text(text: str) -> Node:
    """A literal that is letters whatever the tokenizer holds to be special."""
    return Pattern(_regex(text))


def _regex(text: str) -> str:
    return unparse(literal(text))


def _class(ranges: Ranges) -> Node:
    return Pattern(unparse(Set(ranges)))


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


def _tuple(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The first items one by one, and all others; as either draft says it."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return cast(list[Any], items), schema.get("additionalItems", True)
    return cast(list[Any], schema.get("prefixItems", [])), items


def _disjoint(one: Parts, other: Parts, document: Document) -> bool:
    if not one.choices() and not other.choices():
        if not one.types & other.types:
            return True
        kinds = [{SCALARS[type(cast(object, value))] for value in parts.values or ()} for parts in (one, other)]
        if one.values is not None and other.values is not None:
            return not any(same(value, another) for value in one.values for another in other.values)
        for fixed, free in ((kinds[0], other), (kinds[1], one)):
            if fixed and not fixed & (free.types | ({"integer"} if "number" in free.types else set())):
                return True
    required = [{name for names in parts.said("required") for name in names} for parts in (one, other)]
    for name in required[0] & required[1]:
        told = [
            Parts(document, {"allOf": [held[name] for held in parts.said("properties") if name in held]}, parts.path)
            for parts in (one, other)
        ]
        if all(parts.said("const") or parts.said("enum") or parts.said("type") for parts in told) and _disjoint(
            told[0], told[1], document
        ):
            return True
    return False
