"""Schemas as whole documents, such as projects publish them: large, referring to themselves, of older drafts."""

import json
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.schema import check_schema, validate
from callsmith.grammar.nodes import Grammar, JsonValue
from callsmith.grammar.schema import normalize as normalizing
from callsmith.grammar.schema.normal_form import UnenforcedKeywords
from callsmith.grammar.schema.normalize import normalize, normalize_standalone
from callsmith.grammar.targets.gbnf import to_gbnf
from tests.grammar.checking import stuck
from tests.work import count_calls

pytestmark = pytest.mark.weights
STRING, NUMBER = {"type": "string"}, {"type": "number"}


def takes(schema: Any, text: str) -> bool:
    """Whether the grammar of an answer lets a text through."""
    return stuck(Grammar(JsonValue(normalize_standalone(schema, []))), text) is None


def left(schema: Any) -> UnenforcedKeywords:
    unenforced: UnenforcedKeywords = []
    normalize_standalone(schema, unenforced)
    return unenforced


def test_a_reference_to_what_is_only_a_reference_leads_on() -> None:
    defs = {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"oneOf": [{"$ref": "#/$defs/c"}]}, "c": {"enum": ["x"]}}
    schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/a"}}, "required": ["v"], "$defs": defs}
    assert takes(schema, '{"v": "x"}')
    assert not takes(schema, '{"v": "y"}')


def test_thousands_of_listed_values_take_no_time() -> None:
    words = [f"word {number}" for number in range(4000)]
    schema = {"allOf": [{"type": "string", "enum": words}, {"enum": [*words[::2], 1]}], "pattern": "^word"}
    assert normalize(schema)["enum"] == words[::2]
    assert count_calls(lambda: normalize(schema)) < 100 * len(words)


def test_properties_that_are_each_the_whole_document_again_are_one_definition() -> None:
    names = [f"part{number}" for number in range(60)]
    schema = {"type": "object", "properties": {name: {"type": "object", "$ref": "#"} for name in names}}
    assert len(normalize(schema)["$defs"]) == 1
    assert takes(schema, '{"part1": {"part2": {}}}')


def test_unions_inside_unions_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nested: Any = STRING
    for depth in range(14):
        nested = {"oneOf": [{"type": "object", "properties": {f"p{depth}": nested}, "required": [f"p{depth}"]}, NUMBER]}
    monkeypatch.setattr(normalizing, "MAX_SCHEMAS", 200)
    assert normalize(nested)


def test_what_multiplies_without_end_is_left_out_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalizing, "MANY_SCHEMAS", 100)
    kinds = [{"pattern": f"^{number}"} for number in range(70)]
    schema = {"properties": {"kind": {"anyOf": kinds}}, "anyOf": [{"properties": {"kind": kind}} for kind in kinds]}
    unenforced: UnenforcedKeywords = []
    normalize_standalone({"type": "object", **schema, "title": "left out"}, unenforced)
    assert ("#/properties/kind", "anyOf") in unenforced
    monkeypatch.setattr(normalizing, "MAX_SCHEMAS", 200)
    with pytest.raises(UnsupportedSchema, match="too large"):
        normalize_standalone({"type": "object", **schema, "title": "refused"}, [])


def test_hundreds_of_listed_names_can_be_told_from_others_in_gbnf() -> None:
    names = [f"{'abcdefgh'[number % 8]}{number:04}-long-name" for number in range(300)]
    schema = {"type": "object", "properties": dict.fromkeys(names, NUMBER), "additionalProperties": STRING}
    assert to_gbnf(Grammar(JsonValue(normalize_standalone(schema, [])))).unenforced == ()


def test_a_pattern_and_a_length_that_multiply_are_not_both_written_in_gbnf() -> None:
    schema = {"type": "string", "pattern": "^([a-z]+[0-9][a-z]*-[A-Z]+:){2}[a-z]+$", "maxLength": 1200}
    gbnf = to_gbnf(Grammar(JsonValue(normalize_standalone(schema, []))))
    assert gbnf.unenforced == (("#", "maxLength"),)
    assert len(gbnf.text) < 10_000


