"""A simple schema: what is left of a JSON Schema once references, compositions and habits are worked out.

It is one of
    {}                              anything
    {"enum": [...]}                 one of these values, each of which is known to fit
    {"anyOf": [simple, ...]}        one of these, nothing beside it
    {"$ref": "#/$defs/d0"}          another one, by name, nothing beside it
    {"type": ..., keywords}         values of these types, under keywords that a grammar enforces
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from callsmith.formats.reader.typed import ALL_TYPES, common_types

STRUCTURES = ("object", "array")
Left = list[tuple[str, str]]  # (path, keyword) of what was left out


class Simple(dict[str, Any]):
    """A simple schema of the place `path`. `said` has the places of every keyword that it was made from.

    `implied` are keywords nobody wrote but everybody means: an object that lists its properties has no others, what has a
    `pattern` is a string. `left` is what the schema at this place says beyond it.
    """

    __slots__ = ("implied", "left", "path", "said")

    def __init__(self, schema: Mapping[str, Any], path: str) -> None:
        super().__init__(schema)
        self.path = path
        self.said: Mapping[str, Sequence[str]] = {}
        self.implied: frozenset[str] = frozenset()
        self.left: Left = []

    @property
    def types(self) -> frozenset[str]:
        """The types it allows; an enum has none of its own, nor has what only points elsewhere."""
        kinds: str | list[str] | None = self.get("type")
        return ALL_TYPES if kinds is None else frozenset({kinds} if isinstance(kinds, str) else kinds)


@dataclass(frozen=True, slots=True)
class Never:
    """No value fits: the place and keyword that make it so, and why."""

    path: str
    keyword: str
    why: str


class Part(NamedTuple):
    """A schema as it was written, or the keywords of it that still count, its path, and those whose `allOf` and such it is in."""

    raw: Any
    path: str
    within: tuple[str, ...] = ()

    def inner(self, raw: Any, path: str) -> "Part":
        """A schema that this one applies to the same value."""
        return Part(raw, path, (*self.within, self.path))

    def sees(self, parts: Iterable["Part"]) -> bool:
        """Whether it applies all the other parts itself, so that what they evaluate is evaluated to it."""
        return all(part is self or self.path in part.within for part in parts)

    def mapping(self, keyword: str) -> Mapping[str, Any]:
        """The value of a keyword that is a mapping; empty where it is not said."""
        value = self.raw.get(keyword)
        return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}

    def listed(self, keyword: str) -> list[Any]:
        """The value of a keyword that is a list; empty where it is not said."""
        value = self.raw.get(keyword)
        return cast(list[Any], value) if isinstance(value, list) else []

    def listings(self) -> Iterator[list[Any]]:
        """The lists of values it allows."""
        if "enum" in self.raw:
            yield self.listed("enum")
        if "const" in self.raw:
            yield [self.raw["const"]]


class Walk(Protocol):
    """What works schemas together, and knows the document they belong to."""

    habits: bool

    def schema(self, *parts: Part) -> Simple | Never:
        """What fits all the parts."""
        ...

    def valid(self, schema: Any, value: Any, told: Left) -> bool:
        """Whether a value fits a schema of this document; yes where it cannot be tried, but then what is `told` is left out."""
        ...


def places(parts: Iterable[Part]) -> dict[str, list[str]]:
    """Where each keyword is said."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for keyword in part.raw:
            found.setdefault(keyword, []).append(part.path)
    return found


def saying(parts: Iterable[Part], keyword: str) -> list[Part]:
    """The parts that say this keyword."""
    return [part for part in parts if keyword in part.raw]


def telling(parts: list[Part]) -> list[Part]:
    """The parts, without those that only repeat that it is an object, or an array, as what stands beside a `$ref` often does."""
    said = [part.raw.get("type") for part in parts if len(part.raw) > 1]
    return [
        part
        for part in parts
        if part.raw.keys() != {"type"} or part.raw["type"] not in STRUCTURES or part.raw["type"] not in said
    ]


def tightest(parts: Iterable[Part], keyword: str, *, most: bool) -> tuple[Any, str] | None:
    """The strictest of the bounds the parts set, and where."""
    found = [(part.raw[keyword], part.path) for part in saying(parts, keyword) if type(part.raw[keyword]) in (int, float)]
    if not found:
        return None
    return min(found, key=lambda one: one[0]) if most else max(found, key=lambda one: one[0])


def resolved(root: Mapping[str, Any], simple: Simple) -> Simple:
    """The schema a reference leads to."""
    while "$ref" in simple:
        simple = resolved_once(root, simple)
    return simple


