"""JSON objects whose optional properties may come in any order, for llguidance, which itself allows only the schema's order.

A model can then write an optional property after one that the schema lists later. Required properties stay in the schema's order:
nothing is lost by it, and their names need not be chosen.
"""

import json
from dataclasses import replace
from itertools import islice
from typing import Final

from callsmith.grammar.nodes import Alt, JsonValue, Lit, Node, Pattern, Record, Seq
from callsmith.grammar.patterns.regex import literal, unparse
from callsmith.grammar.schema.normal_form import NormalSchema, reachable, resolve, standalone
from callsmith.grammar.values import item_nodes

OBJECT, ARRAY = frozenset({"object"}), frozenset({"array"})
_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties", "$defs"})
_ARRAY: Final = frozenset({"type", "items", "prefixItems", "minItems", "maxItems", "$defs"})
_MAX_SCHEMAS: Final = 250  # inside one value; beyond that, the order is the schema's


def any_order(value: JsonValue) -> Node | None:
    """The outermost level of the value as nodes; None if llguidance can handle the value as it is."""
    schema = value.schema
    if not isinstance(schema, NormalSchema):
        return None
    within = list(islice(reachable(schema, schema), _MAX_SCHEMAS + 1))
    if len(within) > _MAX_SCHEMAS or not any(map(_has_free_order, within)):
        return None

    def inner(one: NormalSchema) -> Node:
        return replace(value, schema=standalone(schema, one))

    if "$ref" in schema:
        return inner(resolve(schema, schema))
    if schema.keys() <= {"anyOf", "$defs"}:
        return Alt(tuple(map(inner, schema["anyOf"])))
    if schema.keys() <= _ARRAY and schema.types == ARRAY:
        return Seq((Lit("["), item_nodes(schema, inner, value.item_separator), Lit("]")))
    if not _is_closed(schema):
        return None
    names, required = _names(schema), schema.get("required", ())
    members = tuple(Seq((_key(name, value), inner(schema["properties"][name]))) for name in names)
    return Seq((Lit("{"), Record(members, tuple(name in required for name in names), value.item_separator), Lit("}")))


def _key(name: str, value: JsonValue) -> Node:
    """A name and the separator after it; the name is never a special token.

    They are two terminals, as in the rules that llguidance makes itself: where both stand side by side, the longest match wins.
    """
    return Seq((Pattern(unparse(literal(json.dumps(name, ensure_ascii=False)))), Lit(value.key_separator)))


def _has_free_order(schema: NormalSchema) -> bool:
    """Whether it is an object with an optional property before its last one."""
    required = schema.get("required", ())
    return _is_closed(schema) and not all(name in required for name in _names(schema)[:-1])


def _is_closed(schema: NormalSchema) -> bool:
    """Whether it is an object that allows no properties besides the listed ones."""
    return schema.keys() <= _OBJECT and schema.types == OBJECT and schema.get("additionalProperties") is False


def _names(schema: NormalSchema) -> list[str]:
    return [name for name, one in schema.get("properties", {}).items() if one is not False]
