"""The normal form of a JSON Schema: a few shapes, each of which a grammar can enforce.

A schema in normal form is one of
    {}                              any value
    {"enum": [...]}                 one of these values, each of which is known to fit
    {"anyOf": [schema, ...]}        one of these schemas, with no keyword beside it
    {"$ref": "#/$defs/d0"}          another schema, by name, with no keyword beside it
    {"type": ..., keywords}         values of these types, with keywords that a grammar enforces
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from callsmith.formats.reader.typed import ALL_TYPES, common_types
from callsmith.grammar.schema.keywords import EVALUATING, UNEVALUATED

STRUCTURES = ("object", "array")
UnenforcedKeywords = list[tuple[str, str]]  # (path, keyword) of what the normal form leaves out


class NormalSchema(dict[str, Any]):
    """A schema in normal form. `path` is where the original schema is, `sources` the paths of every keyword it was made from.

    `implied` are keywords that nobody wrote but everybody means: an object that lists its properties has no others, a value with
    a `pattern` is a string. `unenforced` are keywords of the original schema that the normal form leaves out. `plain_integers`:
    1.0 is no integer, as in drafts 3 and 4.
    """

    __slots__ = ("implied", "path", "plain_integers", "sources", "unenforced")

    def __init__(self, schema: Mapping[str, Any], path: str) -> None:
        super().__init__(schema)
        self.path = path
        self.sources: Mapping[str, Sequence[str]] = {}
        self.implied: frozenset[str] = frozenset()
        self.unenforced: UnenforcedKeywords = []
        self.plain_integers = False

    @property
    def types(self) -> frozenset[str]:
        """The types that `type` allows; all of them where there is no `type`, as beside an `enum`, an `anyOf` or a `$ref`."""
        kinds: str | list[str] | None = self.get("type")
        return ALL_TYPES if kinds is None else frozenset({kinds} if isinstance(kinds, str) else kinds)

    @property
    def distinct_types(self) -> frozenset[str]:
        """The types it allows, without `integer` where `number` covers it."""
        return self.types - {"integer"} if "number" in self.types else self.types


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """The result for a schema that no value fits: the path and keyword that cause it, and why."""

    path: str
    keyword: str
    why: str


class SchemaPart(NamedTuple):
    """One of the original schemas that apply to a value together.

    `raw` is the schema, or those of its keywords that still count, `path` is where it is, and `parents` are the paths of the
    schemas that apply it, by `allOf`, `anyOf`, `$ref` and the like.
    """

    raw: Any
    path: str
    parents: tuple[str, ...] = ()

    def subschema(self, raw: Any, path: str) -> "SchemaPart":
        """A schema inside this one that applies to the same value."""
        return SchemaPart(raw, path, (*self.parents, self.path))

    def covers(self, parts: Iterable["SchemaPart"]) -> bool:
        """Whether it is a parent of all other parts: then its `unevaluatedProperties` takes their properties into account."""
        return all(part is self or self.path in part.parents for part in parts)

    def decides_unevaluated(self, parts: Sequence["SchemaPart"]) -> bool:
        """Whether these parts alone decide what is unevaluated for it: no other alternative, no condition can evaluate more."""
        above = {self.path, *self.parents}
        within = {path for part in parts for path in (part.path, *part.parents)} - above
        return (
            self.covers(parts)
            and not any("/anyOf/" in path for path in within)
            and not any(EVALUATING & part.raw.keys() for part in parts)
            and not any(UNEVALUATED & part.raw.keys() for part in parts if part is not self)
        )

    def mapping_at(self, keyword: str) -> Mapping[str, Any]:
        """The value of a keyword that is a mapping; empty where there is none."""
        value = self.raw.get(keyword)
        return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}

    def list_at(self, keyword: str) -> list[Any]:
        """The value of a keyword that is a list; empty where there is none."""
        value = self.raw.get(keyword)
        return cast(list[Any], value) if isinstance(value, list) else []

    def value_lists(self) -> Iterator[list[Any]]:
        """The lists of allowed values: `enum`, and `const` as a list of one."""
        if "enum" in self.raw:
            yield self.list_at("enum")
        if "const" in self.raw:
            yield [self.raw["const"]]


class Normalizer(Protocol):
    """Combines schemas of one document into one schema in normal form. The keywords of arrays and objects need it for theirs."""

    with_implied: bool

    def combine(self, *parts: SchemaPart) -> NormalSchema | Unsatisfiable:
        """The schema of values that fit all the parts."""
        ...

    def is_valid(self, schema: Any, value: Any, keywords: UnenforcedKeywords) -> bool:
        """Whether a value fits a schema of the document. Where that cannot be checked, yes, and `keywords` are unenforced."""
        ...


def keyword_paths(parts: Iterable[SchemaPart]) -> dict[str, list[str]]:
    """The paths at which each keyword is used."""
    paths: dict[str, list[str]] = {}
    for part in parts:
        for keyword in part.raw:
            paths.setdefault(keyword, []).append(part.path)
    return paths


def with_keyword(parts: Iterable[SchemaPart], keyword: str) -> list[SchemaPart]:
    """The parts that use this keyword."""
    return [part for part in parts if keyword in part.raw]


def drop_repeated_types(parts: list[SchemaPart]) -> list[SchemaPart]:
    """The parts without those that only repeat `"type": "object"` or `"type": "array"`, as is common beside a `$ref`."""
    types = [part.raw.get("type") for part in parts if len(part.raw) > 1]
    return [
        part
        for part in parts
        if part.raw.keys() != {"type"} or part.raw["type"] not in STRUCTURES or part.raw["type"] not in types
    ]


def strictest_bound(parts: Iterable[SchemaPart], keyword: str, *, is_upper: bool) -> tuple[Any, str] | None:
    """The strictest value of this keyword among the parts, and its path."""
    bounds = [(part.raw[keyword], part.path) for part in with_keyword(parts, keyword) if type(part.raw[keyword]) in (int, float)]
    if not bounds:
        return None
    return min(bounds, key=lambda bound: bound[0]) if is_upper else max(bounds, key=lambda bound: bound[0])


def resolve(root: Mapping[str, Any], schema: NormalSchema) -> NormalSchema:
    """Follow references until there is a schema that is none."""
    while "$ref" in schema:
        schema = resolve_once(root, schema)
    return schema


def resolve_once(root: Mapping[str, Any], schema: NormalSchema) -> Any:
    """Follow one reference; the result may be another one."""
    return root["$defs"][schema["$ref"].removeprefix("#/$defs/")]


def children(schema: NormalSchema) -> Iterator[NormalSchema]:
    """Yield the schemas directly inside one."""
    inner: list[Any] = [*schema.get("anyOf", ()), *schema.get("prefixItems", ())]
    inner += [schema.get("items"), schema.get("additionalProperties")]
    inner += [*schema.get("properties", {}).values(), *schema.get("patternProperties", {}).values()]
    for item in inner:
        if isinstance(item, NormalSchema):
            yield item


def reachable(root: Mapping[str, Any], schema: NormalSchema) -> Iterator[NormalSchema]:
    """Yield the schema and every schema inside it, references followed, each once."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [resolve_once(root, current)] if "$ref" in current else children(current)


