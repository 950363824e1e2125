"""JSON Schema: what is wrong with arguments, and what is wrong with schemas."""

import json
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum

import jsonschema_rs
import pytest
from pydantic import BaseModel

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.schema import add_keyword, check_schema, schema_of, validate

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


@pytest.mark.req("R22")
def test_arguments_that_fit_have_nothing_wrong_with_them():
    assert validate(CITY, {"city": "Bonn"}) == []


@pytest.mark.req("R22")
def test_a_wrong_type_is_named_with_its_place():
    assert [str(violation) for violation in validate(CITY, {"city": 5})] == ['at /city: 5 is not of type "string"']


def test_a_missing_argument_is_named():
    assert [str(violation) for violation in validate(CITY, {})] == ['"city" is a required property']


def test_an_argument_that_does_not_exist_is_named_beside_those_that_do():
    (complaint,) = validate(CITY, {"city": "Bonn", "citty": "Köln"})
    assert "citty" in str(complaint)
    assert "known: city" in str(complaint)


def test_places_inside_lists_and_odd_keys_are_json_pointers():
    schema = {"properties": {"a/b": {"items": {"type": "integer"}}}}
    assert [violation.path for violation in validate(schema, {"a/b": [1, "x"]})] == ["/a~1b/1"]


def test_alternatives_say_what_each_of_them_wants():
    schema = {"properties": {"to": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]}}}
    (complaint,) = validate(schema, {"to": {}})
    assert "string" in str(complaint)
    assert '"id" is a required property' in str(complaint)


def test_a_huge_value_does_not_make_a_huge_complaint():
    (complaint,) = validate(CITY, {"city": ["x" * 10_000]})
    assert len(str(complaint)) < 400
    assert str(complaint).endswith('is not of type "string"')


def test_many_complaints_are_counted_rather_than_listed():
    schema = {"properties": {f"p{n}": {"type": "string"} for n in range(20)}}
    complaints = validate(schema, {f"p{n}": n for n in range(20)})
    assert len(complaints) == 6
    assert str(complaints[-1]) == "and 15 more"


def test_arguments_nested_without_end_are_a_complaint_and_no_crash():
    nested: object = 1
    for _ in range(600):
        nested = {"a": nested}
    assert validate({"properties": {"a": {"type": "string"}}}, {"a": nested})


@pytest.mark.parametrize(
    ("schema", "path", "keyword"),
    [
        ({"type": "strin"}, "", "type"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "/properties/a", "type"),
        ({"properties": {"a": {"minLength": "x"}}}, "/properties/a", "minLength"),
        ({"properties": {"type": {"items": {"anyOf": [{"enum": 5}]}}}}, "/properties/type/items/anyOf/0", "enum"),
        ({"properties": {"a": 5}}, "", "properties"),
        ({"required": "a"}, "", "required"),
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a", "pattern"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "/properties/a", "$ref"),
        ({"$ref": "https://example.org/schema.json"}, "", "$ref"),
    ],
)
@pytest.mark.req("R209")
def test_a_schema_that_is_none_is_refused_by_place_and_keyword(schema: dict[str, object], path: str, keyword: str):
    with pytest.raises(UnsupportedSchema) as caught:
        check_schema(schema, "tools.0.function.parameters")
    assert (caught.value.path, caught.value.keyword) == (path, keyword)
    assert caught.value.field == "tools.0.function.parameters"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        CITY,
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"a": {"type": "string"}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
        {"$schema": "somewhere", "type": "object"},
        {"properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}},
        {"properties": {"b": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"type": "string"}}},
        {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
        {"type": "string", "nullable": True, "x-vendor": 1},
    ],
)
def test_both_drafts_and_common_mistakes_are_accepted(schema: dict[str, object]):
    check_schema(schema)


def test_a_list_of_items_checks_each_place_as_draft_7_means_it():
    schema = {"properties": {"pair": {"items": [{"type": "string"}, {"type": "integer"}]}}}
    assert validate(schema, {"pair": ["a", 1]}) == []
    assert [violation.path for violation in validate(schema, {"pair": ["a", "b"]})] == ["/pair/1"]


def test_a_schema_nested_without_end_is_refused_and_no_crash():
    schema: dict[str, object] = {}
    for _ in range(20_000):
        schema = {"not": schema}
    with pytest.raises(UnsupportedSchema):
        check_schema(schema)


def test_a_schema_that_refers_to_itself_in_a_circle_ends():
    assert validate({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {}) == []


@pytest.mark.req("R173")
def test_a_schema_is_compiled_once_also_as_another_object_and_then_not_even_written_out(monkeypatch: pytest.MonkeyPatch):
    compiled, dumped = list[object](), list[object]()
    compile, write = jsonschema_rs.validator_for, json.dumps
    monkeypatch.setattr(
        jsonschema_rs, "validator_for", lambda document, **more: compiled.append(document) or compile(document, **more)
    )
    monkeypatch.setattr(json, "dumps", lambda document, **more: dumped.append(document) or write(document, **more))
    schema = {"properties": {f"once{n}": {"type": "string"} for n in range(10)}}
    for _ in range(100):
        assert validate(schema, {"once1": "value"}) == []
    assert (compiled, dumped) == ([schema], [schema])
    assert validate(deepcopy(schema), {"once1": 1}) != []
    assert compiled == [schema]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    title: str = "origin"


class Order(BaseModel):
    """An order."""

    colour: Colour
    at: Point


def test_a_model_becomes_a_schema_without_titles_but_with_a_property_called_title():
    schema = schema_of(Order)
    assert "title" not in schema
    assert schema["properties"]["colour"] == {"$ref": "#/$defs/Colour"}
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert schema["$defs"]["Point"]["properties"]["title"] == {"default": "origin", "type": "string"}
    assert validate(schema, {"colour": "red", "at": {"x": 1}}) == []


def test_a_type_json_cannot_hold_is_refused():
    with pytest.raises(UsageError, match="no JSON Schema"):
        schema_of(type(sys))


def test_checking_arguments_does_not_load_pydantic():
    code = "import sys, callsmith.core.schema as s; s.validate({}, {}); print('pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_keyword_is_known_in_schemas_that_were_compiled_before(monkeypatch: pytest.MonkeyPatch):
    class Loud:
        def __init__(self, schema: object, value: object, path: object) -> None:
            pass

        def validate(self, instance: str) -> None:
            if not instance.isupper():
                raise ValueError("is not loud")

    monkeypatch.setattr("callsmith.core.schema._keywords", {})
    schema = {"type": "string", "x-loud": True}
    assert validate(schema, "hello") == []
    add_keyword("x-loud", Loud)
    assert "is not loud" in validate(schema, "hello")[0].message
    assert "is not loud" in validate(deepcopy(schema), "hello")[0].message
    assert validate(schema, "HELLO") == []
