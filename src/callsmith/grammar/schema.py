"""JSON Schema made ready for a grammar: what can be enforced is kept, what cannot is left out and listed.

Nothing is loosened silently: every keyword left out is in `unenforced`, by path, and is validated after generation instead.
"""

from collections.abc import Mapping
from typing import Any, cast

from callsmith.core.values import Schema
from callsmith.formats.typed import resolve

Left = list[tuple[str, str]]  # (path, keyword) of what was left out

KEYED = ("properties", "patternProperties", "$defs", "definitions")  # a mapping of schemas
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")  # a list of schemas
SINGLE = ("items", "additionalProperties")  # a schema, or true or false
NOT_ENFORCED = frozenset(
    {
        "contains", "minContains", "maxContains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if", "not",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid"}
)  # fmt: skip


def enforceable(schema: Any, left: Left, path: str = "#", *, close: bool = True) -> Any:
    """The schema without what a grammar cannot enforce. Objects that list their properties are closed: no invented ones."""
    if not isinstance(schema, Mapping):
        return schema
    source = cast(Mapping[str, Any], schema)
    close = close and "allOf" not in source  # closing one branch would forbid the properties of the others
    kept: dict[str, Any] = {}
    for keyword, value in source.items():
        here = f"{path}/{keyword}"
        if keyword in NOT_ENFORCED or (keyword == "format" and value not in FORMATS) or _looks_around(keyword, value):
            left.append((path, keyword))
        elif keyword in KEYED and isinstance(value, Mapping):
            entries = cast(Mapping[str, Any], value)
            kept[keyword] = {name: enforceable(one, left, f"{here}/{name}", close=close) for name, one in entries.items()}
        elif keyword in LISTED and isinstance(value, list):
            inner = [enforceable(one, left, f"{here}/{at}", close=close) for at, one in enumerate(cast(list[Any], value))]
            if keyword == "oneOf":
                left.append((path, keyword))
            kept["anyOf" if keyword == "oneOf" and "anyOf" not in source else keyword] = inner
        elif keyword in SINGLE:
            kept[keyword] = enforceable(value, left, here, close=close)
        else:
            kept[keyword] = value
    _bound_properties(kept, left, path)
    if close and "properties" in kept and not {"additionalProperties", "patternProperties", "anyOf", "$ref"} & kept.keys():
        kept["additionalProperties"] = False
        kept["properties"] |= {name: {} for name in kept.get("required", ()) if name not in kept["properties"]}
    return kept


def _looks_around(keyword: str, value: Any) -> bool:
    return keyword == "pattern" and any(mark in str(value) for mark in ("(?=", "(?!", "(?<"))


def _bound_properties(kept: dict[str, Any], left: Left, path: str) -> None:
    """Counting properties works only where none of the listed ones is optional."""
    if set(kept.get("properties", ())) - set(kept.get("required", ())):
        for keyword in ("minProperties", "maxProperties"):
            if kept.pop(keyword, None) is not None:
                left.append((path, keyword))


def json_schema(root: Schema, schema: Schema, left: Left, path: str = "#") -> Schema:
    """A schema that stands alone: what it refers to comes along, and what cannot be enforced is left out."""
    whole = dict(resolve(root, schema) if "$ref" in schema and len(schema) == 1 else schema)
    for keyword in ("$defs", "definitions"):
        if keyword in root and keyword not in whole:
            whole[keyword] = root[keyword]
    return cast(Schema, enforceable(whole, left, path, close="allOf" not in str(root.get("$defs", ""))))