def collect_unenforced(root: NormalSchema, schema: NormalSchema) -> UnenforcedKeywords:
    """The unenforced keywords of the schema and of every schema inside it, each once."""
    return list(dict.fromkeys(keyword for item in reachable(root, schema) for keyword in item.unenforced))


def standalone(root: NormalSchema, schema: NormalSchema) -> NormalSchema:
    """The schema as a document of its own, with the definitions it needs."""
    names = {item["$ref"].removeprefix("#/$defs/") for item in reachable(root, schema) if "$ref" in item}
    whole = NormalSchema({keyword: value for keyword, value in schema.items() if keyword != "$defs"}, schema.path)
    whole.sources, whole.implied, whole.unenforced = schema.sources, schema.implied, schema.unenforced
    whole.plain_integers = schema.plain_integers
    if names:
        whole["$defs"] = {name: root["$defs"][name] for name in sorted(names)}
    return whole


def json_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON: 1 equals 1.0 but not true."""
    return json_key(one) == json_key(other)


def json_key(value: Any) -> Hashable:
    """A key that two values share exactly when they are equal in JSON."""
    match value:
        case bool():
            return bool, value
        case list():
            return tuple(map(json_key, cast(list[Any], value)))
        case dict():
            return frozenset((name, json_key(member)) for name, member in cast(dict[str, Any], value).items())
        case _:
            return value


def value_types(value: Any) -> set[str]:
    """The JSON Schema types of a value."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case str():
            return {"string"}
        case int():
            return {"integer"}
        case float():
            return {"integer"} if value.is_integer() else {"number"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def finite_definitions(defs: Mapping[str, Any]) -> set[str]:
    """The names of the definitions that a finite value fits."""
    finite: set[str] = set()
    while True:
        more = {
            name
            for name, schema in defs.items()
            if name not in finite and isinstance(schema, NormalSchema) and _has_finite_value(schema, finite)
        }
        if not more:
            return finite
        finite |= more


def is_in_use(defs: Mapping[str, Any], name: str) -> bool:
    """Whether a definition is referred to, or is a schema at all: one that no value fits and nothing refers to can be ignored."""
    wanted = f"#/$defs/{name}"
    waiting = [schema for schema in defs.values() if isinstance(schema, NormalSchema)]
    while waiting:
        current = waiting.pop()
        if current.get("$ref") == wanted:
            return True
        waiting += children(current)
    return isinstance(defs[name], NormalSchema)


def _has_finite_value(schema: NormalSchema, finite: set[str]) -> bool:
    """Whether a finite value fits, given the names of the definitions for which that is known."""
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/$defs/") in finite
    if "anyOf" in schema:
        return any(_has_finite_value(item, finite) for item in schema["anyOf"])
    if "enum" in schema or schema.types - {"array", "object"}:
        return True
    if "object" in schema.types:
        properties = schema.get("properties", {})
        if all(_has_finite_value(properties[name], finite) for name in schema.get("required", ())):
            return True
    if "array" in schema.types:
        places = [*schema.get("prefixItems", ()), *([schema["items"]] if "items" in schema else [])]
        return all(_has_finite_value(place, finite) for place in places[: schema.get("minItems", 0)])
    return False


def are_disjoint(root: Mapping[str, Any], one: Any, other: Any, depth: int = 0) -> bool:
    """Whether certainly no value generated for `one` fits `other` as well.

    Implied keywords limit only what is generated: they count for `one`, not for `other`.
    """
    if depth > 9 or not isinstance(one, NormalSchema) or not isinstance(other, NormalSchema):
        return other is False
    if "$ref" in one:  # it resolves to None while the definition is still being made
        return are_disjoint(root, resolve_once(root, one), other, depth + 1)
    if "$ref" in other:
        return are_disjoint(root, one, resolve_once(root, other), depth + 1)
    if "anyOf" in one:
        return all(are_disjoint(root, way, other, depth + 1) for way in one["anyOf"])
    if "anyOf" in other:
        return all(are_disjoint(root, one, way, depth + 1) for way in other["anyOf"])
    if "enum" in one:
        return not any(_may_fit(other, value) for value in one["enum"])
    if "enum" in other:
        return not any(_may_fit(one, value) for value in other["enum"])
    allowed = ALL_TYPES if "type" in other.implied else other.types
    return all(_are_disjoint_as(root, kind, one, other, depth) for kind in common_types(one.types, allowed))


def _are_disjoint_as(root: Mapping[str, Any], kind: str, one: NormalSchema, other: NormalSchema, depth: int) -> bool:
    match kind:
        case "string":
            return _are_disjoint_bounds(one, other, "minLength", "maxLength")
        case "integer" | "number":
            return _are_disjoint_bounds(one, other, "minimum", "maximum")
        case "array":
            places = zip(one.get("prefixItems", ()), other.get("prefixItems", ()), strict=False)
            least = max(one.get("minItems", 0), other.get("minItems", 0))
            return _are_disjoint_bounds(one, other, "minItems", "maxItems") or any(
                are_disjoint(root, a, b, depth + 1) for at, (a, b) in enumerate(places) if at < least
            )
        case "object":
            return _are_disjoint_objects(root, one, other, depth)
        case _:
            return False


def _are_disjoint_objects(root: Mapping[str, Any], one: NormalSchema, other: NormalSchema, depth: int) -> bool:
    mine, yours = one.get("properties", {}), other.get("properties", {})
    needed = {*one.get("required", ()), *other.get("required", ())}
    if any(name in mine and name in yours and are_disjoint(root, mine[name], yours[name], depth + 1) for name in needed):
        return True
    never_mine = one.get("additionalProperties") is False and "patternProperties" not in one
    if never_mine and any(name not in mine for name in other.get("required", ())):
        return True
    closed = other.get("additionalProperties") is False and "additionalProperties" not in other.implied
    return closed and "patternProperties" not in other and any(name not in yours for name in one.get("required", ()))


def _are_disjoint_bounds(one: NormalSchema, other: NormalSchema, least: str, most: str) -> bool:
    low, high = one.get(least), one.get(most)
    floor, ceiling = other.get(least), other.get(most)
    return (low is not None and ceiling is not None and low > ceiling) or (
        high is not None and floor is not None and floor > high
    )


def _may_fit(schema: NormalSchema, value: Any) -> bool:
    """Whether a value may fit; False only where it certainly does not."""
    if "enum" in schema:
        return any(json_equal(value, item) for item in schema["enum"])
    if "type" not in schema.implied and not common_types(value_types(value), schema.types):
        return False
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True
