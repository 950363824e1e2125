"""The grammar of a value, from its JSON Schema, in the notation that a model family uses for values."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.schema import GRAMMAR
from callsmith.core.values import Json, Schema
from callsmith.formats.algebra import JSON, Nested, Notation, Raw, Spelling
from callsmith.formats.reader.typed import (
    ALL_TYPES,
    JSON_TYPES,
    STRING,
    TAG_NAME,
    common_types,
    items_of,
    property_of,
    typed_json,
    types_of,
)
from callsmith.formats.reader.values import KEY_END
from callsmith.formats.write import spell
from callsmith.grammar.languages.text_grammar import read_text_grammar
from callsmith.grammar.nodes import NOTHING, Alt, JsonValue, Lit, Many, Node, Pattern, Record, Ref, Seq, Until
from callsmith.grammar.rules import Rules
from callsmith.grammar.schema.keywords import NUMBER_KEYWORDS, STRING_KEYWORDS
from callsmith.grammar.schema.normal_form import NormalSchema, collect_unenforced, reachable, resolve, standalone, value_types
from callsmith.grammar.schema.normalize import normalize
from callsmith.grammar.strings import Plain, Quoted, string_spellings, text_nodes

INTEGER = Pattern(r"-?(0|[1-9][0-9]{0,18})")
NUMBER = Pattern(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?")
# As Python's `repr` writes strings. No escape is half of a surrogate pair.
_ESCAPE = r"""\\([nrt'"\\]|x[0-9a-f]{2}|u([0-9abcef][0-9a-f]{3}|d[0-7][0-9a-f]{2})|U00(0[1-9a-f]|10)[0-9a-f]{4})"""
PYTHON_STRING = Pattern(rf"""'([^'\\\n\r]|{_ESCAPE})*'|"([^"\\\n\r]|{_ESCAPE})*\"""")
BARE_KEY = Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Any object, without the character that tags begin with: for places where a tag would be read.
_TAGLESS_STRING = {"type": "string", "pattern": "^[^<]*$"}
_TAGLESS_REFERENCE: Schema = {"$ref": "#/$defs/plain"}
_TAGLESS_OPEN_OBJECT = {"type": "object", "patternProperties": {"^[^<]*$": _TAGLESS_REFERENCE}, "additionalProperties": False}
_TAGLESS_VALUES = [
    _TAGLESS_STRING,
    {"type": ["number", "boolean", "null"]},
    {"type": "array", "items": _TAGLESS_REFERENCE},
    _TAGLESS_OPEN_OBJECT,
]
TAGLESS_OBJECT: Schema = {**_TAGLESS_OPEN_OBJECT, "$defs": {"plain": {"anyOf": _TAGLESS_VALUES}}}
# The types that a type flag stands for.
TYPES_BY_FLAG = {kind: frozenset({kind}) for kind in ALL_TYPES} | {
    "number": frozenset({"number", "integer"}),
    "json": ALL_TYPES - {"string"},
}
STRUCTURES = frozenset({"array", "object"})


class SchemaPlace(NamedTuple):
    """A place in a tool's parameters: its schema in normal form, and in the tool's own form, by which the reader types text.

    `schema` is a part of `root`, both in normal form; `source` is the corresponding part of `document`, the tool's own schema.
    """

    root: NormalSchema
    schema: NormalSchema
    document: Schema
    source: Schema

    @classmethod
    def of(cls, parameters: Schema, rules: Rules) -> "SchemaPlace":
        """The arguments of a tool. Keywords that no grammar enforces are listed in the rules."""
        root = normalize(parameters, kind="object")
        rules.unenforced += collect_unenforced(root, root)
        return cls(root, root, parameters, parameters)

    def property(self, name: str) -> "SchemaPlace":
        """The place of one of an object's properties."""
        inner: NormalSchema = self.schema.get("properties", {}).get(name, NormalSchema({}, self.schema.path))
        return SchemaPlace(self.root, inner, self.document, property_of(self.document, self.source, name))

    def item(self, schema: NormalSchema) -> "SchemaPlace":
        """The place of an array's items, of which this is the schema."""
        return SchemaPlace(self.root, schema, self.document, items_of(self.document, self.source))

    def alternatives(self) -> list["SchemaPlace"]:
        """The alternatives of an `anyOf`, nested ones too, or just this place; references are followed."""
        resolved = self.resolve()
        if "anyOf" not in resolved.schema:
            return [resolved]
        return [branch for way in resolved.schema["anyOf"] for branch in resolved._replace(schema=way).alternatives()]

    def resolve(self) -> "SchemaPlace":
        """The same place, with references followed."""
        return self._replace(schema=resolve(self.root, self.schema))

    def read_types(self) -> frozenset[str]:
        """The types that the reader may give to plain text here."""
        return types_of(self.document, self.source)


class Ending(NamedTuple):
    """What closes a value: the literal, the marker in it that ends plain text, and other markers that would end it."""

    close: str
    marker: str
    others: tuple[str, ...] = ()


class Values:
    """Makes the nodes of values, for one notation."""

    def __init__(self, spelling: Spelling, rules: Rules) -> None:
        self.spelling = spelling
        self.rules = rules
        self._known: dict[str, str] = {}  # schema → rule, so that recursion ends

    def value(self, place: SchemaPlace) -> Node:
        """The nodes of a value without anything around it: of all arguments as one object, or of a single one."""
        match self.spelling:
            case Notation(python=False, bare_keys=False) as spelling:
                return self._json(place, spelling)
            case Notation() as spelling:
                return self._notation(spelling, place)
            case _:
                return self._json(place)

    def closed_value(self, place: SchemaPlace, ending: Ending, flag: str | None = None) -> Node:
        """The nodes of a value and what closes it. `flag` is what the value's type flag stands for, if it has one."""
        match self.spelling:
            case Notation():
                return Seq((self.value(place), Lit(ending.close)))
            case Raw():
                return self._raw(place, ending, flag)
            case Nested() as spelling:
                return self._nest(spelling, place, ending.close)

    def _json(self, place: SchemaPlace, spelling: Notation = JSON) -> Node:
        if _holds_grammar(place):
            return self._notation(spelling, place)
        return JsonValue(standalone(place.root, place.schema), spelling.item_separator, spelling.key_separator)

    # --- plain text -------------------------------------------------------------------------------------------------------

    def _raw(self, place: SchemaPlace, ending: Ending, flag: str | None) -> Node:
        types = place.read_types() & TYPES_BY_FLAG.get(flag or "", ALL_TYPES)
        ways = self._plain(place.alternatives(), ending, types)
        if not ways:
            why = "in this format, each of its values would be read as a value of another type"
            raise UnsupportedSchema(place.schema.path, "enum", why)
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def _plain(self, places: Sequence[SchemaPlace], ending: Ending, union: frozenset[str]) -> list[Node]:
        """The alternatives as plain text. `union` are the types that the reader may give to the text."""
        ways, has_text, close = list[Node](), False, Lit(ending.close)
        for place in places:
            schema = place.schema
            if "enum" in schema:
                texts = [text for value in schema["enum"] if _reads_back(value, text := spell(self.spelling, value), union)]
                ways += [Seq((Alt(tuple(map(Lit, texts))), close))] if texts else []
                continue
            types = common_types(schema.types, union)
            plain = Plain(ending.close, (ending.marker, *ending.others))
            if GRAMMAR in schema and union == STRING and (held := self._held_text(schema, plain)):
                ways.append(held)
                continue
            if "string" in types:
                self.rules.add_unenforced(schema, STRING_KEYWORDS)
                ways += [] if has_text else [self._text(ending, union, places)]
                has_text = True
            if rest := types - {"string"}:
                ways.append(Seq((self._json(place._replace(schema=narrow(schema, rest))), close)))
        if has_text:
            self._add_ambiguous(places, union)
        return ways

    def _add_ambiguous(self, places: Sequence[SchemaPlace], union: frozenset[str]) -> None:
        """List the keywords that free text can violate because the reader takes it for something else: a number, true, null."""
        scalars = union - STRUCTURES - {"string"}
        allowed = frozenset[str]().union(*(place.schema.types for place in places if "enum" not in place.schema))
        for place in places:
            if "enum" in place.schema and any(common_types(value_types(value), scalars) for value in place.schema["enum"]):
                self.rules.unenforced += [
                    (path, text) for text in ("enum", "const") for path in place.schema.sources.get(text, ())
                ]
            elif {"number", "integer"} & scalars:
                self.rules.add_unenforced(place.schema, NUMBER_KEYWORDS)
            if "string" in place.schema.types and scalars - common_types(scalars, allowed):
                self.rules.unenforced += [(path, "type") for path in place.schema.sources.get("type", ())]

    def _text(self, ending: Ending, union: frozenset[str], places: Sequence[SchemaPlace]) -> Node:
        """A string. Where an array or object is possible too, it does not begin with a bracket: it would be read as one."""
        after = ending.close[ending.close.index(ending.marker) + len(ending.marker) :]
        several = any("anyOf" in resolve(place.root, place.root) for place in places)
        values = [value for place in places for value in place.schema.get("enum", ())]
        is_distinct = not several and not any(ending.marker[0] in str(value) for value in values)
        structure = "[{" if union & STRUCTURES else ""
        if structure and isinstance(self.spelling, Nested):
            text = Until(ending.marker, ending.others, structure + ending.marker[0])
            return Alt((Seq((text, Lit(after))), Lit(ending.close)))
        return Seq((Until(ending.marker, ending.others, structure, is_distinct), Lit(after)))

    def _held_text(self, schema: NormalSchema, *spellings: Quoted | Plain) -> Node | None:
        """A string that its grammar holds, in one of these ways of writing it; None where that would become too large."""
        try:
            grammar = read_text_grammar(schema[GRAMMAR])
        except UsageError as error:
            raise UnsupportedSchema(schema.path, GRAMMAR, str(error)) from None
        ways = [node for spelling in spellings if (node := text_nodes(grammar, spelling, self.rules))]
        if not ways:
            return None
        self.rules.add_unenforced(schema, [keyword for keyword in STRING_KEYWORDS if keyword != GRAMMAR])
        return self.rules.name(Alt(tuple(ways))) if len(ways) > 1 else ways[0]

    # --- nested elements --------------------------------------------------------------------------------------------------

    def _nest(self, spelling: Nested, place: SchemaPlace, close: str) -> Node:
        """A value and its closing tag."""
        if "$ref" in place.schema or "anyOf" in place.schema:
            key = f"{close} {sorted(place.read_types())}"
            return self._shared_rule(place, key, lambda resolved: self._nest_ways(spelling, resolved, close))
        return self._nest_ways(spelling, place, close)

    def _nest_ways(self, spelling: Nested, place: SchemaPlace, close: str) -> Node:
        places = place.alternatives()
        ways = [way for place in places for way in self._elements(spelling, place, close)]
        ways += self._leaves(spelling, places, close, place.read_types())
        if not ways:
            why = "this format needs `properties` or `items` to write a structure"
            raise UnsupportedSchema(place.schema.path, "type", why)
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def _elements(self, spelling: Nested, place: SchemaPlace, close: str) -> list[Node]:
        types, schema = place.schema.types, place.schema
        tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
        ways: list[Node] = []
        if "properties" in schema and "object" in types:

            def member(key: str) -> Node:
                if not TAG_NAME.fullmatch(key) or key != key.strip():
                    raise UnsupportedSchema(schema.path, "properties", f"this format cannot write the key {key!r}")
                return Seq((Lit(f"{tag}{key}>"), self._nest(spelling, place.property(key), f"{end}{key}>")))

            ways.append(Seq((member_nodes(schema, member, ""), Lit(close))))
        elif "type" in schema and "object" in types:
            empty = types == place.read_types() == frozenset({"object"}) and not schema.keys() & {"required", "minProperties"}
            ways.append(Seq((Many(JsonValue(TAGLESS_OBJECT), 0 if empty else 1, 1), Lit(close))))
        if "type" in schema and "array" in types:

            def item(inner: NormalSchema) -> Node:
                return Seq((Lit(f"{tag}{spelling.item}>"), self._nest(spelling, place.item(inner), f"{end}{spelling.item}>")))

            ways.append(Seq((item_nodes(schema, item, ""), Lit(close))))
        return ways

    def _leaves(self, spelling: Nested, places: Sequence[SchemaPlace], close: str, union: frozenset[str]) -> list[Node]:
        """The scalar alternatives: plain text up to any tag."""
        plain = list[SchemaPlace]()
        for place in places:
            if "enum" in place.schema:
                plain.append(place)
            elif types := place.schema.types - STRUCTURES:
                plain.append(place._replace(schema=narrow(place.schema, types)))
        return self._plain(plain, Ending(close, f"{spelling.prefix}<"), union)

    # --- notations other than JSON ----------------------------------------------------------------------------------------

    def _notation(self, spelling: Notation, place: SchemaPlace) -> Node:
        schema = place.schema
        if spelling.is_json and not _holds_grammar(place):
            return self._json(place, spelling)
        if "$ref" in schema:
            return self._shared_rule(place, "", lambda resolved: self._notation(spelling, resolved))
        if "enum" in schema:
            return Alt(tuple(Lit(spell(spelling, value)) for value in schema["enum"]))
        if "anyOf" in schema:
            ways = (self._notation(spelling, place._replace(schema=item)) for item in schema["anyOf"])
            return self.rules.name(Alt(tuple(ways)))
        if not schema.keys() - {"$defs"}:
            return self._anything(spelling, place)
        return self.rules.name(Alt(tuple(self._compile_type(spelling, place, kind) for kind in sorted(schema.distinct_types))))

    def _anything(self, spelling: Notation, place: SchemaPlace) -> Node:
        if "" not in self._known:
            self._known[""] = self.rules.reserve()
            whole = NormalSchema({"type": sorted(ALL_TYPES - {"integer"})}, place.schema.path)
            self.rules.nodes[self._known[""]] = self._notation(spelling, place._replace(schema=whole))
        return Ref(self._known[""])

    def _compile_type(self, spelling: Notation, place: SchemaPlace, kind: str) -> Node:
        match kind:
            case "string" if GRAMMAR in place.schema and (held := self._held_text(place.schema, *string_spellings(spelling))):
                return held
            case "string" if spelling.is_json:
                return self._json(place._replace(schema=narrow(place.schema, {kind})))
            case "string":
                self.rules.add_unenforced(place.schema, STRING_KEYWORDS)
                quote = spelling.quotes[0]
                return PYTHON_STRING if spelling.python else Seq((Lit(quote), Until(quote)))
            case "integer" | "number":
                if not place.schema.keys() & {*NUMBER_KEYWORDS}:
                    return INTEGER if kind == "integer" else NUMBER
                return self._json(place._replace(schema=narrow(place.schema, {kind})))  # numbers are written as in JSON
            case "boolean":
                return Alt((Lit(spell(spelling, True)), Lit(spell(spelling, False))))
            case "null":
                return Lit(spell(spelling, None))
            case "array":
                listed = item_nodes(
                    place.schema, lambda schema: self._notation(spelling, place.item(schema)), spelling.item_separator
                )
                return Seq((Lit("["), listed, Lit("]")))
            case _:
                return self._object(spelling, place)

    def _object(self, spelling: Notation, place: SchemaPlace) -> Node:
        schema, colon = place.schema, spelling.key_separator
        extra: NormalSchema = schema.get("additionalProperties", NormalSchema({}, schema.path))
        if "properties" not in schema and "patternProperties" not in schema:
            key: Node = BARE_KEY if spelling.bare_keys else PYTHON_STRING
            pair = Seq((key, Lit(colon), self._notation(spelling, place._replace(schema=extra))))
            return Seq((Lit("{"), _repeat(pair, spelling.item_separator, 0, schema.get("maxProperties")), Lit("}")))

        def member(name: str) -> Node:
            spelled = name if spelling.bare_keys else spell(spelling, name)
            if spelling.bare_keys and any(mark in name for mark in KEY_END.texts):
                raise UnsupportedSchema(schema.path, "properties", f"this format cannot write the key {name!r}")
            return Seq((Lit(f"{spelled}{colon}"), self._notation(spelling, place.property(name))))

        return Seq((Lit("{"), member_nodes(schema, member, spelling.item_separator), Lit("}")))

    def _shared_rule(self, place: SchemaPlace, variant: str, make: Callable[[SchemaPlace], Node]) -> Node:
        """The rule of a schema, made once: so a schema that refers to itself becomes a rule that refers to itself."""
        resolved = place.resolve()
        key = f"{id(resolved.schema)} {variant}"
        if key not in self._known:
            self._known[key] = self.rules.reserve()
            self.rules.nodes[self._known[key]] = make(resolved)
        return Ref(self._known[key])


def _holds_grammar(place: SchemaPlace) -> bool:
    """Whether a string of the value has a grammar of its own."""
    return any(GRAMMAR in item for item in reachable(place.root, place.schema))


def narrow(schema: NormalSchema, types: Iterable[str]) -> NormalSchema:
    """The schema, limited to these types."""
    narrowed = NormalSchema({**schema, "type": sorted(types)}, schema.path)
    narrowed.sources = schema.sources
    return narrowed


def _reads_back(value: Json, text: str, types: frozenset[str]) -> bool:
    """Whether a value's plain text is read back as the value."""
    kind = JSON_TYPES[type(cast(object, value))]
    if kind not in types and not (kind == "integer" and "number" in types):
        return False
    read: Json = json.loads(typed_json(text, types))
    return type(read) is type(value) and read == value


def item_nodes(schema: NormalSchema, item: Callable[[NormalSchema], Node], separator: str) -> Node:
    """The items of an array: those of `prefixItems`, then those of `items`, within `minItems` and `maxItems`."""
    prefix: list[NormalSchema] = schema.get("prefixItems", [])
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    more: Node = NOTHING
    if most is None or most > len(prefix):
        node = item(schema.get("items", NormalSchema({}, schema.path)))
        needed, room = max(0, least - len(prefix)), None if most is None else most - len(prefix)
        more = _repeat(node, separator, needed, room) if not prefix else Many(_after_separator(separator, node), needed, room)
    for at, inner in reversed(list(enumerate(prefix))):
        more = Seq((_after_separator(separator if at else "", item(inner)), more))
        more = more if at < least else Many(more, 0, 1)
    return more


def _after_separator(separator: str, node: Node) -> Node:
    return Seq((Lit(separator), node)) if separator else node


def _repeat(item: Node, separator: str, least: int, most: int | None) -> Node:
    if not separator:
        return Many(item, least, most)
    more = Many(_after_separator(separator, item), max(0, least - 1), None if most is None else max(0, most - 1))
    some = Seq((item, more))
    return NOTHING if most == 0 else some if least else Many(some, 0, 1)


def member_nodes(schema: NormalSchema, member: Callable[[str], Node], separator: str) -> Node:
    """The properties of an object, of which optional ones may be missing."""
    required = schema.get("required", ())
    names = [name for name, inner in schema.get("properties", {}).items() if inner is not False]
    return Record(tuple(map(member, names)), tuple(name in required for name in names), separator)
