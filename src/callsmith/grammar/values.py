"""The grammar of one value in a family's spelling, from its JSON Schema."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Json, Schema
from callsmith.formats.layout import JSON, Nested, Notation, Raw, Spelling
from callsmith.formats.typed import ANYTHING, SCALARS, resolve, typed, types_of
from callsmith.formats.values import KEY_END
from callsmith.formats.write import spell
from callsmith.grammar.nodes import Alt, JsonValue, Lit, Many, Node, Pattern, Ref, Seq, Until
from callsmith.grammar.schema import Left, json_schema

INTEGER = Pattern(r"-?(0|[1-9][0-9]{0,18})")
NUMBER = Pattern(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?")
# As `repr` writes them. No escape is half of a character.
_ESCAPE = r"""\\([nrt'"\\]|x[0-9a-f]{2}|u([0-9abcef][0-9a-f]{3}|d[0-7][0-9a-f]{2})|U00(0[1-9a-f]|10)[0-9a-f]{4})"""
PYTHON_STRING = Pattern(rf"""'([^'\\\n\r]|{_ESCAPE})*'|"([^"\\\n\r]|{_ESCAPE})*\"""")
BARE_KEY = Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
NOTHING = Seq(())
# What a type flag means.
KINDS = {kind: frozenset({kind}) for kind in ANYTHING} | {
    "number": frozenset({"number", "integer"}),
    "json": ANYTHING - {"string"},
}
NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

# What our own rules do enforce; anything else that a schema says of such a value is reported.
ENFORCED = frozenset(
    {
        "type", "enum", "const", "properties", "required", "items", "anyOf", "oneOf", "$ref", "$defs", "definitions", "minItems",
        "maxItems", "additionalProperties", "nullable",
    }
)  # fmt: skip
NOT_OF_STRINGS = frozenset(
    {
        *NUMBER_KEYWORDS, "additionalItems", "contains", "dependencies", "dependentRequired", "dependentSchemas", "maxContains",
        "maxProperties", "minContains", "minProperties", "patternProperties", "prefixItems", "propertyNames", "unevaluatedItems",
        "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
SAID_ONLY = frozenset(
    {
        "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment", "$schema",
        "$id",
    }
)  # fmt: skip


class Place(NamedTuple):
    """A schema, where it stands, and the whole it belongs to."""

    root: Schema
    schema: Schema
    path: str = "#"

    def at(self, schema: Any, *steps: str) -> "Place":
        """A schema within this one. An `allOf` of one schema is that schema."""
        inner: Schema = cast(Schema, schema) if isinstance(schema, dict) else {}
        if len(inner.get("allOf", ())) == 1:
            inner = {**{key: value for key, value in inner.items() if key != "allOf"}, **inner["allOf"][0]}
        return Place(self.root, inner, "/".join((self.path, *steps)))

    def resolved(self) -> "Place":
        """The same, with a reference followed."""
        return Place(self.root, resolve(self.root, self.schema), self.path)


class Rules:
    """The rules of a grammar being built; equal nodes get one rule."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.left: Left = []
        self._names: dict[str, str] = {}  # a node, as text, and its rule; schemas in it keep it from being a key itself

    def name(self, node: Node, stem: str = "r") -> Ref:
        """The node as a rule of its own."""
        name = self._names.setdefault(repr(node), f"{stem}{len(self.nodes)}")
        self.nodes[name] = node
        return Ref(name)

    def promise(self, stem: str = "r") -> str:
        """A name whose node comes later: for what refers to itself."""
        name = f"{stem}{len(self.nodes)}"
        self.nodes[name] = NOTHING
        return name

    def merged(self, place: Place) -> Schema:
        """An object's schema with the properties its parts declare: of all `allOf`, and, none required, of any alternative."""
        found = place.resolved().schema
        parts = [(keyword, one) for keyword in ("allOf", "anyOf", "oneOf") for one in found.get(keyword, ())]
        if not parts:
            return found
        whole: dict[str, Any] = {
            **found,
            "properties": dict(found.get("properties", {})),
            "required": [*found.get("required", ())],
        }
        for keyword, one in parts:
            part = self.merged(place.at(one, keyword))
            whole["properties"] = {**whole["properties"], **part.get("properties", {}), **found.get("properties", {})}
            if keyword == "allOf":
                whole["required"] += part.get("required", ())
            self.unenforced(place.path, {key: 0 for key in part if key not in ("properties", "required", "type")})
        self.left += [(place.path, keyword) for keyword in ("anyOf", "oneOf") if keyword in found]
        return {key: value for key, value in whole.items() if key not in ("allOf", "anyOf", "oneOf")}

    def unenforced(self, path: str, schema: Schema, known: frozenset[str] = ENFORCED) -> None:
        """List what a schema says beyond what is known to be enforced."""
        self.left += [(path, keyword) for keyword in schema if keyword not in known | SAID_ONLY and not keyword.startswith("x-")]


class Ending(NamedTuple):
    """What closes a value: the literal, the text in it that already ends plain text, and other texts that would end it."""

    close: str
    core: str
    others: tuple[str, ...] = ()


class Values:
    """Makes nodes for values of one spelling."""

    def __init__(self, spelling: Spelling, rules: Rules) -> None:
        self.spelling = spelling
        self.rules = rules
        self._known: dict[str, str] = {}  # $ref → rule, so that recursion ends

    def whole(self, place: Place) -> Node:
        """The arguments as one object."""
        match self.spelling:
            case Notation(python=False, bare_keys=False) as spelling:
                return self._json(place, spelling)
            case Notation() as spelling:
                return self._notation(spelling, place)
            case _:
                return self._json(place)

    def within(self, place: Place, ending: "Ending", flag: str | None = None) -> Node:
        """A value and what closes it. `flag` is what the value's type flag means, if it carries one."""
        match self.spelling:
            case Notation():
                return Seq((self.whole(place), Lit(ending.close)))
            case Raw():
                return self._raw(place, ending, flag)
            case Nested() as spelling:
                return self._nested(spelling, place, ending.close)

    def _json(self, place: Place, spelling: Notation = JSON) -> Node:
        schema = json_schema(place.root, place.schema, self.rules.left, place.path)
        return JsonValue(schema, spelling.item_separator, spelling.key_separator)

    # --- plain text -------------------------------------------------------------------------------------------------------

    def _raw(self, place: Place, ending: Ending, flag: str | None) -> Node:
        types = types_of(place.root, place.schema) & KINDS.get(flag or "", ANYTHING)
        ways = [way for one in self._alternatives(place) for way in self._plain(one, ending, types)]
        if not ways:
            raise UnsupportedSchema(place.path, "enum", "no value of it can be told from one of another type in this format")
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def _alternatives(self, place: Place) -> list[Place]:
        """The schema, or each of its alternatives, references followed."""
        found = place.resolved()
        ways = self._choices(found)
        return [one for way in ways for one in self._alternatives(way)] if ways else [found]

    def _choices(self, place: Place) -> list[Place]:
        """The alternatives of a schema, each together with what stands beside them; empty if it has none."""
        schema = place.schema
        keyword = next((keyword for keyword in ("anyOf", "oneOf") if keyword in schema), None)
        if keyword is None:
            return []
        if keyword == "oneOf":
            self.rules.left.append((place.path, keyword))
        beside = {key: value for key, value in schema.items() if key not in SAID_ONLY | {keyword, "$defs", "definitions"}}
        ways = [place.at(one, keyword, str(at)) for at, one in enumerate(schema[keyword])]
        if any("$ref" in way.schema for way in ways):
            self.rules.left += [(place.path, key) for key in beside if key not in ("type", "nullable")]
        return [way if "$ref" in way.schema else Place(way.root, {**beside, **way.schema}, way.path) for way in ways]

    def _plain(self, place: Place, ending: Ending, union: frozenset[str]) -> list[Node]:
        """One alternative as plain text. `union` are the types the text may be read as."""
        found, close = place.schema, Lit(ending.close)
        fixed = self._readable(found, union)
        if fixed is not None:
            return [Seq((Alt(tuple(map(Lit, fixed))), close))] if fixed else []
        types = types_of(place.root, found) & union
        ways: list[Node] = []
        if "string" in types:
            self.rules.unenforced(place.path, found, ENFORCED | NOT_OF_STRINGS)
            ways.append(self._text(ending, union))
        if rest := types - {"string"}:
            if "string" in union:  # the same text may also be written as a string, which nothing bounds
                self.rules.unenforced(place.path, {key: found[key] for key in NUMBER_KEYWORDS if key in found})
            narrowed = Place(place.root, {**found, "type": sorted(rest)}, place.path)
            ways.append(Seq((self._json(narrowed), close)))
        return ways

    def _text(self, ending: Ending, union: frozenset[str]) -> Node:
        """A string. Where a structure may stand too it does not begin like one, for it would be read as one."""
        after = ending.close[ending.close.index(ending.core) + len(ending.core) :]
        structure = "[{" if union & {"array", "object"} else ""
        if structure and isinstance(self.spelling, Nested):
            text = Until(ending.core, ending.others, structure + ending.core[0])
            return Alt((Seq((text, Lit(after))), Lit(ending.close)))
        return Seq((Until(ending.core, ending.others, structure), Lit(after)))

    def _readable(self, schema: Schema, union: frozenset[str]) -> list[str] | None:
        """The texts of an enum or const that are read back as what they are: under `union`, "5" may be a number."""
        if "enum" not in schema and "const" not in schema:
            return None
        values: Sequence[Json] = schema.get("enum", [schema.get("const")])
        told = [(value, spell(self.spelling, value)) for value in values]
        return [text for value, text in told if _same(value, text, union)]

    def _fixed(self, schema: Schema) -> list[str] | None:
        """The texts of an enum or const."""
        if "enum" in schema or "const" in schema:
            values: Sequence[Json] = schema.get("enum", [schema.get("const")])
            return [spell(self.spelling, value) for value in values]
        return None

    # --- nested elements --------------------------------------------------------------------------------------------------

    def _nested(self, spelling: Nested, place: Place, close: str, union: frozenset[str] = frozenset()) -> Node:
        """A value and its closing tag. `union` are the types it may be read as: those of the schema it is an alternative of."""
        union = union or types_of(place.root, place.schema)
        if "$ref" in place.schema:
            key = f"{close} {sorted(union)}"
            return self._by_reference(place, key, lambda found: self._nested(spelling, found, close, union))
        if choices := self._choices(place):
            return Alt(tuple(self._nested(spelling, one, close, union) for one in choices))
        ways = self._elements(spelling, place, close)
        ways += self._plain_leaf(spelling, place, close, union)
        if not ways:
            raise UnsupportedSchema(place.path, "type", "this format needs `properties` or `items` to write a structure")
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def _elements(self, spelling: Nested, place: Place, close: str) -> list[Node]:
        types, schema = types_of(place.root, place.schema), self.rules.merged(place)
        tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
        ways: list[Node] = []
        if "properties" in schema and "object" in types:
            self.rules.unenforced(place.path, schema)

            def member(key: str) -> Node:
                inner = place.at(schema["properties"].get(key), "properties", key)
                return Seq((Lit(f"{tag}{key}>"), self._nested(spelling, inner, f"{end}{key}>")))

            ways.append(Seq((members(schema, member, "", self.rules), Lit(close))))
        if "items" in schema and "array" in types:
            self.rules.unenforced(place.path, schema)
            item = self._nested(spelling, place.at(schema["items"], "items"), f"{end}{spelling.item}>")
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            ways.append(Seq((Many(Seq((Lit(f"{tag}{spelling.item}>"), item)), least, most), Lit(close))))
        return ways

    def _plain_leaf(self, spelling: Nested, place: Place, close: str, union: frozenset[str]) -> list[Node]:
        """A leaf is plain text up to any tag."""
        types = types_of(place.root, place.schema) - {"array", "object"}
        if not types and "enum" not in place.schema:
            return []
        narrowed = Place(place.root, {**place.schema, "type": sorted(types)} if types else place.schema, place.path)
        return self._plain(narrowed, Ending(close, f"{spelling.prefix}<"), union)

    # --- notations other than JSON ----------------------------------------------------------------------------------------

    def _notation(self, spelling: Notation, place: Place) -> Node:
        schema = place.schema
        if "$ref" in schema:
            return self._by_reference(place, "", lambda found: self._notation(spelling, found))
        fixed = self._fixed(schema)
        if fixed is not None:
            return Alt(tuple(Lit(text) for text in fixed))
        if choices := self._choices(place):
            return self.rules.name(Alt(tuple(self._notation(spelling, one) for one in choices)))
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
        schema = self.rules.merged(place)
        colon = spelling.key_separator
        if "properties" not in schema and schema.get("additionalProperties") is not False:
            key: Node = BARE_KEY if spelling.bare_keys else PYTHON_STRING
            value = self._notation(spelling, place.at(schema.get("additionalProperties"), "additionalProperties"))
            one = Seq((key, Lit(colon), value))
            return Seq((Lit("{"), Many(Seq((one, Many(Seq((Lit(spelling.item_separator), one))))), 0, 1), Lit("}")))

        def member(name: str) -> Node:
            inner = place.at(schema["properties"].get(name), "properties", name)
            spelled = name if spelling.bare_keys else spell(spelling, name)
            if spelling.bare_keys and any(mark in name for mark in KEY_END.texts):
                raise UnsupportedSchema(place.path, "properties", f"this format cannot write the key {name!r}")
            return Seq((Lit(f"{spelled}{colon}"), self._notation(spelling, inner)))

        return Seq((Lit("{"), members(schema, member, spelling.item_separator, self.rules), Lit("}")))

    def _by_reference(self, place: Place, variant: str, make: Callable[[Place], Node]) -> Node:
        key = f"{place.schema['$ref']} {variant}"
        if key not in self._known:
            self._known[key] = self.rules.promise()
            self.rules.nodes[self._known[key]] = make(place.resolved())
        return Ref(self._known[key])


def _same(value: Json, text: str, types: frozenset[str]) -> bool:
    """Whether a value's plain text is read back as the value."""
    kind = SCALARS[type(cast(object, value))]
    if kind not in types and not (kind == "integer" and "number" in types):
        return False
    read: Json = json.loads(typed(text, types))
    return type(read) is type(value) and read == value


def _array(item: Node, separator: str, schema: Schema) -> Node:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    more = Many(Seq((Lit(separator), item)), max(0, least - 1), None if most is None else max(0, most - 1))
    some = Seq((item, more))
    inner = NOTHING if most == 0 else some if least else Many(some, 0, 1)
    return Seq((Lit("["), inner, Lit("]")))


def members(schema: Schema, member: Callable[[str], Node], separator: str, rules: Rules) -> Node:
    """The properties in the schema's order, optional ones left out at will: two rules a property, so the size stays linear."""
    required = dict.fromkeys(schema.get("required", ()))
    properties = {**dict.fromkeys(schema.get("properties", ())), **required}
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
