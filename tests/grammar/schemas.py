"""Schemas at random, such as tools and configuration files have them: every keyword, nested, with references and unions.

The same seed makes the same schema.
"""

import random
from typing import Any

from callsmith.core.values import Schema

NAMES = ("id", "name", "kind", "size", "tags", "owner", "größe", "a b", "x-y", "$ref", "type", "default", "0", "items")
WORDS = ("red", "blue", "five", "5", "true", "null", "a b", "it's", 'so "so"', "日本", "")
PATTERNS = (
    r"^[a-z]+$", r"^\d{3}-\d{2}$", r"^(foo|bar)_[0-9]+$", r"[aeiou]", r"^.{2,4}$", r"^[^\s@]+@[^\s@]+$", r"^\w+(\.\w+)*$",
    r"^(?!x)", r"\bword\b", r"^[\s\S]*$", r"^#[0-9a-fA-F]{6}$", r"^$|^[A-Z]",
)  # fmt: skip
FORMATS = ("date", "date-time", "time", "email", "uuid", "ipv4", "ipv6", "uri", "duration", "hostname", "int32", "iban", "regex")
NAME_PATTERNS = ("^x-", "^[a-z]{1,3}$", "[0-9]$", "^S_")
SCALARS = ("string", "integer", "number", "boolean", "null")


