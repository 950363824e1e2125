"""Schemas with common mistakes validate what they mean."""

from typing import Any

import pytest

from callsmith.core.schema import is_standard, json_types, standardize, validate


@pytest.mark.parametrize(
    ("schema", "standard"),
    [
        ({"type": "dict"}, {"type": ["object"]}),
        ({"type": ["int", "NoneType"]}, {"type": ["integer", "null"]}),
        ({"type": "any", "title": "x"}, {"title": "x"}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"], "nullable": True}),
        ({"$ref": "#/definitions/List<string>"}, {"$ref": "#/definitions/List%3Cstring%3E"}),
        ({"$ref": "#/$defs/größe"}, {"$ref": "#/$defs/gr%C3%B6%C3%9Fe"}),
    ],
)
def test_a_mistake_is_corrected(schema: dict[str, Any], standard: dict[str, Any]) -> None:
    assert not is_standard(schema)
    standardize(schema)
    assert schema == standard


@pytest.mark.parametrize(
    "schema",
    [{"type": "object"}, {"type": ["string", "null"], "nullable": True}, {"nullable": True}, {"$ref": "#/$defs/a%20b"}, {}],
)
def test_what_is_right_is_left_alone(schema: dict[str, Any]) -> None:
    assert is_standard(schema)


def test_nullable_counts_only_beside_a_type() -> None:
    assert json_types({"nullable": True}) is None
    assert json_types({"type": "str", "nullable": True}) == ["string", "null"]
    assert json_types({"type": "null", "nullable": True}) == ["null"]


def test_a_reference_that_is_no_uri_is_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/List<string>"}},
        "definitions": {"List<string>": {"type": "list", "items": {"type": "str"}}},
    }
    assert validate(schema, {"a": ["x"]}) == []
    assert validate(schema, {"a": [1]}) != []
