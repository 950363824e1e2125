"""JSON values of schemas that are taken at their word, for llguidance: members in any order, beside them all that the schema
leaves open, and every way to write a value that a regular expression can tell.

llguidance's own rules for a schema have its properties first and in its order. Here a rule has a parameter of 64 bits, of which
each declared property has one: so any order takes a rule for each property, and not one for each set of properties.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol, cast

from callsmith.grammar.nodes import Alt, JsonValue, Lit, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.character_sets import ALL, MAX_CODE_POINT, Ranges, complement, intersection, union
from callsmith.grammar.patterns.regex import Cat, CharSet, Or, Regex, Repeat, literal, map_sets, match_whole_text, parse, unparse
from callsmith.grammar.schema.keywords import NUMBER_KEYWORDS, STRING_KEYWORDS
from callsmith.grammar.schema.normal_form import NormalSchema, resolve
from callsmith.grammar.schema.structures import TRACKED
from callsmith.grammar.targets.json_text import (
    INTEGER,
    bound_expressions,
    bound_of,
    json_characters,
    multiples_below_one,
    number_literal,
    quoted_literal,
)
from callsmith.grammar.values import item_nodes

SELF: Final = "\0"  # in the body of a rule: its name
_ASCII: Final[Ranges] = ((0, 0x7F),)
_INTEGER: Final = r"-?(0|[1-9][0-9]*)((\.0+)?|[eE]\+?[0-9]{1,2})"
_NUMBER: Final = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]{1,3})?"
_ZEROS: Final = Pattern(r"(\.0+)?")
_BITS: Final = 64
_SURROGATES: Final[Ranges] = ((0xD800, 0xDFFF),)
_AROUND_SURROGATES: Final[Ranges] = ((0xD7FF, 0xD7FF), (0xE000, 0xE000))


class Emitter(Protocol):
    """Writes rules in Lark: `made` adds one, and `node` is the text of a node."""

    def add_rule(self, body: str, *, terminal: bool) -> str: ...
    def node(self, node: Node) -> str: ...


class AsWritten:
    """Makes the rules of one value. `rules` are those that refer to themselves: name → text."""

    def __init__(self, value: JsonValue, emitter: Emitter, rules: dict[str, str]) -> None:
        self.root = cast(NormalSchema, value.schema)
        self.style, self.emitter, self.rules = value, emitter, rules
        self._references: dict[str, Ref] = {}
        self._known: dict[int, Node] = {}
        self._anything: Ref | None = None

    def node(self, schema: NormalSchema) -> Node:
        """The node of values that fit the schema."""
        if "$ref" in schema:
            return self._recursive(schema)
        if id(schema) not in self._known:
            self._known[id(schema)] = self._share(self._made(schema))
        return self._known[id(schema)]

    def _recursive(self, schema: NormalSchema) -> Node:
        place = schema["$ref"]
        if place not in self._references:
            self._references[place] = self._reserve_rule()
            self._set(self._references[place], self._made(resolve(self.root, schema)))
        return self._references[place]

    def _made(self, schema: NormalSchema) -> Node:
        if "anyOf" in schema:
            return _one_of([self.node(way) for way in schema["anyOf"]])
        if "enum" in schema:
            return self._one_of_values(schema["enum"], plain=schema.plain_integers)
        if not schema.keys() - {"$defs"}:
            return self._any_value()
        return _one_of([self._compile_type(schema, kind) for kind in sorted(schema.distinct_types)])

    def _compile_type(self, schema: NormalSchema, kind: str) -> Node:
        match kind:
            case "string":
                return self._leaf(schema, kind, (*STRING_KEYWORDS, "allOf")) or _STRING
            case "integer" | "number":
                return self._number(schema, is_whole=kind == "integer")
            case "boolean":
                return Pattern("true|false")
            case "null":
                return Pattern("null")
            case "array":
                return Seq((Lit("["), item_nodes(schema, self.node, self.style.item_separator), Lit("]")))
            case _:
                return self._object(schema)

    def _number(self, schema: NormalSchema, *, is_whole: bool) -> Node:
        if not any(keyword in schema for keyword in NUMBER_KEYWORDS):
            return Pattern((INTEGER if schema.plain_integers else _INTEGER) if is_whole else _NUMBER)
        step = Decimal(repr(schema["multipleOf"])) if "multipleOf" in schema else None
        is_integral = is_whole or (step is not None and step % 1 == 0)
        held = self._bounded(schema, step, is_integral)
        return Seq((held, _ZEROS)) if is_integral and not (is_whole and schema.plain_integers) else held

    def _bounded(self, schema: NormalSchema, step: Decimal | None, is_integral: bool) -> Node:
        low, high = bound_of(schema, "minimum", "exclusiveMinimum"), bound_of(schema, "maximum", "exclusiveMaximum")
        expressions = bound_expressions(low, high, whole=is_integral)
        if step is not None:
            multiples = INTEGER if is_integral and 1 % step == 0 else multiples_below_one(step)
            if multiples is None:  # only llguidance finds those in one expression
                return cast(Node, self._leaf(schema, "integer" if is_integral else "number", NUMBER_KEYWORDS))
            expressions.append(multiples)
        body = " & ".join(self.emitter.node(Pattern(expression)) for expression in expressions)
        return Ref(self.emitter.add_rule(f": {body}", terminal=True))

    def _leaf(self, schema: NormalSchema, kind: str, keywords: Sequence[str]) -> Node | None:
        """A string or number with restrictions, which llguidance makes of them; None if there are none."""
        held = {keyword: schema[keyword] for keyword in keywords if keyword in schema}
        return JsonValue(NormalSchema({"type": kind, **held}, schema.path)) if held else None

    def _any_value(self) -> Node:
        if self._anything is None:
            self._anything = anything = self._reserve_rule()
            comma, colon = Lit(self.style.item_separator), Lit(self.style.key_separator)
            of_any = NormalSchema({"items": {}}, "#")
            array = item_nodes(of_any, lambda _: anything, self.style.item_separator)
            members = item_nodes(of_any, lambda _: Seq((_STRING, colon, anything)), comma.text)
            scalars = (_STRING, Pattern(_NUMBER), Pattern("true|false|null"))
            self._set(anything, Alt((*scalars, Seq((Lit("["), array, Lit("]"))), Seq((Lit("{"), members, Lit("}"))))))
        return self._anything

    # --- listed values ----------------------------------------------------------------------------------------------------

    def _one_of_values(self, values: Sequence[Any], *, plain: bool = False) -> Node:
        """One of these values; texts and numbers are one expression. `plain`: no integer is written with a fraction."""
        structures = cast(list[list[Any] | dict[str, Any]], [value for value in values if isinstance(value, list | dict)])
        scalars = [_scalar(value, plain=plain) for value in values if not isinstance(value, list | dict)]
        ways: list[Node] = [Pattern(_expression(Or(tuple(scalars))))] if scalars else []
        return _one_of([*ways, *map(self._structure, structures)])

    def _structure(self, value: list[Any] | dict[str, Any]) -> Node:
        if isinstance(value, dict):
            return self._members({name: self._one_of_values([item]) for name, item in value.items()}, len(value), [], None)
        items = [part for item in value for part in (Lit(self.style.item_separator), self._one_of_values([item]))]
        return Seq((Lit("["), *items[1:], Lit("]")))

    # --- objects ----------------------------------------------------------------------------------------------------------

    def _object(self, schema: NormalSchema) -> Node:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        names = sorted((name for name, inner in properties.items() if inner is not False), key=lambda name: name not in required)
        others = [Seq((key, Lit(self.style.key_separator), self.node(inner))) for key, inner in self._other_keys(schema)]
        if names:
            most = schema.get("maxProperties") if len(names) == len(required) else None
            room = None if most is None else most - len(names)
            return self._members({name: self.node(properties[name]) for name in names}, len(required), others, room)
        if not others:
            return Seq((Lit("{"), Lit("}")))
        counted = {"minItems": schema.get("minProperties", 0), "maxItems": schema.get("maxProperties")}
        other = self._share(_one_of(others))
        return Seq((Lit("{"), item_nodes(NormalSchema(counted, "#"), lambda _: other, self.style.item_separator), Lit("}")))

    def _other_keys(self, schema: NormalSchema) -> Iterator[tuple[Node, NormalSchema]]:
        """The sets of keys that are not declared, each with the schema of their values: one for each pattern, and the rest."""
        declared = [quoted_literal(name) for name in schema.get("properties", {})]
        excluded = [_expression(Or(tuple(declared)))] if declared else []
        patterns: Mapping[str, NormalSchema] = schema.get("patternProperties", {})
        for pattern, inner in patterns.items():
            keys = _quote(map_sets(match_whole_text(parse(pattern)), _key_characters))
            yield self._key(keys, excluded), inner
            excluded = [*excluded, keys]
        extra: NormalSchema | bool = schema.get("additionalProperties", _ANY)
        if isinstance(extra, NormalSchema):
            yield self._key(_ANY_KEY, excluded), extra

    def _key(self, regex: str, excluded: Sequence[str]) -> Node:
        conditions = "".join(f" & ~{self.emitter.node(Pattern(item))}" for item in excluded)
        return Ref(self.emitter.add_rule(f": {self.emitter.node(Pattern(regex))}{conditions}", terminal=True))

    def _members(self, declared: Mapping[str, Node], required: int, others: Sequence[Node], room: int | None) -> Node:
        """Declared members in any order, of which the first so many are required, and others between them.

        `room` is how many others there may be. Members beyond those that have a bit may be missing or come twice: each time they
        fit their schema, and that required ones may be missing is among what is listed as unenforced.
        """
        separator = self.emitter.node(Lit(self.style.item_separator))
        keys = (Seq((Pattern(_expression(quoted_literal(name))), Lit(self.style.key_separator))) for name in declared)
        members = [self._rule(Seq((key, member))) for key, member in zip(keys, declared.values(), strict=True)]
        tracked = min(len(members), TRACKED)
        needed = min(required, tracked)
        more: list[tuple[str, str, str]] = []  # a member, the new value of the parameter, and under which condition
        more += [(member, f"set_bit({at})", f" %if bit_clear({at})") for at, member in enumerate(members[:tracked])]
        more += [(member, "_", "") for member in members[tracked:]]
        if room is None:
            more += [(self._rule(other), "_", "") for other in others]
        elif room > 0:
            counter = f"[{tracked}:{_BITS}]"
            more += [(self._rule(other), f"incr({counter})", f" %if lt({counter}, {room})") for other in others]
        ways = [f"{separator} {member} {SELF}::{change}{condition}" for member, change, condition in more]
        end = f"is_ones([0:{needed}])" if needed else "true"
        rest = self.emitter.add_rule(f'::_: "" %if {end} | {" | ".join(ways)}', terminal=False)
        begun = {"_": 0, f"incr([{tracked}:{_BITS}])": 1 << tracked} | {f"set_bit({at})": 1 << at for at in range(tracked)}
        first = [f"{member} {rest}::{begun[change]}" for member, change, _ in more]
        body = " | ".join(first if needed else [*first, '""'])
        return Seq((Lit("{"), Ref(self.emitter.add_rule(f": {body}", terminal=False)), Lit("}")))

    # --- rules ------------------------------------------------------------------------------------------------------------

    def _rule(self, node: Node) -> str:
        return self.emitter.add_rule(f": {self.emitter.node(node)}", terminal=False)

    def _share(self, node: Node) -> Node:
        return node if isinstance(node, Ref | Pattern) else Ref(self._rule(node))

    def _reserve_rule(self) -> Ref:
        name = f"w{len(self.rules)}"
        self.rules[name] = ""
        return Ref(name)

    def _set(self, rule: Ref, node: Node) -> None:
        self.rules[rule.name] = self.emitter.node(node)


def _one_of(ways: Sequence[Node]) -> Node:
    return ways[0] if len(ways) == 1 else Alt(tuple(ways))


def _scalar(value: Any, *, plain: bool) -> Regex:
    match value:
        case str():
            return quoted_literal(value)
        case bool() | None:
            return literal(json.dumps(value))
        case _:
            return number_literal(value, whole=plain and isinstance(value, int))


def _key_characters(ranges: Ranges) -> Regex:
    """A character of a key: only so that the same set in another key has all its ways to be written, or none of them."""
    if ranges != ALL:
        return json_characters(ranges)
    return Or((json_characters(_ASCII), json_characters(complement(_ASCII))))


def _expression(tree: Regex) -> str:
    """The expression as text, for an engine in whose texts there are no surrogates: no class begins or ends with one."""
    return unparse(map_sets(tree, _with_surrogates))


def _with_surrogates(ranges: Ranges) -> Regex:
    reaches = ranges[-1][1] == MAX_CODE_POINT and intersection(ranges, _AROUND_SURROGATES)  # then it is written as what it is not
    return CharSet(union(ranges, _SURROGATES) if reaches else ranges)


def _quote(tree: Regex) -> str:
    return _expression(Cat((literal('"'), tree, literal('"'))))


_ANY: Final = NormalSchema({}, "#")
_STRING: Final = Pattern(_quote(Repeat(json_characters(ALL))))
_ANY_KEY: Final = _quote(Repeat(_key_characters(ALL)))