def resolved_once(root: Mapping[str, Any], simple: Simple) -> Any:
    """What a reference leads to, which may be another."""
    return root["$defs"][simple["$ref"].removeprefix("#/$defs/")]


def inner(simple: Simple) -> Iterator[Simple]:
    """The schemas directly inside one."""
    found: list[Any] = [*simple.get("anyOf", ()), *simple.get("prefixItems", ())]
    found += [simple.get("items"), simple.get("additionalProperties")]
    found += [*simple.get("properties", {}).values(), *simple.get("patternProperties", {}).values()]
    for one in found:
        if isinstance(one, Simple):
            yield one


def reachable(root: Mapping[str, Any], simple: Simple) -> Iterator[Simple]:
    """The schema and every schema inside it, through references, each once."""
    seen: set[int] = set()
    waiting = [simple]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [resolved_once(root, one)] if "$ref" in one else inner(one)


# --- alternatives that exclude each other -------------------------------------------------------------------------------------


def disjoint(root: Mapping[str, Any], one: Any, other: Any, depth: int = 0) -> bool:
    """Whether surely no value made for `one` fits `other` as well. What is implied binds only what is made."""
    if depth > 9 or not isinstance(one, Simple) or not isinstance(other, Simple):
        return other is False
    if "$ref" in one:  # to nothing yet, while what it refers to is still being made
        return disjoint(root, resolved_once(root, one), other, depth + 1)
    if "$ref" in other:
        return disjoint(root, one, resolved_once(root, other), depth + 1)
    if "anyOf" in one:
        return all(disjoint(root, way, other, depth + 1) for way in one["anyOf"])
    if "anyOf" in other:
        return all(disjoint(root, one, way, depth + 1) for way in other["anyOf"])
    if "enum" in one:
        return not any(_may_fit(other, value) for value in one["enum"])
    if "enum" in other:
        return not any(_may_fit(one, value) for value in other["enum"])
    allowed = ALL_TYPES if "type" in other.implied else other.types
    return all(_apart(root, kind, one, other, depth) for kind in common_types(one.types, allowed))


def _apart(root: Mapping[str, Any], kind: str, one: Simple, other: Simple, depth: int) -> bool:
    match kind:
        case "string":
            return _beyond(one, other, "minLength", "maxLength")
        case "integer" | "number":
            return _beyond(one, other, "minimum", "maximum")
        case "array":
            places = zip(one.get("prefixItems", ()), other.get("prefixItems", ()), strict=False)
            least = max(one.get("minItems", 0), other.get("minItems", 0))
            return _beyond(one, other, "minItems", "maxItems") or any(
                disjoint(root, a, b, depth + 1) for at, (a, b) in enumerate(places) if at < least
            )
        case "object":
            return _objects_apart(root, one, other, depth)
        case _:
            return False


def _objects_apart(root: Mapping[str, Any], one: Simple, other: Simple, depth: int) -> bool:
    mine, yours = one.get("properties", {}), other.get("properties", {})
    needed = {*one.get("required", ()), *other.get("required", ())}
    if any(name in mine and name in yours and disjoint(root, mine[name], yours[name], depth + 1) for name in needed):
        return True
    never_mine = one.get("additionalProperties") is False and "patternProperties" not in one
    if never_mine and any(name not in mine for name in other.get("required", ())):
        return True
    closed = other.get("additionalProperties") is False and "additionalProperties" not in other.implied
    return closed and "patternProperties" not in other and any(name not in yours for name in one.get("required", ()))


def _beyond(one: Simple, other: Simple, least: str, most: str) -> bool:
    low, high = one.get(least), one.get(most)
    floor, ceiling = other.get(least), other.get(most)
    return (low is not None and ceiling is not None and low > ceiling) or (
        high is not None and floor is not None and floor > high
    )


def _may_fit(schema: Simple, value: Any) -> bool:
    """Whether a value may fit: no only where that is sure."""
    if "enum" in schema:
        return any(same(value, one) for one in schema["enum"])
    if "type" not in schema.implied and not common_types(kinds_of(value), schema.types):
        return False
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True


def same(one: Any, other: Any) -> bool:
    """Equal as JSON has it: 1 is 1.0 but not true."""
    return identity(one) == identity(other)


def identity(value: Any) -> Hashable:
    """What values that are the same as JSON has it have in common."""
    match value:
        case bool():
            return bool, value
        case list():
            return tuple(map(identity, cast(list[Any], value)))
        case dict():
            return frozenset((name, identity(one)) for name, one in cast(dict[str, Any], value).items())
        case _:
            return value


def kinds_of(value: Any) -> set[str]:
    """The types a value has."""
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
