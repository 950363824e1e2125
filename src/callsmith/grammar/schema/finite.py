"""Definitions that no finite value fits, because they need themselves."""

from collections.abc import Mapping
from typing import Any

from callsmith.grammar.schema.normal_form import Simple, inner


def ending(defs: Mapping[str, Any]) -> set[str]:
    """The names of the definitions that a finite value fits."""
    found: set[str] = set()
    while True:
        more = {name for name, one in defs.items() if name not in found and isinstance(one, Simple) and _ends(one, found)}
        if not more:
            return found
        found |= more


def harmful(defs: Mapping[str, Any], name: str) -> bool:
    """Whether something in a definition refers to it: one that fits nothing and is not referred to does no harm."""
    wanted = f"#/$defs/{name}"
    waiting = [one for one in defs.values() if isinstance(one, Simple)]
    while waiting:
        one = waiting.pop()
        if one.get("$ref") == wanted:
            return True
        waiting += inner(one)
    return isinstance(defs[name], Simple)


def _ends(simple: Simple, ending: set[str]) -> bool:
    """Whether a finite value fits, given the definitions that one fits."""
    if "$ref" in simple:
        return simple["$ref"].removeprefix("#/$defs/") in ending
    if "anyOf" in simple:
        return any(_ends(one, ending) for one in simple["anyOf"])
    if "enum" in simple or simple.types - {"array", "object"}:
        return True
    if "object" in simple.types:
        properties = simple.get("properties", {})
        if all(_ends(properties[name], ending) for name in simple.get("required", ())):
            return True
    if "array" in simple.types:
        places = [*simple.get("prefixItems", ()), *([simple["items"]] if "items" in simple else [])]
        return all(_ends(one, ending) for one in places[: simple.get("minItems", 0)])
    return False
