"""Looser schemas: a grammar that is too large for a server becomes smaller, step by step.

Step 1 lets go of lengths, counts, bounds and patterns; step 2 also of what is nested in the objects that parameters hold, step 3
of all that parameters hold but their types, and step 4 leaves any object. What a step lets go is listed, and validated after
generation.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from callsmith.core.values import Schema
from callsmith.grammar.schema.keywords import CONTENT_KEYWORDS, MORE_THAN_TYPE, NUMBER_KEYWORDS, STRING_KEYWORDS
from callsmith.grammar.schema.normal_form import UnenforcedKeywords

STEPS: Final = 4
_COUNTS: Final = frozenset(
    {
        *NUMBER_KEYWORDS, *STRING_KEYWORDS, *CONTENT_KEYWORDS, "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains", "minProperties", "maxProperties", "propertyNames", "patternProperties",
    }
)  # fmt: skip
_SCHEMAS: Final = frozenset({"items", "additionalItems", "additionalProperties", "not", "if", "then", "else"})
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf"})  # of schemas for the same value
_DEPTHS: Final = {1: 1 << 20, 2: 2, 3: 1, 4: 0}  # how deep each step keeps more than types


def loosen(schema: Schema, step: int, unenforced: UnenforcedKeywords) -> Schema:
    """The schema with less in it. What is let go is added to `unenforced`."""
    return schema if step == 0 else _loosen(schema, "#", _DEPTHS[step], unenforced)


def _loosen(schema: Any, path: str, depth: int, unenforced: UnenforcedKeywords) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for keyword, value in cast(Mapping[str, Any], schema).items():
        here = f"{path}/{keyword}"
        if keyword in MORE_THAN_TYPE and (keyword in _COUNTS or depth == 0):
            unenforced.append((path, keyword))
        elif keyword == "properties":
            kept[keyword] = _each(value, here, depth - 1, unenforced)
        elif keyword in ("$defs", "definitions", "dependentSchemas"):
            kept[keyword] = _each(value, here, min(depth, 1), unenforced)
        elif keyword in _SCHEMAS:
            kept[keyword] = _loosen(value, here, depth - 1, unenforced)
        elif keyword in (*_LISTS, "prefixItems") and isinstance(value, list):
            inner = depth - (keyword == "prefixItems")
            listed = enumerate(cast(list[Any], value))
            kept[keyword] = [_loosen(inner_schema, f"{here}/{at}", inner, unenforced) for at, inner_schema in listed]
        else:
            kept[keyword] = value
    return kept


def _each(value: Any, path: str, depth: int, unenforced: UnenforcedKeywords) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _loosen(schema, f"{path}/{name}", depth, unenforced) for name, schema in cast(Mapping[str, Any], value).items()}