class Maker:
    """Makes one schema document."""

    def __init__(self, seed: int | str) -> None:
        self.chance = random.Random(seed)
        self.defs: list[str] = []

    def parameters(self) -> Schema:
        """The schema of a tool's arguments."""
        chance = self.chance
        self.defs = [f"D{number}" for number in range(chance.choice((0, 0, 1, 2)))]
        schema = self._object(3)
        place = chance.choice(("$defs", "definitions"))
        if self.defs:
            schema[place] = {name: self._definition(name) for name in self.defs}
            self._point(schema, place)
        if chance.random() < 0.3:
            schema["$schema"] = "http://json-schema.org/draft-07/schema#"
        return schema

    def _point(self, schema: Any, place: str) -> None:
        """References are made before it is known where the definitions stand."""
        if isinstance(schema, dict):
            if isinstance(schema.get("$ref"), str):
                schema["$ref"] = schema["$ref"].replace("#/$defs/", f"#/{place}/")
            for inner in schema.values():
                self._point(inner, place)
        elif isinstance(schema, list):
            for inner in schema:
                self._point(inner, place)

    def _definition(self, name: str) -> dict[str, Any]:
        drawn = self._object(2) if self.chance.random() < 0.7 else self._schema(1)
        if drawn.get("type") == "object" and self.chance.random() < 0.5:
            again: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
            drawn["properties"]["again"] = self.chance.choice(
                [{"anyOf": [again, {"type": "null"}]}, {"type": "array", "items": again, "maxItems": 2}, again]
            )
        return drawn

    def _schema(self, depth: int) -> dict[str, Any]:
        chance = self.chance
        ways = [self._scalar] * 6 + [self._listed] * 2
        if depth > 0:
            ways += [self._object, self._object, self._array, self._array, self._union, self._together]
        if self.defs:
            ways += [self._reference]
        drawn = chance.choice(ways)(depth - 1)
        if chance.random() < 0.2:
            drawn |= chance.choice(
                [{"description": "said only"}, {"title": "T"}, {"default": None}, {"example": 1}, {"x-more": {}}]
            )
        if chance.random() < 0.06 and isinstance(drawn.get("type"), str) and "enum" not in drawn:
            drawn["nullable"] = True
        return drawn

    def _scalar(self, depth: int) -> dict[str, Any]:
        kind = self.chance.choice(SCALARS[:4] + SCALARS[:3])
        drawn: dict[str, Any] = {"type": kind}
        if self.chance.random() < 0.1:
            drawn["type"] = sorted({kind, self.chance.choice(SCALARS)})
        kinds = drawn["type"] if isinstance(drawn["type"], list) else [kind]
        if "string" in kinds and self.chance.random() < 0.6:
            drawn |= self._of_string()
        if {"integer", "number"} & {*kinds} and self.chance.random() < 0.6:
            drawn |= self._of_number("number" in kinds)
        return {} if self.chance.random() < 0.03 else drawn

    def _of_string(self) -> dict[str, Any]:
        chance = self.chance
        least = chance.randrange(0, 4)
        return chance.choice(
            [
                {"minLength": least, "maxLength": least + chance.randrange(0, 8)},
                {"minLength": least},
                {"maxLength": 5 + least},
                {"pattern": chance.choice(PATTERNS)},
                {"pattern": chance.choice(PATTERNS[:3]), "maxLength": 12},
                {"format": chance.choice(FORMATS)},
                {"not": {"const": "red"}},
            ]
        )

    def _of_number(self, fractions: bool) -> dict[str, Any]:
        chance = self.chance
        low = chance.choice([-1000, -7, 0, 1, 3, 0.5 if fractions else 2, -2.5 if fractions else -2])
        drawn = chance.choice(
            [
                {"minimum": low},
                {"maximum": low},
                {"minimum": low, "maximum": low + chance.choice([1, 10, 12345])},
                {"exclusiveMinimum": low, "maximum": low + 40},
                {"minimum": low, "exclusiveMaximum": low + 2},
                {"multipleOf": chance.choice([2, 5, 7, 0.25 if fractions else 3])},
                {"minimum": 0, "maximum": 10**18},
            ]
        )
        return {**drawn, "format": "double"} if chance.random() < 0.1 else drawn

    def _listed(self, depth: int) -> dict[str, Any]:
        chance = self.chance
        if chance.random() < 0.3:
            return {"const": chance.choice([*WORDS, None, True, 0, 2.5])}
        mixed = chance.random() < 0.3
        values: list[Any] = chance.sample(WORDS, chance.randrange(1, 5))
        values += chance.sample([None, True, 1, 2.5, [1, "a"], {"a": 1}], 2) if mixed else []
        return {"enum": values} if mixed or chance.random() < 0.4 else {"type": "string", "enum": values}

    def _array(self, depth: int) -> dict[str, Any]:
        chance = self.chance
        drawn: dict[str, Any] = {"type": "array"}
        kind = chance.random()
        if kind < 0.7:
            drawn["items"] = self._schema(depth)
        elif kind < 0.85:
            drawn["prefixItems"] = [self._schema(depth) for _ in range(chance.randrange(1, 3))]
            if chance.random() < 0.7:
                drawn["items"] = chance.choice([False, {"type": "integer"}])
        if chance.random() < 0.5:
            drawn["minItems"] = chance.randrange(0, 3)
        if chance.random() < 0.6:
            drawn["maxItems"] = drawn.get("minItems", 0) + chance.randrange(0, 3)
        if chance.random() < 0.15:
            drawn |= chance.choice([{"uniqueItems": True}, {"contains": {"type": "integer"}}])
        return drawn

    def _object(self, depth: int) -> dict[str, Any]:
        chance = self.chance
        names = chance.sample(NAMES, chance.randrange(0, 5))
        drawn: dict[str, Any] = {"type": "object", "properties": {name: self._schema(depth) for name in names}}
        if names and chance.random() < 0.8:
            drawn["required"] = chance.sample(names, chance.randrange(0, len(names) + 1))
        if chance.random() < 0.08:
            drawn["required"] = [*drawn.get("required", ()), "undeclared"]
        if chance.random() < 0.25:
            drawn["additionalProperties"] = chance.choice([False, True, {"type": "integer"}, {"type": "string"}])
        if chance.random() < 0.1:
            drawn["patternProperties"] = {
                pattern: self._scalar(0) for pattern in chance.sample(NAME_PATTERNS, chance.choice((1, 1, 2)))
            }
        if chance.random() < 0.12:
            drawn |= chance.choice(
                [
                    {"minProperties": 1}, {"maxProperties": 3}, {"unevaluatedProperties": False},
                    {"propertyNames": {"pattern": "^[a-z]+$"}}, {"propertyNames": {"maxLength": 6}},
                    {"dependentRequired": {"id": ["name"]}}, {"anyOf": [{"required": ["id"]}, {}]},
                    {"if": {"required": ["id"]}, "then": {"required": ["name"]}},
                ]
            )  # fmt: skip
        return drawn

    def _union(self, depth: int) -> dict[str, Any]:
        chance = self.chance
        keyword = chance.choice(("anyOf", "oneOf"))
        if chance.random() < 0.4:
            return {keyword: [self._tagged(tag, depth) for tag in ("circle", "square")]}
        drawn: dict[str, Any] = {keyword: [self._schema(depth) for _ in range(chance.randrange(1, 4))]}
        if chance.random() < 0.3:
            drawn[keyword].append({"type": "null"})
        return drawn

    def _tagged(self, tag: str, depth: int) -> dict[str, Any]:
        drawn = self._object(depth)
        drawn["properties"] = {"kind": {"const": tag}} | {
            key: value for key, value in drawn["properties"].items() if key != "kind"
        }
        drawn["required"] = sorted({"kind", *drawn.get("required", ())})
        return drawn

    def _together(self, depth: int) -> dict[str, Any]:
        """Schemas that hold at once."""
        chance = self.chance
        return chance.choice(
            [
                lambda: {"allOf": [self._object(depth), self._object(depth)]},
                lambda: {**self._object(depth), "allOf": [{"required": [chance.choice(NAMES)]}]},
                lambda: {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 6, "pattern": "^[a-z]"}]},
                lambda: {"type": "integer", "allOf": [{"minimum": 0}, {"maximum": 9, "multipleOf": 3}]},
                lambda: {**self._object(depth), "anyOf": [self._object(0), {"required": [chance.choice(NAMES)]}]},
            ]
        )()

    def _reference(self, depth: int) -> dict[str, Any]:
        drawn: dict[str, Any] = {"$ref": f"#/$defs/{self.chance.choice(self.defs)}"}
        return {**drawn, "description": "beside a reference"} if self.chance.random() < 0.4 else drawn


def schema(seed: int | str) -> Schema:
    """A schema of tool arguments."""
    return Maker(seed).parameters()