def test_a_reference_out_of_the_document_is_listed() -> None:
    meta = "http://json-schema.org/draft-07/schema#/properties/title"
    schema = {"type": "object", "properties": {"name": {"$ref": meta}, "n": NUMBER}, "required": ["name"]}
    check_schema(schema)
    assert left(schema) == [("#/properties/name", "$ref")]
    assert takes(schema, '{"name": "x", "n": 1}')


@pytest.mark.parametrize(
    ("reference", "good", "bad"),
    [
        ("#/definitions/inner", '{"v": {"w": 1}}', '{"v": {"w": "x"}}'),  # inside a schema with an `$id`, `#` is that schema
        ("https://a.example/inner#word", '{"v": {"w": "x"}}', '{"v": {"w": 1}}'),
    ],
)
def test_a_reference_is_read_from_where_it_stands(reference: str, good: str, bad: str) -> None:
    inner = {
        "$id": "https://a.example/inner",
        "type": "object",
        "properties": {"w": {"$ref": reference}},
        "definitions": {"inner": NUMBER, "word": {"$anchor": "word", **STRING}},
    }
    schema = {
        "$id": "https://a.example/outer",
        "type": "object",
        "properties": {"v": {"$ref": "https://a.example/inner"}},
        "definitions": {"inner": STRING, "thing": inner},
    }
    assert left(schema) == []
    assert takes(schema, good)
    assert not takes(schema, bad)


def test_what_stands_beside_a_reference_counts_since_draft_2019() -> None:
    schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/v", "maxLength": 1}}, "$defs": {"v": STRING}}
    old = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    assert not takes(schema, '{"v": "ab"}')
    assert validate(schema, {"v": "ab"})
    assert takes(old, '{"v": "ab"}')
    assert not validate(old, {"v": "ab"})


def test_a_value_that_cannot_be_tried_where_it_stands_is_let_through_and_that_is_listed() -> None:
    inner = {"$id": "https://a.example/inner", "enum": [[1], ["x"]], "items": {"$ref": "#/$defs/n"}, "$defs": {"n": NUMBER}}
    assert left({"properties": {"v": inner}}) == [("#/properties/v", "items")]


def test_alternatives_that_refer_to_what_is_still_being_made_are_not_held_to_be_apart() -> None:
    ways = [
        {"type": "object", "properties": {"v": {"$ref": "#"}}, "required": ["v"]},
        {"required": ["v"], "properties": {"v": STRING}},
    ]
    assert left({"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": ways}}}) == [("#/$defs/a", "oneOf")]


def test_names_that_no_address_may_have_can_be_referred_to() -> None:
    schema = {
        "type": "object",
        "properties": {"v": {"$ref": "#/definitions/List<(text[]|null)>"}},
        "definitions": {"List<(text[]|null)>": {"type": "array", "items": {"type": ["string", "null"]}}},
    }
    check_schema(schema)
    assert takes(schema, '{"v": ["a", null]}')
    assert not takes(schema, '{"v": [1]}')
    assert validate(schema, {"v": [1]})
    assert not validate(schema, {"v": ["a"]})


