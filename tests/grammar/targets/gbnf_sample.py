"""Schemas with values that satisfy them and values that do not: made at random over every keyword, and those of BFCL's tools.

What counts as valid is what jsonschema-rs says, formats included.
"""

import copy
import gzip
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs

WORDS = ("a", "ab", "abc", "name", "città", "x y", 'q"t', "back\\slash", "n/a", "", "😀", "line\nbreak", "5", "true", "größe")
KEYS = ("a", "ab", "b", "name", "größe", "x y", 'q"t', "zip", "id_1", "n/a")
PATTERNS = (
    "^a.b$", r"^\d{3}-\d{4}$", "^[A-Z][a-z]+$", r"\d", "b$", "^a", r"^\w+@\w+\.com$", "^(foo|bar)?baz$", r"^[^\"\\]*$",
    r"^\S+( \S+)*$", "^.{2,4}$", r"^(a*)*b$", "^(?:[0-9]{1,3}\\.){3}[0-9]{1,3}$", "^é+$",
)  # fmt: skip
TEXTS = (
    "a\"b", "axb", "a\\b", "123-4567", "12-4567", "Hello", "hello", "7", "ab", "b", "abz", "me@x.com", "foobaz", "baz", "ba",
    "aab", "a b  c", "a b", "1.2.3.4", "éé", "xé", "a\nb", "abcde", "a/b",
)  # fmt: skip
FORMATTED = {
    "date": ("2024-02-29", "2023-02-29", "2023-12-31", "2023-13-01", "23-1-1"),
    "time": ("10:20:30Z", "10:20:30.5+01:00", "25:00:00Z", "10:20"),
    "date-time": ("2024-05-06T07:08:09Z", "2024-05-06 07:08:09Z", "2024-05-06T07:08:09.123-05:00", "2024-05-06"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000", "x"),
    "email": ("a@b.com", "first.last+tag@sub.example.org", "a@", "@b.com", "plain"),
    "ipv4": ("127.0.0.1", "256.0.0.1", "1.2.3", "8.8.8.8"),
    "ipv6": ("::1", "2001:db8::ff00:42:8329", "1::2::3", "12345::", "::ffff:1.2.3.4"),
    "hostname": ("example.com", "a-b.c", "-a.com", "a_b.com"),
    "uri": ("https://example.com/a?b=c#d", "mailto:x@y.z", "no scheme", "//host/path", "urn:isbn:123"),
    "duration": ("P1Y2M3D", "PT1H30M", "P1W", "P", "1Y", "P3DT4S"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, and values with the verdict on each."""

    schema: Any
    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]
    origin: str = ""


def spelled(value: Any, *, ascii: bool = False) -> str:
    """The value as our grammars write it."""
    return json.dumps(value, ensure_ascii=ascii)


class Maker:
    """Draws schemas and values; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def schema(self, depth: int = 2) -> Any:
        kinds: list[Callable[[int], Any]] = [self.text, self.number, self.integer, self.fixed, self.small]
        if depth:
            kinds += [self.object, self.object, self.array, self.array, self.choice, self.merged, self.referred]
        return self.chance.choice(kinds)(depth)

    def some(self, options: dict[str, Callable[[], Any]], odds: float = 0.4) -> dict[str, Any]:
        return {keyword: make() for keyword, make in options.items() if self.chance.random() < odds}

    def text(self, depth: int) -> Any:
        way = self.chance.random()
        if way < 0.3:
            return {"type": "string", "pattern": self.chance.choice(PATTERNS), **self.lengths(0.15)}
        if way < 0.55:
            return {"type": "string", "format": self.chance.choice(list(FORMATTED))}
        return {"type": "string", **self.lengths(0.5)}

    def lengths(self, odds: float) -> dict[str, Any]:
        least = self.chance.randrange(4)
        return self.some({"minLength": lambda: least, "maxLength": lambda: least + self.chance.randrange(4)}, odds)

    def integer(self, depth: int) -> Any:
        low = self.chance.randrange(-150, 150)
        high = low + self.chance.randrange(0, 300)
        bounds = {
            "minimum": lambda: low,
            "maximum": lambda: high,
            "exclusiveMinimum": lambda: low - 1,
            "exclusiveMaximum": lambda: high + 1,
        }
        return {
            "type": "integer",
            **self.some(bounds),
            **self.some({"multipleOf": lambda: self.chance.choice((2, 3, 5, 10))}, 0.15),
        }

    def number(self, depth: int) -> Any:
        low = round(self.chance.uniform(-20, 20), self.chance.randrange(3))
        high = round(low + self.chance.uniform(0.5, 50), self.chance.randrange(3))
        bounds = {
            "minimum": lambda: low,
            "maximum": lambda: high,
            "exclusiveMinimum": lambda: low,
            "exclusiveMaximum": lambda: high,
        }
        return {"type": "number", **self.some(bounds, 0.3), **self.some({"multipleOf": lambda: 0.5}, 0.03)}

    def fixed(self, depth: int) -> Any:
        values = self.chance.sample(
            [*WORDS[:9], 1, 2.5, True, None, 0, -7, ["a", 1], {"a": 1}, 1e-7], self.chance.randrange(1, 5)
        )
        if self.chance.random() < 0.3:
            return {"const": values[0]}
        return {"enum": values}

    def small(self, depth: int) -> Any:
        return copy.deepcopy(
            self.chance.choice(
                [{"type": "boolean"}, {"type": "null"}, True, {}, {"type": ["string", "null"]}, {"type": ["integer", "boolean"]}]
            )
        )

    def object(self, depth: int) -> Any:
        names = self.chance.sample(KEYS, self.chance.choice((0, 1, 2, 3, 4, 6)))
        schema: dict[str, Any] = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        schema["required"] = [name for name in names if self.chance.random() < 0.5]
        if self.chance.random() < 0.1:
            schema["required"].append("extra")
        if self.chance.random() < 0.5:
            schema["additionalProperties"] = self.chance.choice([False, False, True, {"type": "integer"}, self.schema(0)])
        if self.chance.random() < 0.15:
            schema["patternProperties"] = {self.chance.choice(("^x-", "z$", "[0-9]")): self.schema(0)}
        least = self.chance.randrange(len(names) + 1)
        counts = {"minProperties": lambda: least, "maxProperties": lambda: max(least, len(schema["required"])) + 1}
        return {**schema, **self.some(counts, 0.12)}

    def array(self, depth: int) -> Any:
        least = self.chance.randrange(3)
        counts = self.some({"minItems": lambda: least, "maxItems": lambda: least + self.chance.randrange(3)}, 0.35)
        if self.chance.random() < 0.3:
            first = [self.schema(depth - 1) for _ in range(self.chance.randrange(1, 4))]
            rest = self.some({"items": lambda: self.chance.choice([False, {"type": "integer"}])}, 0.6)
            return {"type": "array", "prefixItems": first, **rest, **counts}
        return {"type": "array", "items": self.schema(depth - 1), **counts}

    def choice(self, depth: int) -> Any:
        ways = [self.schema(depth - 1) for _ in range(self.chance.randrange(2, 4))]
        if self.chance.random() < 0.3:
            ways = [
                {"type": "object", "properties": {"kind": {"const": str(number)}, "v": value}, "required": ["kind"]}
                for number, value in enumerate(ways)
            ]
            return {"oneOf": ways}
        beside = {"properties": {"a": {"type": "integer"}}} if self.chance.random() < 0.2 else {}
        return {"anyOf": ways, **beside}

    def merged(self, depth: int) -> Any:
        way = self.chance.random()
        if way < 0.4:
            return {"allOf": [self.object(depth - 1) | {"additionalProperties": True}, {"type": "object", "required": ["ab"]}]}
        if way < 0.7:
            return {"allOf": [{"type": "integer", "minimum": -3}, {"maximum": 40}], "exclusiveMaximum": 30}
        return {"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}

    def referred(self, depth: int) -> Any:
        inner = self.schema(0)
        return self.chance.choice(
            [
                {"$ref": "#/$defs/one~1two", "$defs": {"one/two": inner}},
                {"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "string"}}},
                {
                    "type": "object",
                    "properties": {"v": inner, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                    "required": ["v"],
                },
                {"$ref": "#/definitions/a%20b", "definitions": {"a b": {"type": "array", "items": inner}}},
            ]
        )

    # --- values -----------------------------------------------------------------------------------------------------------

    def any_value(self, depth: int = 1) -> Any:
        kinds: list[Any] = [self.chance.choice(WORDS), self.chance.choice(TEXTS), self.chance.randrange(-200, 300)]
        kinds += [round(self.chance.uniform(-30, 60), 2), True, False, None]
        if depth:
            kinds.append([self.any_value(0) for _ in range(self.chance.randrange(4))])
            kinds.append({name: self.any_value(0) for name in self.chance.sample((*KEYS, "extra", "x-1", "ad"), 2)})
        return self.chance.choice(kinds)

    def value(self, schema: Any, root: Any, depth: int = 0) -> Any:
        """A value that is meant to satisfy the schema; often it does."""
        if schema is True or schema == {} or schema is False or depth > 6:
            return self.any_value()
        if "$ref" in schema:
            return self.value(_target(root, schema["$ref"]), root, depth + 1)
        if "allOf" in schema:
            return self.value(
                _joined([*schema["allOf"], {key: value for key, value in schema.items() if key != "allOf"}]), root, depth
            )
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                rest = {key: value for key, value in schema.items() if key != keyword}
                return self.value(_joined([rest, self.chance.choice(schema[keyword])]), root, depth + 1)
        if "enum" in schema or "const" in schema:
            return self.chance.choice(schema.get("enum", [schema.get("const")]))
        kinds = schema.get("type", ["string", "integer", "object", "array"])
        match self.chance.choice(kinds) if isinstance(kinds, list) else kinds:
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                low = schema.get("minimum", schema.get("exclusiveMinimum", -20))
                high = schema.get("maximum", schema.get("exclusiveMaximum", low + 40))
                return round(self.chance.uniform(low, high), self.chance.randrange(1, 5)) if high > low else low
            case "boolean":
                return self.chance.random() < 0.5
            case "null":
                return None
            case "array":
                return self._array(schema, root, depth)
            case _:
                return self._object(schema, root, depth)

    def _string(self, schema: Any) -> str:
        if "format" in schema:
            return self.chance.choice(FORMATTED[schema["format"]])
        if "pattern" in schema:
            return self.chance.choice(TEXTS)
        least = schema.get("minLength", 0)
        size = self.chance.randint(least, schema.get("maxLength", least + 5))
        letters = string.ascii_letters + " \"\\/\n\té😀ß\x01\x7f'"
        return "".join(self.chance.choice(letters) for _ in range(size))

    def _integer(self, schema: Any) -> int:
        low = max(schema.get("minimum", -200), schema.get("exclusiveMinimum", -201) + 1)
        high = min(schema.get("maximum", low + 400), schema.get("exclusiveMaximum", low + 401) - 1)
        value = self.chance.randint(low, high) if high >= low else low
        step = schema.get("multipleOf", 1)
        return value - value % step

    def _array(self, schema: Any, root: Any, depth: int) -> list[Any]:
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        least = schema.get("minItems", 0)
        size = self.chance.randint(least, schema.get("maxItems", least + 3))
        if rest is False:
            size = min(size, len(first))
        return [self.value(first[at] if at < len(first) else rest, root, depth + 1) for at in range(size)]

    def _object(self, schema: Any, root: Any, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        required = schema.get("required", [])
        for name, inner in schema.get("properties", {}).items():
            if name in required or self.chance.random() < (0.5 if depth < 4 else 0.1):
                members[name] = self.value(inner, root, depth + 1)
        for name in required:
            members.setdefault(name, self.value(schema.get("additionalProperties", True), root, depth + 1))
        for pattern, inner in schema.get("patternProperties", {}).items():
            if self.chance.random() < 0.5:
                members[{"^x-": "x-1", "z$": "buzz", "[0-9]": "n7"}[pattern]] = self.value(inner, root, depth + 1)
        if schema.get("additionalProperties", True) is not False and self.chance.random() < 0.3:
            members[self.chance.choice(("ad", "abcd", "Z"))] = self.value(
                schema.get("additionalProperties", True), root, depth + 1
            )
        return members

    def spoilt(self, value: Any) -> Any:
        """Almost the same value."""
        way = self.chance.random()
        if isinstance(value, dict) and value and way < 0.75:
            changed = dict(value)
            name = self.chance.choice(list(value))
            if way < 0.25:
                del changed[name]
            elif way < 0.35:
                changed[self.chance.choice(("nope", "ac", name + "x", name[:-1]))] = self.any_value()
            else:
                changed[name] = self.spoilt(value[name])
            return changed
        if isinstance(value, list) and value and way < 0.75:
            at = self.chance.randrange(len(value))
            if way < 0.2:
                return value[:at] + value[at + 1 :]
            if way < 0.4:
                return [*value, self.any_value()]
            return [*value[:at], self.spoilt(value[at]), *value[at + 1 :]]
        if isinstance(value, str) and way < 0.6:
            return self.chance.choice((value + "x", value[:-1], value.upper(), value + '"', value * 2))
        if isinstance(value, int | float) and not isinstance(value, bool) and way < 0.6:
            return self.chance.choice((value + 1, value - 1, -value, value * 100, value + 0.5))
        return self.any_value()


def _target(root: Any, reference: str) -> Any:
    return {
        "#": root,
        "#/$defs/one~1two": root.get("$defs", {}).get("one/two"),
        "#here": {"type": "string"},
        "#/definitions/a%20b": root.get("definitions", {}).get("a b"),
    }[reference] or {}


def _joined(schemas: list[Any]) -> Any:
    out: dict[str, Any] = {}
    for schema in schemas:
        if isinstance(schema, dict):
            out |= {
                **schema,
                **{
                    key: {**out.get(key, {}), **schema[key]} if key == "properties" else [*out.get(key, []), *schema[key]]
                    for key in ("properties", "required")
                    if key in schema
                },
            }
    return out


def judged(schema: Any, values: Iterator[Any], origin: str = "") -> Case:
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    good: dict[str, Any] = {}
    bad: dict[str, Any] = {}
    for value in values:
        (good if validator.is_valid(value) else bad)[spelled(value)] = value
    return Case(schema, tuple(good.values()), tuple(bad.values()), origin)


def random_cases(count: int, seed: int = 0, values: int = 12) -> Iterator[Case]:
    """Schemas made up, each with values around it."""
    for number in range(count):
        maker = Maker(seed * 1_000_003 + number)
        schema = maker.schema(2)
        if isinstance(schema, bool):
            continue
        if "$ref" in json.dumps(schema):  # what refers to the root must be the root
            schema = maker.referred(2)

        def drawn(maker: Maker = maker, schema: Any = schema) -> Iterator[Any]:
            for _ in range(values):
                value = maker.value(schema, schema)
                yield value
                yield maker.spoilt(value)

        yield judged(schema, drawn(), f"random {number}")


def bfcl_cases(corpus: Path, count: int | None = None) -> Iterator[Case]:
    """BFCL's tools: the arguments of the gold calls, and those arguments spoilt."""
    count_so_far = 0
    with gzip.open(corpus / "bfcl_gold.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            body = json.loads(line)
            tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
            for call in body["gold"] or ():
                if call["name"] not in tools or (count is not None and count_so_far >= count):
                    continue
                count_so_far += 1
                maker = Maker(number)
                spoilt = (maker.spoilt(call["arguments"]) for _ in range(6))
                yield judged(closed(tools[call["name"]]), iter((call["arguments"], *spoilt)), body["id"])


def closed(schema: Any) -> Any:
    """The schema as the grammars of calls take it: an object that lists its properties has no others."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed_schema = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed_schema.setdefault("additionalProperties", False)
    return closed_schema
