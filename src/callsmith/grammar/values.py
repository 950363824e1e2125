"""The grammar of one value in a family's spelling, from its JSON Schema."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Json, Schema
from callsmith.formats.layout import JSON, Nested, Notation, Raw, Spelling
from callsmith.formats.typed import ANYTHING, resolve, types_of
from callsmith.formats.write import spell
from callsmith.grammar.nodes import Alt, JsonValue, Lit, Many, Node, Pattern, Ref, Seq, Until
from callsmith.grammar.schema import Left, json_schema

INTEGER = Pattern(r"-?(0|[1-9][0-9]{0,15})")
NUMBER = Pattern(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?")
PYTHON_STRING = Pattern(r"""'([^'\\\n\r]|\\[nrt'"\\])*'""")
BARE_KEY = Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
NOTHING = Seq(())

# What our own rules do enforce; anything else that a schema says of such a value is reported.
ENFORCED = frozenset(
    {
        "type", "enum", "const", "properties", "required", "items", "anyOf", "oneOf", "$ref", "$defs", "definitions", "minItems",
        "maxItems", "additionalProperties", "nullable",
    }
)  # fmt: skip
SAID_ONLY = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$id",
    }
)


class Rules:
    """The rules of a grammar being built; equal nodes get one rule."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.left: Left = []

    def name(self, node: Node, stem: str = "r") -> Ref:
        """The node as a rule of its own."""
        for name, known in self.nodes.items():
            if known == node:
                return Ref(name)
        name = f"{stem}{len(self.nodes)}"
        self.nodes[name] = node
        return Ref(name)

    def promise(self, stem: str = "r") -> str:
        """A name whose node comes later: for what refers to itself."""
        name = f"{stem}{len(self.nodes)}"
        self.nodes[name] = NOTHING
        return name

    def unenforced(self, path: str, schema: Schema, known: frozenset[str] = ENFORCED) -> None:
        """List what a schema says beyond what is known to be enforced."""
        self.left += [(path, keyword) for keyword in schema if keyword not in known | SAID_ONLY and not keyword.startswith("x-")]


class Place(NamedTuple):
    """A schema, where it stands, and the whole it belongs to."""

    root: Schema
    schema: Schema
    path: str = "#"

    def at(self, schema: Any, *steps: str) -> "Place":
        """A schema within this one."""
        return Place(self.root, schema if isinstance(schema, dict) else {}, "/".join((self.path, *steps)))

    def resolved(self) -> "Place":
        """The same, with a reference followed."""
        return Place(self.root, resolve(self.root, self.schema), self.path)


class Values:
    """Makes nodes for values of one spelling."""

    def __init__(self, spelling: Spelling, rules: Rules) -> None:
        self.spelling = spelling
        self.rules = rules
        self._known: dict[str, str] = {}  # $ref → rule, so that recursion ends

    def whole(self, place: Place) -> Node:
        """The arguments as one object."""
        if isinstance(self.spelling, Notation) and self.spelling != JSON:
            return self._notation(self.spelling, place)
        return self._json(place)

    def within(self, place: Place, close: str, flag: str | None = None) -> Node:
        """A value and the literal that closes it. `flag` is what the value's type flag means, if it carries one."""
        match self.spelling:
            case Notation() as spelling:
                return Seq((self._notation(spelling, place) if spelling != JSON else self._json(place), Lit(close)))
            case Raw():
                return self._raw(place, close, flag)
            case Nested() as spelling:
                return self._nested(spelling, place, close)

    def _json(self, place: Place) -> Node:
        return JsonValue(json_schema(place.root, place.schema, self.rules.left, place.path))

    # --- plain text -------------------------------------------------------------------------------------------------------

    def _raw(self, place: Place, close: str, flag: str | None) -> Node:
        types = types_of(place.root, place.schema)
        if flag == "json":
            types = types - {"string"} or types
        elif flag:
            types = types & {flag} or frozenset({flag})
        found = place.resolved().schema
        fixed = self._fixed(found)
        if fixed is not None:
            return Seq((Alt(tuple(Lit(text) for text in fixed)), Lit(close)))
        ways: list[Node] = []
        if "string" in types:
            self.rules.unenforced(
                place.path, {key: found[key] for key in ("pattern", "minLength", "maxLength", "format") if key in found}
            )
            core = close.strip()
            after = close[close.index(core) + len(core) :]
            ways.append(Seq((Until(core), Lit(after))) if after else Until(core))
        if rest := types - {"string"}:
            narrowed = Place(place.root, {**found, "type": sorted(rest)}, place.path)
            ways.append(Seq((self._json(narrowed), Lit(close))))
        return Alt(tuple(ways)) if len(ways) > 1 else ways[0]

    def _fixed(self, schema: Schema) -> list[str] | None:
        """The texts of an enum or const."""
        if "enum" in schema or "const" in schema:
            values: Sequence[Json] = schema.get("enum", [schema.get("const")])
            return [spell(self.spelling, value) for value in values]
        return None

    # --- nested elements --------------------------------------------------------------------------------------------------

    def _nested(self, spelling: Nested, place: Place, close: str) -> Node:
        if "$ref" in place.schema:
            return self._by_reference(place, close, lambda found: self._nested(spelling, found, close))
        types = types_of(place.root, place.schema)
        tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
        if "properties" in place.schema and "object" in types:
            self.rules.unenforced(place.path, place.schema)

            def member(key: str) -> Node:
                inner = place.at(place.schema["properties"][key], "properties", key)
                return Seq((Lit(f"{tag}{key}>"), self._nested(spelling, inner, f"{end}{key}>")))

            return Seq((members(place.schema, member, "", self.rules), Lit(close)))
        if "array" in types and "items" in place.schema:
            item = self._nested(spelling, place.at(place.schema["items"], "items"), f"{end}{spelling.item}>")
            least, most = place.schema.get("minItems", 0), place.schema.get("maxItems")
            return Seq((Many(Seq((Lit(f"{tag}{spelling.item}>"), item)), least, most), Lit(close)))
        return self._nested_leaf(place, types, close)

    def _nested_leaf(self, place: Place, types: frozenset[str], close: str) -> Node:
        fixed = self._fixed(place.schema)
        if fixed is not None:
            return Seq((Alt(tuple(Lit(text) for text in fixed)), Lit(close)))
        if "string" in types:
            self.rules.unenforced(place.path, place.schema)
            return Until(close)
        scalars = types - {"array", "object"}
        if not scalars:
            raise UnsupportedSchema(place.path, "type", "this format needs `properties` or `items` to write a structure")
        narrowed = Place(place.root, {**place.schema, "type": sorted(scalars)}, place.path)
        return Seq((self._json(narrowed), Lit(close)))

    # --- notations other than JSON ----------------------------------------------------------------------------------------

    def _notation(self, spelling: Notation, place: Place) -> Node:
        schema = place.schema
        if "$ref" in schema:
            return self._by_reference(place, "", lambda found: self._notation(spelling, found))
        fixed = self._fixed(schema)
        if fixed is not None:
            return Alt(tuple(Lit(text) for text in fixed))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                if keyword == "oneOf":
                    self.rules.left.append((place.path, keyword))
                ways = (self._notation(spelling, place.at(one, keyword, str(at))) for at, one in enumerate(schema[keyword]))
                return self.rules.name(Alt(tuple(ways)))
        self.rules.unenforced(place.path, schema)
        types = types_of(place.root, schema)
        if types == ANYTHING:
            types = frozenset({"string", "number", "boolean", "null"})
        return self.rules.name(Alt(tuple(self._typed(spelling, place, kind) for kind in sorted(types))))

    def _typed(self, spelling: Notation, place: Place, kind: str) -> Node:
        match kind:
            case "string":
                quote = spelling.quotes[0]
                return PYTHON_STRING if spelling.python else Seq((Lit(quote), Until(quote)))
            case "integer":
                return INTEGER
            case "number":
                return NUMBER
            case "boolean":
                return Alt((Lit(spell(spelling, True)), Lit(spell(spelling, False))))
            case "null":
                return Lit(spell(spelling, None))
            case "array":
                item = self._notation(spelling, place.at(place.schema.get("items"), "items"))
                return _array(item, spelling.item_separator, place.schema)
            case _:
                return self._object(spelling, place)

    def _object(self, spelling: Notation, place: Place) -> Node:
        schema = place.schema
        colon = spelling.key_separator
        if "properties" not in schema and "additionalProperties" in schema:
            key: Node = BARE_KEY if spelling.bare_keys else PYTHON_STRING
            value = self._notation(spelling, place.at(schema["additionalProperties"], "additionalProperties"))
            one = Seq((key, Lit(colon), value))
            return Seq((Lit("{"), Many(Seq((one, Many(Seq((Lit(spelling.item_separator), one))))), 0, 1), Lit("}")))

        def member(name: str) -> Node:
            inner = place.at(schema["properties"][name], "properties", name)
            spelled = name if spelling.bare_keys else spell(spelling, name)
            return Seq((Lit(f"{spelled}{colon}"), self._notation(spelling, inner)))

        return Seq((Lit("{"), members(schema, member, spelling.item_separator, self.rules), Lit("}")))

    def _by_reference(self, place: Place, close: str, make: Callable[[Place], Node]) -> Node:
        key = f"{place.schema['$ref']} {close}"
        if key not in self._known:
            self._known[key] = self.rules.promise()
            self.rules.nodes[self._known[key]] = make(place.resolved())
        return Ref(self._known[key])


def _array(item: Node, separator: str, schema: Schema) -> Node:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    more = Many(Seq((Lit(separator), item)), max(0, least - 1), None if most is None else max(0, most - 1))
    some = Seq((item, more))
    inner = NOTHING if most == 0 else some if least else Many(some, 0, 1)
    return Seq((Lit("["), inner, Lit("]")))


def members(schema: Schema, member: Callable[[str], Node], separator: str, rules: Rules) -> Node:
    """The properties in the schema's order, optional ones left out at will: two rules a property, so the size stays linear."""
    properties = list(schema.get("properties", {}))
    required = set(schema.get("required", ()))
    first: Node = NOTHING  # nothing stands before: no separator
    after: Node = NOTHING
    for name in reversed(properties):
        body = member(name)
        led: Node = Seq((body, after))
        following: Node = Seq((Lit(separator), body, after)) if separator else led
        if name not in required:
            led, following = Alt((led, first)), Alt((following, after))
        first, after = rules.name(led), rules.name(following)
    return first
