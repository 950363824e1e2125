"""JSON values in which the order of properties is free, taken apart: llguidance itself wants properties in the schema's order.

A model may then write an optional property after one that the schema lists behind it. Required ones keep their order: nothing is
lost by it, and their names are forced.
"""

import json
from dataclasses import replace
from itertools import islice
from typing import Final

from callsmith.grammar.nodes import Alt, JsonValue, Lit, Node, Pattern, Record, Seq
from callsmith.grammar.patterns.regex import literal, unparse
from callsmith.grammar.schema.normal_form import Simple, reachable, resolved
from callsmith.grammar.schema.normalize import standalone
from callsmith.grammar.values import items

OBJECT, ARRAY = frozenset({"object"}), frozenset({"array"})
_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties", "$defs"})
_ARRAY: Final = frozenset({"type", "items", "prefixItems", "minItems", "maxItems", "$defs"})
_MOST: Final = 250  # schemas within one; beyond that the order stays the schema's


def loosened(value: JsonValue) -> Node | None:
    """The value, its outermost level written out; None if llguidance can have it as it is."""
    schema = value.schema
    if not isinstance(schema, Simple):
        return None
    within = list(islice(reachable(schema, schema), _MOST + 1))
    if len(within) > _MOST or not any(map(_is_free, within)):
        return None

    def inner(one: Simple) -> Node:
        return replace(value, schema=standalone(schema, one))

    if "$ref" in schema:
        return inner(resolved(schema, schema))
    if schema.keys() <= {"anyOf", "$defs"}:
        return Alt(tuple(map(inner, schema["anyOf"])))
    if schema.keys() <= _ARRAY and schema.types == ARRAY:
        return Seq((Lit("["), items(schema, inner, value.item_separator), Lit("]")))
    if not _is_closed(schema):
        return None
    names, required = _names(schema), schema.get("required", ())
    members = tuple(Seq((_key(name, value), inner(schema["properties"][name]))) for name in names)
    return Seq((Lit("{"), Record(members, tuple(name in required for name in names), value.item_separator), Lit("}")))


def _key(name: str, value: JsonValue) -> Node:
    """A name, as letters even where they spell a special token, and the colon. Apart, as llguidance has them: it goes on with the
    longest text that fits somewhere, and what it has made itself may stand beside."""
    return Seq((Pattern(unparse(literal(json.dumps(name, ensure_ascii=False)))), Lit(value.key_separator)))


def _is_free(schema: Simple) -> bool:
    """Whether it is an object with an optional property that is not its last."""
    required = schema.get("required", ())
    return _is_closed(schema) and not all(name in required for name in _names(schema)[:-1])


def _is_closed(schema: Simple) -> bool:
    """Whether it is an object of which all properties are known."""
    return schema.keys() <= _OBJECT and schema.types == OBJECT and schema.get("additionalProperties") is False


def _names(schema: Simple) -> list[str]:
    return [name for name, one in schema.get("properties", {}).items() if one is not False]
