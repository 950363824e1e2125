"""Whether two schemas in normal form exclude each other, so that no value fits both."""

from collections.abc import Mapping
from typing import Any

from callsmith.formats.reader.typed import ALL_TYPES, common_types
from callsmith.grammar.schema.normal_form import NormalSchema, json_equal, resolve_once, value_types


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
        return any(json_equal(value, one) for one in schema["enum"])
    if "type" not in schema.implied and not common_types(value_types(value), schema.types):
        return False
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True