def test_a_bound_as_draft_4_says_it_needs_no_draft_to_be_named() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}}
    check_schema(schema)
    assert validate(schema, {"n": 0})
    assert takes(schema, '{"n": 1}')
    assert not takes(schema, '{"n": 0}')


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ('^[^"]*$', ["a\\b", "a\nb", "é"], ['a"b', '"']),
        (r"^[^\\]+$", ['a"b', "a\tb"], ["a\\b"]),
        (r'^[^"\\,]+$', ["a\nb"], ['"', "\\", ","]),
        ("^[\\x00-\\x21#-z]+$", ["a\nb", "!"], ['a"b']),
        ("^.+$", ['a"b\\'], ["a\nb"]),
    ],
)
def test_what_a_pattern_rules_out_does_not_come_escaped_either(pattern: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        assert takes({"type": "string", "pattern": pattern}, json.dumps(text, ensure_ascii=False)), text
    for text in bad:
        assert not takes({"type": "string", "pattern": pattern}, json.dumps(text)), text


def test_a_listed_name_with_a_quote_in_it_is_no_other_name() -> None:
    schema = {"type": "object", "properties": {'a"b': NUMBER}, "additionalProperties": True}
    assert takes(schema, '{"a\\"b": 1}')
    assert takes(schema, '{"a\\"c": "x"}')
    assert not takes(schema, '{"a\\"b": "x"}')


def test_names_that_match_no_pattern_may_stand_beside_those_that_do() -> None:
    schema = {
        "type": "object",
        "properties": {"id": NUMBER},
        "patternProperties": {"^x-": NUMBER, "^y": {"type": "null"}},
        "additionalProperties": STRING,
    }
    assert left(schema) == []
    for good in ('{"id": 1, "other": "a", "x-1": 2}', '{"x": "a", "ide": "b"}', '{"": "a"}', '{"yes": null}'):
        assert takes(schema, good), good
    for bad in ('{"id": "a"}', '{"x-1": "a"}', '{"yes": "a"}', '{"other": 1}', '{"\\u0078-1": "a"}'):
        assert not takes(schema, bad), bad


def test_a_name_that_is_ruled_out_is_not_let_in_by_its_pattern() -> None:
    schema = {"type": "object", "properties": {"xa": False}, "patternProperties": {"^x": NUMBER}, "additionalProperties": False}
    assert takes(schema, '{"xb": 1}')
    assert not takes(schema, '{"xa": 1}')


def test_names_by_a_pattern_that_cannot_be_followed_are_any_names() -> None:
    schema = {"type": "object", "properties": {"id": NUMBER}, "patternProperties": {"^(?!id)": STRING}}
    assert left(schema) == [("#", "patternProperties")]
    closed = {**schema, "additionalProperties": False}
    assert sorted(left(closed)) == [("#", "additionalProperties"), ("#", "patternProperties")]
    assert takes(closed, '{"id": 1, "name": "x"}')
    gbnf = to_gbnf(Grammar(JsonValue(normalize_standalone({**closed, "patternProperties": {r"^\p{L}": STRING}}, []))))
    assert sorted(gbnf.unenforced) == [("#", "additionalProperties"), ("#", "patternProperties")]


def test_what_a_schema_beside_it_evaluates_is_unevaluated_and_that_is_listed() -> None:
    beside = {"allOf": [{"unevaluatedProperties": False}, {"properties": {"a": True}}]}
    assert left(beside) == [("#/allOf/0", "unevaluatedProperties")]
    under = {"$ref": "#/$defs/a", "unevaluatedProperties": False, "$defs": {"a": {"properties": {"a": True}}}}
    assert left(under) == []
    uncle = {
        "properties": {"v": {"prefixItems": [STRING], "unevaluatedItems": False}},
        "allOf": [{"properties": {"v": {"prefixItems": [True, STRING]}}}],
    }
    assert left(uncle) == [("#/properties/v", "unevaluatedItems")]


def test_counts_may_be_written_as_decimals() -> None:
    assert takes({"type": "array", "minItems": 1.0, "maxItems": 2.0}, "[1, 2]")
    assert not takes({"type": "object", "maxProperties": 1.0}, '{"a": 1, "b": 2}')


def test_content_counts_where_the_draft_says_so() -> None:
    schema = {"type": "object", "properties": {"data": {"type": "string", "contentEncoding": "base64"}}}
    assert left(schema) == []
    assert left({"$schema": "http://json-schema.org/draft-07/schema#", **schema}) == [("#/properties/data", "contentEncoding")]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("date", "2024-02-29", "2023-02-29"), ("ipv6", "::ffff:10.0.0.1", "12345::"), ("date", "2000-02-29", "1900-02-29")],
)
def test_formats_are_as_wide_as_their_standard_and_no_wider(name: str, good: str, bad: str) -> None:
    assert takes({"type": "string", "format": name}, f'"{good}"')
    assert not takes({"type": "string", "format": name}, f'"{bad}"')
