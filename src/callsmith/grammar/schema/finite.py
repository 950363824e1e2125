"""Which definitions a finite value fits. None fits a definition that requires itself."""

from collections.abc import Mapping
from typing import Any

from callsmith.grammar.schema.normal_form import NormalSchema, children


def finite_definitions(defs: Mapping[str, Any]) -> set[str]:
    """The names of the definitions that a finite value fits."""
    found: set[str] = set()
    while True:
        more = {
            name
            for name, one in defs.items()
            if name not in found and isinstance(one, NormalSchema) and _has_finite_value(one, found)
        }
        if not more:
            return found
        found |= more


def is_in_use(defs: Mapping[str, Any], name: str) -> bool:
    """Whether a definition is referred to, or is a schema at all: one that no value fits and nothing refers to can be ignored."""
    wanted = f"#/$defs/{name}"
    waiting = [one for one in defs.values() if isinstance(one, NormalSchema)]
    while waiting:
        one = waiting.pop()
        if one.get("$ref") == wanted:
            return True
        waiting += children(one)
    return isinstance(defs[name], NormalSchema)


def _has_finite_value(schema: NormalSchema, finite: set[str]) -> bool:
    """Whether a finite value fits, given the names of the definitions for which that is known."""
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/$defs/") in finite
    if "anyOf" in schema:
        return any(_has_finite_value(one, finite) for one in schema["anyOf"])
    if "enum" in schema or schema.types - {"array", "object"}:
        return True
    if "object" in schema.types:
        properties = schema.get("properties", {})
        if all(_has_finite_value(properties[name], finite) for name in schema.get("required", ())):
            return True
    if "array" in schema.types:
        places = [*schema.get("prefixItems", ()), *([schema["items"]] if "items" in schema else [])]
        return all(_has_finite_value(one, finite) for one in places[: schema.get("minItems", 0)])
    return False
