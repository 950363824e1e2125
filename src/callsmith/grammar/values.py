"""The grammar of one value in a family's spelling, from its JSON Schema."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Json, Schema
from callsmith.formats.algebra import JSON, Nested, Notation, Raw, Spelling
from callsmith.formats.reader.typed import ALL_TYPES, JSON_TYPES, common_types, items_of, property_of, typed_json, types_of
from callsmith.formats.reader.values import KEY_END, TAG_NAME
from callsmith.formats.write import spell
from callsmith.grammar.nodes import Alt, JsonValue, Lit, Many, Node, Pattern, Record, Ref, Seq, Until
from callsmith.grammar.rules import Rules
from callsmith.grammar.schema.keywords import OF_NUMBERS, OF_STRINGS
from callsmith.grammar.schema.normal_form import Simple, kinds_of, resolved
from callsmith.grammar.schema.normalize import simplified, standalone, unenforced

INTEGER = Pattern(r"-?(0|[1-9][0-9]{0,18})")
NUMBER = Pattern(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?")
# As `repr` writes them. No escape is half of a character.
_ESCAPE = r"""\\([nrt'"\\]|x[0-9a-f]{2}|u([0-9abcef][0-9a-f]{3}|d[0-7][0-9a-f]{2})|U00(0[1-9a-f]|10)[0-9a-f]{4})"""
PYTHON_STRING = Pattern(rf"""'([^'\\\n\r]|{_ESCAPE})*'|"([^"\\\n\r]|{_ESCAPE})*\"""")
BARE_KEY = Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
NOTHING = Seq(())
# An object of which nothing is known, where no tag may stand: no text in it has what begins one.
_UNMARKED = {"type": "string", "pattern": "^[^<]*$"}
_PLAIN: Schema = {"$ref": "#/$defs/plain"}
_OPEN = {"type": "object", "patternProperties": {"^[^<]*$": _PLAIN}, "additionalProperties": False}
_PLAINS = [_UNMARKED, {"type": ["number", "boolean", "null"]}, {"type": "array", "items": _PLAIN}, _OPEN]
UNMARKED: Schema = {**_OPEN, "$defs": {"plain": {"anyOf": _PLAINS}}}
# What a type flag means.
KINDS = {kind: frozenset({kind}) for kind in ALL_TYPES} | {
    "number": frozenset({"number", "integer"}),
    "json": ALL_TYPES - {"string"},
}
STRUCTURES = frozenset({"array", "object"})


class Place(NamedTuple):
    """A simple schema in its document, and what a reader goes by there: the tool's own schema, which says how text is typed."""

    root: Simple
    schema: Simple
    told: Schema
    read: Schema

    @classmethod
    def of(cls, parameters: Schema, rules: "Rules") -> "Place":
        """A tool's arguments. What of their schema no grammar enforces is listed."""
        simple = simplified(parameters, kind="object")
        rules.left += unenforced(simple, simple)
        return cls(simple, simple, parameters, parameters)

    def property(self, name: str) -> "Place":
        """One of an object's properties."""
        inner: Simple = self.schema.get("properties", {}).get(name, Simple({}, self.schema.path))
        return Place(self.root, inner, self.told, property_of(self.told, self.read, name))

    def item(self, schema: Simple) -> "Place":
        """An item of an array."""
        return Place(self.root, schema, self.told, items_of(self.told, self.read))

    def ways(self) -> list["Place"]:
        """The schema, or each of its alternatives, references followed."""
        found = self.resolved()
        if "anyOf" not in found.schema:
            return [found]
        return [one for way in found.schema["anyOf"] for one in found._replace(schema=way).ways()]

    def resolved(self) -> "Place":
        """The same, with a reference followed."""
        return self._replace(schema=resolved(self.root, self.schema))

    def read_types(self) -> frozenset[str]:
        """The types a reader takes plain text here for."""
        return types_of(self.told, self.read)


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
        self._known: dict[str, str] = {}  # schema → rule, so that recursion ends

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
        return JsonValue(standalone(place.root, place.schema), spelling.item_separator, spelling.key_separator)

    # --- plain text -------------------------------------------------------------------------------------------------------

    def _raw(self, place: Place, ending: Ending, flag: str | None) -> Node:
        types = place.read_types() & KINDS.get(flag or "", ALL_TYPES)
        ways = self._plain(place.ways(), ending, types)
        if not ways:
            raise UnsupportedSchema(
                place.schema.path, "enum", "no value of it can be told from one of another type in this format"
            )
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def _plain(self, places: Sequence[Place], ending: Ending, union: frozenset[str]) -> list[Node]:
        """The alternatives as plain text. `union` are the types the text may be read as."""
        ways, free, close = list[Node](), False, Lit(ending.close)
        for place in places:
            found = place.schema
            if "enum" in found:
                texts = [text for value in found["enum"] if _same(value, text := spell(self.spelling, value), union)]
                ways += [Seq((Alt(tuple(map(Lit, texts))), close))] if texts else []
                continue
            types = common_types(found.types, union)
            if "string" in types:
                self.rules.unenforced(found, OF_STRINGS)
                ways += [] if free else [self._text(ending, union, places)]
                free = True
            if rest := types - {"string"}:
                ways.append(Seq((self._json(place._replace(schema=narrowed(found, rest))), close)))
        if free:
            self._mistaken(places, union)
        return ways

    def _mistaken(self, places: Sequence[Place], union: frozenset[str]) -> None:
        """List what text that may be any string gets around, because it is read as something else: a number, true, null."""
        atoms = union - STRUCTURES - {"string"}
        allowed = frozenset[str]().union(*(place.schema.types for place in places if "enum" not in place.schema))
        for place in places:
            if "enum" in place.schema and any(common_types(kinds_of(value), atoms) for value in place.schema["enum"]):
                self.rules.left += [(path, one) for one in ("enum", "const") for path in place.schema.said.get(one, ())]
            elif {"number", "integer"} & atoms:
                self.rules.unenforced(place.schema, OF_NUMBERS)
            if "string" in place.schema.types and atoms - common_types(atoms, allowed):
                self.rules.left += [(path, "type") for path in place.schema.said.get("type", ())]

    def _text(self, ending: Ending, union: frozenset[str], places: Sequence[Place]) -> Node:
        """A string. Where a structure may stand too it does not begin like one, for it would be read as one."""
        after = ending.close[ending.close.index(ending.core) + len(ending.core) :]
        several = any("anyOf" in resolved(place.root, place.root) for place in places)
        apart = not several and not any(ending.core[0] in str(one) for place in places for one in place.schema.get("enum", ()))
        structure = "[{" if union & {"array", "object"} else ""
        if structure and isinstance(self.spelling, Nested):
            text = Until(ending.core, ending.others, structure + ending.core[0])
            return Alt((Seq((text, Lit(after))), Lit(ending.close)))
        return Seq((Until(ending.core, ending.others, structure, apart), Lit(after)))

    # --- nested elements --------------------------------------------------------------------------------------------------

    def _nested(self, spelling: Nested, place: Place, close: str) -> Node:
        """A value and its closing tag."""
        if "$ref" in place.schema or "anyOf" in place.schema:
            key = f"{close} {sorted(place.read_types())}"
            return self._once(place, key, lambda found: self._nested_ways(spelling, found, close))
        return self._nested_ways(spelling, place, close)

    def _nested_ways(self, spelling: Nested, place: Place, close: str) -> Node:
        places = place.ways()
        ways = [way for one in places for way in self._elements(spelling, one, close)]
        ways += self._leaves(spelling, places, close, place.read_types())
        if not ways:
            why = "this format needs `properties` or `items` to write a structure"
            raise UnsupportedSchema(place.schema.path, "type", why)
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def _elements(self, spelling: Nested, place: Place, close: str) -> list[Node]:
        types, schema = place.schema.types, place.schema
        tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
        ways: list[Node] = []
        if "properties" in schema and "object" in types:

            def member(key: str) -> Node:
                if not TAG_NAME.fullmatch(key) or key != key.strip():
                    raise UnsupportedSchema(schema.path, "properties", f"this format cannot write the key {key!r}")
                return Seq((Lit(f"{tag}{key}>"), self._nested(spelling, place.property(key), f"{end}{key}>")))

            ways.append(Seq((members(schema, member, ""), Lit(close))))
        elif "type" in schema and "object" in types:
            empty = types == place.read_types() == frozenset({"object"}) and not schema.keys() & {"required", "minProperties"}
            ways.append(Seq((Many(JsonValue(UNMARKED), 0 if empty else 1, 1), Lit(close))))
        if "type" in schema and "array" in types:

            def item(one: Simple) -> Node:
                return Seq((Lit(f"{tag}{spelling.item}>"), self._nested(spelling, place.item(one), f"{end}{spelling.item}>")))

            ways.append(Seq((items(schema, item, ""), Lit(close))))
        return ways

    def _leaves(self, spelling: Nested, places: Sequence[Place], close: str, union: frozenset[str]) -> list[Node]:
        """A leaf is plain text up to any tag."""
        plain = list[Place]()
        for place in places:
            if "enum" in place.schema:
                plain.append(place)
            elif types := place.schema.types - STRUCTURES:
                plain.append(place._replace(schema=narrowed(place.schema, types)))
        return self._plain(plain, Ending(close, f"{spelling.prefix}<"), union)

    # --- notations other than JSON ----------------------------------------------------------------------------------------

    def _notation(self, spelling: Notation, place: Place) -> Node:
        schema = place.schema
        if "$ref" in schema:
            return self._once(place, "", lambda found: self._notation(spelling, found))
        if "enum" in schema:
            return Alt(tuple(Lit(spell(spelling, value)) for value in schema["enum"]))
        if "anyOf" in schema:
            ways = (self._notation(spelling, place._replace(schema=one)) for one in schema["anyOf"])
            return self.rules.name(Alt(tuple(ways)))
        if not schema.keys() - {"$defs"}:
            return self._anything(spelling, place)
        return self.rules.name(Alt(tuple(self._typed(spelling, place, kind) for kind in sorted(schema.types - _less(schema)))))

    def _anything(self, spelling: Notation, place: Place) -> Node:
        if "" not in self._known:
            self._known[""] = self.rules.promise()
            whole = Simple({"type": sorted(ALL_TYPES - {"integer"})}, place.schema.path)
            self.rules.nodes[self._known[""]] = self._notation(spelling, place._replace(schema=whole))
        return Ref(self._known[""])

    def _typed(self, spelling: Notation, place: Place, kind: str) -> Node:
        match kind:
            case "string":
                self.rules.unenforced(place.schema, OF_STRINGS)
                quote = spelling.quotes[0]
                return PYTHON_STRING if spelling.python else Seq((Lit(quote), Until(quote)))
            case "integer" | "number":
                if not place.schema.keys() & {*OF_NUMBERS}:
                    return INTEGER if kind == "integer" else NUMBER
                return self._json(place._replace(schema=narrowed(place.schema, {kind})))  # numbers are spelled alike
            case "boolean":
                return Alt((Lit(spell(spelling, True)), Lit(spell(spelling, False))))
            case "null":
                return Lit(spell(spelling, None))
            case "array":
                listed = items(place.schema, lambda one: self._notation(spelling, place.item(one)), spelling.item_separator)
                return Seq((Lit("["), listed, Lit("]")))
            case _:
                return self._object(spelling, place)

    def _object(self, spelling: Notation, place: Place) -> Node:
        schema, colon = place.schema, spelling.key_separator
        extra: Simple = schema.get("additionalProperties", Simple({}, schema.path))
        if "properties" not in schema and "patternProperties" not in schema:
            key: Node = BARE_KEY if spelling.bare_keys else PYTHON_STRING
            one = Seq((key, Lit(colon), self._notation(spelling, place._replace(schema=extra))))
            return Seq((Lit("{"), _repeated(one, spelling.item_separator, 0, schema.get("maxProperties")), Lit("}")))

        def member(name: str) -> Node:
            spelled = name if spelling.bare_keys else spell(spelling, name)
            if spelling.bare_keys and any(mark in name for mark in KEY_END.texts):
                raise UnsupportedSchema(schema.path, "properties", f"this format cannot write the key {name!r}")
            return Seq((Lit(f"{spelled}{colon}"), self._notation(spelling, place.property(name))))

        return Seq((Lit("{"), members(schema, member, spelling.item_separator), Lit("}")))

    def _once(self, place: Place, variant: str, make: Callable[[Place], Node]) -> Node:
        """One rule for a schema wherever it stands: what refers to itself comes to an end."""
        found = place.resolved()
        key = f"{id(found.schema)} {variant}"
        if key not in self._known:
            self._known[key] = self.rules.promise()
            self.rules.nodes[self._known[key]] = make(found)
        return Ref(self._known[key])


def narrowed(schema: Simple, types: Iterable[str]) -> Simple:
    """The schema with only these of its types."""
    made = Simple({**schema, "type": sorted(types)}, schema.path)
    made.said = schema.said
    return made


def _less(schema: Simple) -> frozenset[str]:
    """An integer need not be tried where any number may stand."""
    return frozenset({"integer"}) if "number" in schema.types else frozenset()


def _same(value: Json, text: str, types: frozenset[str]) -> bool:
    """Whether a value's plain text is read back as the value."""
    kind = JSON_TYPES[type(cast(object, value))]
    if kind not in types and not (kind == "integer" and "number" in types):
        return False
    read: Json = json.loads(typed_json(text, types))
    return type(read) is type(value) and read == value


def items(schema: Simple, item: Callable[[Simple], Node], separator: str) -> Node:
    """The items of an array: those of single places, then any number alike, as many as are allowed."""
    places: list[Simple] = schema.get("prefixItems", [])
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    more: Node = NOTHING
    if most is None or most > len(places):
        one = item(schema.get("items", Simple({}, schema.path)))
        needed, room = max(0, least - len(places)), None if most is None else most - len(places)
        more = _repeated(one, separator, needed, room) if not places else Many(_led(separator, one), needed, room)
    for at, place in reversed(list(enumerate(places))):
        more = Seq((_led(separator if at else "", item(place)), more))
        more = more if at < least else Many(more, 0, 1)
    return more


def _led(separator: str, node: Node) -> Node:
    return Seq((Lit(separator), node)) if separator else node


def _repeated(item: Node, separator: str, least: int, most: int | None) -> Node:
    if not separator:
        return Many(item, least, most)
    more = Many(_led(separator, item), max(0, least - 1), None if most is None else max(0, most - 1))
    some = Seq((item, more))
    return NOTHING if most == 0 else some if least else Many(some, 0, 1)


def members(schema: Simple, member: Callable[[str], Node], separator: str) -> Node:
    """The properties, optional ones left out at will."""
    required = schema.get("required", ())
    names = [name for name, inner in schema.get("properties", {}).items() if inner is not False]
    return Record(tuple(map(member, names)), tuple(name in required for name in names), separator)
