"""The order of properties: optional ones stand where the model likes, once; required ones as the schema lists them."""

import itertools
import json
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.values import Call, Tool
from callsmith.formats import format_named
from callsmith.formats.write import write
from callsmith.grammar.nodes import Grammar, JsonValue
from callsmith.grammar.schema.normalize import normalize_standalone
from callsmith.grammar.targets.lark import to_lark
from tests.grammar.checking import required, stuck

pytestmark = pytest.mark.weights
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
FORMATS = ("hermes", "qwen3-coder", "pythonic", "gemma4", "llama3-json")


def fits(arguments: dict[str, Any], properties: dict[str, Any], needed: list[str], name: str = "hermes") -> bool:
    format = format_named(name)
    tool = Tool("f", "", {"type": "object", "properties": properties, "required": needed})
    return stuck(required(format, [tool]), write(format, [Call("f", arguments, "000000000")])) is None


@pytest.mark.parametrize("name", FORMATS)
def test_optional_properties_come_in_any_order_and_required_ones_in_the_schemas(name: str) -> None:
    properties = {"a": INTEGER, "r": INTEGER, "b": INTEGER, "s": INTEGER, "c": INTEGER}
    place = {key: at for at, key in enumerate(properties)}
    for size in range(6):
        for keys in itertools.permutations(properties, size):
            # Whatever is required and listed before a property has been written before it.
            behind = all(earlier in keys[: keys.index(key)] for key in keys for earlier in "rs" if place[earlier] < place[key])
            expected = {"r", "s"} <= set(keys) and behind
            assert fits(dict.fromkeys(keys, 1), properties, ["r", "s"], name) == expected, keys


def text_fits(text: str, schema: dict[str, Any]) -> bool:
    return stuck(Grammar(JsonValue(normalize_standalone(schema, []))), text) is None


OPTIONAL = {"type": "object", "properties": {"a": STRING, "b": INTEGER}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (OPTIONAL, '{"b": 1, "a": "x"}'),
        ({"type": "array", "items": OPTIONAL, "minItems": 2}, '[{"b": 1, "a": "x"}, {"a": "y", "b": 2}]'),
        ({"anyOf": [STRING, OPTIONAL]}, '{"b": 1, "a": "x"}'),
        ({"anyOf": [STRING, OPTIONAL]}, '"x"'),
        ({"$defs": {"o": OPTIONAL}, "$ref": "#/$defs/o"}, '{"b": 1, "a": "x"}'),
        ({"type": "object", "properties": {"o": OPTIONAL}, "required": ["o"]}, '{"o": {"b": 1, "a": "x"}}'),
    ],
)
def test_the_order_is_free_wherever_an_object_stands(schema: dict[str, Any], text: str) -> None:
    assert text_fits(text, schema)


def test_an_object_that_holds_itself_is_free_at_every_depth() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}, "v": INTEGER, "w": INTEGER}, "required": ["v"]}
    schema = {"$defs": {"n": {**node, "additionalProperties": False}}, "$ref": "#/$defs/n"}
    assert text_fits('{"v": 1, "w": 2, "next": {"v": 1, "next": {"w": 3, "v": 2}}}', schema) is False
    assert text_fits('{"v": 1, "w": 2, "next": {"v": 1, "next": {"v": 2, "w": 3}}}', schema)


@pytest.mark.parametrize(
    "text", ['{"b": 1, "b": 2}', '{"b": 1, "a": "x", "b": 2}', '{"a": "x",}', '{"c": 1}', '{"b": "x"}', "{,}"]
)
def test_nothing_comes_twice_and_nothing_else_comes(text: str) -> None:
    assert not text_fits(text, OPTIONAL)
    assert text_fits("{}", OPTIONAL)


def test_a_name_that_spells_a_special_token_is_letters() -> None:
    schema = {**OPTIONAL, "properties": {"<|im_end|>": INTEGER, 'q"/\\é\n': INTEGER, "z": INTEGER}}
    assert text_fits(json.dumps({"z": 1, 'q"/\\é\n': 2}, ensure_ascii=False), schema)
    lark = to_lark(Grammar(JsonValue(normalize_standalone(schema, []))), {"<|im_end|>": 2})
    assert "<[2]>" not in lark


def test_what_is_too_large_keeps_the_schemas_order_and_stays_fast() -> None:
    many = {f"p{number}": INTEGER for number in range(70)}
    assert fits({"p3": 1, "p69": 2}, many, [])
    assert not fits({"p69": 2, "p3": 1}, many, [])
    huge = {f"p{number}": OPTIONAL for number in range(300)}
    lark = to_lark(
        Grammar(JsonValue(normalize_standalone({"type": "object", "properties": huge, "additionalProperties": False}, [])))
    )
    assert lark.count("%json") == 1


def test_where_the_order_is_fixed_the_schema_is_left_whole() -> None:
    schema = {**OPTIONAL, "required": ["a"]}
    assert to_lark(Grammar(JsonValue(normalize_standalone(schema, [])))).count("%json") == 1
