"""Schemas at their word: all that is valid may be written, and what may be written is valid but for what is listed."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Output, Schema
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar
from callsmith.grammar.schema.structures import COUNTED, TRACKED
from callsmith.grammar.targets.gbnf import to_gbnf
from callsmith.models.schema_judge import SchemaJudge, write_value
from tests.grammar import schemas
from tests.grammar.checking import stuck
from tests.grammar.judging import complaint, is_explained
from tests.grammar.sampling import Sampler, compiler

pytestmark = pytest.mark.weights

PLAIN = Format(name="plain", parts=())
MANY = {f"p{at}": {"type": "integer"} for at in range(80)}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}
NODE = {"type": "object", "properties": {"v": {"minimum": 3}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}}
REQUIRED = [*MANY][:50]


def numbered(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, 1)


@pytest.fixture(scope="module")
def judge() -> Iterator[SchemaJudge]:
    with SchemaJudge(as_written=True) as schema_judge:
        yield schema_judge


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (
            POINT,
            [{"x": 1, "y": 2}, {"y": 2, "x": 1}, {"z": "q", "y": 1, "": [{}], "x": 2}],
            [{"x": 1}, {"x": "1", "y": 2}, {}, 5],
        ),
        ({"properties": {"x": {"type": "integer"}}}, [5, "x", None, {"x": 1}, {"y": "x"}, []], [{"x": "1"}]),
        ({**POINT, "additionalProperties": False}, [{"y": 1, "x": 1}], [{"x": 1, "y": 2, "z": 3}]),
        ({**POINT, "additionalProperties": {"type": "string"}}, [{"a": "", "y": 1, "x": 1}], [{"x": 1, "y": 2, "z": 3}]),
        (
            {
                "properties": {"é": {"type": "integer"}},
                "patternProperties": {"^x-": {"type": "null"}},
                "additionalProperties": False,
            },
            [{"x-1": None, "é": 1, "x-": None}],
            [{"x-": 1}, {"x": None}, {"é": None}],
        ),
        ({"properties": MANY, "required": REQUIRED}, [numbered(*reversed(MANY)), numbered(*REQUIRED)], [numbered(*REQUIRED[1:])]),
        (
            {"properties": MANY, "required": REQUIRED},
            [],
            [{**numbered(*REQUIRED), "p79": "x"}, {**numbered(*REQUIRED), "p51": "x"}],
        ),
        (
            {"type": "object", "required": ["a"], "maxProperties": 3},
            [numbered("a"), numbered("x", "y", "a"), numbered("x", "a", "y"), numbered("a", "x", "y")],
            [numbered("x", "y"), numbered("a", "b", "c", "d"), numbered("b", "c", "d", "a")],
        ),
        ({"type": "object", "required": ["a"], "maxProperties": 1}, [numbered("a")], [numbered("a", "b"), numbered("b", "a")]),
        (
            {"enum": [{"a": 1, "b": [2.5, "é"]}, 5, "x/y"]},
            [{"b": [2.5, "é"], "a": 1.0}, 5.0, "x/y"],
            [{"a": 1}, {"a": 1, "b": []}, "x"],
        ),
        ({"type": "integer"}, [5, 5.0, -0.0, 1e21], [5.5, "5"]),
        ({"type": "integer", "minimum": 3}, [3, 3.0, 1e9], [2, 2.0, 3.5]),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": NODE}},
            [{"next": {"v": 4.0, "next": None}}, {"q": 1}],
            [{"next": {"v": 1}}, {"next": 5}],
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}}, [None], []),
        ({"type": "string", "pattern": "^/(([a-z]+/)*[a-z]+$)?"}, ["/", "/a/b", "/ +"], ["", "a"]),
        ({"type": "number", "multipleOf": 0.25}, [1.5, 2, 3.75, -0.0, 100.0], [1.55, 0.3]),
        ({"type": "number", "multipleOf": 0.01, "maximum": 20}, [19.9, 0.07, -3.0], [19.999, 20.01]),
        ({"type": "number", "multipleOf": 3, "minimum": 1}, [9.0, 12], [0, 7.0]),
        ({"type": "number", "maximum": 7, "minimum": -1}, [7.0, -0.0, 6.99, -1], [7.01, -1.5]),
        ({"minimum": 7, "maximum": 7}, [7, 7.0, "8"], [6.5, 8]),
        ({"exclusiveMinimum": 3, "allOf": [{"minimum": 5}, {"exclusiveMinimum": 5}]}, [5.5], [5, 4]),
        (
            {"properties": {"a": {"type": "string", "pattern": "^a", "allOf": [{"pattern": "^b"}]}, "b": {"maxLength": 1}}},
            [{"b": "x"}, {}],
            [{"a": "a"}, {"a": "b"}, {"b": "xy"}],
        ),
        ({"anyOf": [{"type": "string", "pattern": "^ab?$", "minLength": 3}, {"type": "null"}]}, [None], ["a", "ab"]),
        ({"type": "string", "pattern": "^(a|bc){3}$", "minLength": 3, "maxLength": 6}, ["aaa", "bcbcbc"], ["aa", "bcbcbca"]),
    ],
)
def test_what_is_valid_may_be_written_and_nothing_else(judge: SchemaJudge, schema: Schema, valid: list[Any], invalid: list[Any]):
    verdict = judge.judge(schema, [*valid, *invalid])
    assert (verdict.error, verdict.unenforced) == ("", ())
    assert verdict.accepts == (True,) * len(valid) + (False,) * len(invalid)
    for value in (*valid, *invalid):
        assert (complaint(schema, (), value) == "") == (value in valid)


DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({**DRAFT_4, "type": "integer"}, "5", True),
        ({**DRAFT_4, "type": "integer"}, "5.0", False),
        ({**DRAFT_4, "type": "integer"}, "5e1", False),
        ({**DRAFT_4, "type": "integer", "minimum": 3}, "5.0", False),
        ({**DRAFT_4, "type": "integer", "multipleOf": 5}, "10.0", False),
        ({**DRAFT_4, "type": "integer", "multipleOf": 5}, "10", True),
        ({**DRAFT_4, "type": "number", "multipleOf": 5}, "10.0", True),
        ({**DRAFT_4, "type": ["integer", "null"]}, "5.0", False),
        ({**DRAFT_4, "properties": {"a": {"type": "integer"}}}, '{"a": 5.0}', False),
        ({**DRAFT_4, "type": "integer", "enum": [1, "x", 2]}, "2.0", False),
        ({**DRAFT_4, "type": "integer", "enum": [1, "x", 2]}, "2", True),
        ({**DRAFT_4, "enum": [1, 2]}, "2.0", True),
        ({**DRAFT_4, "minimum": 5, "exclusiveMinimum": True, "allOf": [{"minimum": 7}]}, "6", False),
        ({**DRAFT_4, "minimum": 5, "exclusiveMinimum": True, "allOf": [{"minimum": 5}]}, "5", False),
        ({**DRAFT_4, "minimum": 5, "exclusiveMinimum": False}, "5", True),
    ],
)
def test_in_draft_4_an_integer_has_no_fraction_and_exclusive_bounds_are_flags(schema: Schema, text: str, fits: bool):
    compiled = grammar(schema)
    assert compiled.unenforced == ()
    assert is_explained(schema, (), json.loads(text)) == fits or text == "5e1"
    assert (stuck(compiled, text) is None) == fits


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"exclusiveMinimum": 10**20, "minimum": 3}, 1),
        ({"maximum": 10**20, "exclusiveMaximum": 10**19}, 10**30),
        ({"propertyNames": {"format": "date"}, "properties": {"a": {}}, "additionalProperties": False}, {"a": 1}),
        ({"type": "string", "format": "ipv4", "enum": ["1.2.3.4", "localhost"]}, "localhost"),
        ({"items": {"anyOf": [{"format": "uuid"}, {"type": "null"}], "enum": ["x", None]}}, ["x"]),
        ({"type": "string", "pattern": r"^(\S+ ){0,99}\S+$", "maxLength": 200}, "word " * 40 + "word"),
    ],
)
def test_what_is_not_held_and_may_be_broken_is_listed_with_all_that_goes_with_it(schema: Schema, value: Any):
    compiled = grammar(schema)
    assert stuck(compiled, write_value(value)) is None
    assert not is_explained(schema, (), value)
    assert is_explained(schema, compiled.unenforced, value)


def test_items_behind_a_list_of_items_are_unevaluated():
    schema = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "items": [{"type": "array"}],
        "unevaluatedItems": {"type": "integer"},
    }
    assert stuck(grammar(schema), "[[], 1]") is None
    assert stuck(grammar(schema), '[[], "a"]') is not None


def test_many_words_may_be_written_where_words_and_characters_are_counted(judge: SchemaJudge):
    schema = {"type": "string", "pattern": r"^(?:\S+\s+){0,49}\S+$", "minLength": 1, "maxLength": 500}
    assert judge.judge(schema, ["word " * 45 + "word", "word " * 50 + "word"]).accepts == (True, False)


def test_a_name_that_patterns_of_several_parts_may_match_is_left_open(judge: SchemaJudge):
    parts = [{"patternProperties": {letter: True}, "additionalProperties": False} for letter in "ab"]
    verdict = judge.judge({"type": "object", "allOf": parts, "minProperties": 1}, [{"ab": 1}])
    assert verdict.accepts == (True,)
    assert {"patternProperties", "additionalProperties"} <= {keyword for keyword, _ in verdict.unenforced}


@pytest.mark.parametrize(
    ("schema", "valid", "listed"),
    [
        ({"properties": MANY, "required": [*MANY]}, numbered(*reversed(MANY)), {"required"}),
        ({"required": ["a"], "maxProperties": COUNTED + 1}, numbered("a"), {"maxProperties"}),
        (
            {"properties": MANY, "required": [*MANY][: TRACKED + 1], "maxProperties": 99},
            numbered(*MANY),
            {"required", "maxProperties"},
        ),
        ({"patternProperties": {"a": {"type": "integer"}, "b": {"minimum": 5}}, "additionalProperties": False}, {"b": "x"}, None),
        ({"if": {"properties": {"a": True}}, "unevaluatedProperties": False}, {"a": 1}, {"unevaluatedProperties"}),
        ({"contains": {"type": "string"}, "unevaluatedItems": False}, ["a"], {"contains", "unevaluatedItems"}),
        (
            {"anyOf": [{"properties": {"a": True}}, {"properties": {"b": True}}], "unevaluatedProperties": False},
            numbered("a", "b"),
            None,
        ),
        ({"allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False}, {"a": 1}, {"unevaluatedProperties"}),
        ({"patternProperties": {"(?=a)": True}, "unevaluatedProperties": False}, {"a": 1}, None),
    ],
)
def test_where_a_grammar_does_not_know_it_lists_and_refuses_nothing(
    judge: SchemaJudge, schema: Schema, valid: Any, listed: set[str] | None
):
    verdict = judge.judge(schema, [valid])
    assert verdict.accepts == (True,)
    assert complaint(schema, (), valid) == ""
    assert verdict.unenforced
    assert listed is None or {keyword for keyword, _ in verdict.unenforced} == listed


def grammar(schema: Schema, *, as_written: bool = True) -> Grammar:
    compiled = output_grammar(PLAIN, Output(schema, as_written=as_written))
    return Grammar(compiled.node, unenforced=compiled.unenforced)


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"type": "string"}, r'"\u0041\u00e9\/\ud83d\ude00é"', True),
        ({"type": "string"}, r'"\ud83d"', False),
        ({"type": "string"}, r'"\x"', False),
        ({"properties": {"é/": {"type": "integer"}}}, r'{"\u00e9\/": 1}', True),
        ({"properties": {"é/": {"type": "integer"}}}, r'{"\u00e9\/": "1"}', False),
        ({"properties": {"é/": {"type": "integer"}}}, r'{"\u00E9/": "1"}', False),
        ({"properties": {"a": {"type": "integer"}}}, r'{"\u0061": "1"}', False),
        ({"properties": {"a\n": {"type": "integer"}}}, r'{"a\u000a": "1"}', False),
        ({"properties": {"a\n": {"type": "integer"}}}, r'{"a\u000A": 1}', True),
        ({"properties": {"😀": {"type": "integer"}}}, r'{"\uD83D\uDE00": "1"}', False),
        ({"properties": {"😀": {"type": "integer"}}}, r'{"\uD83D\uDE00": 1}', True),
        ({"properties": {"ab": False}, "patternProperties": {r"^a[\s\S]*": {}}}, r'{"a\u0062": 1}', False),
        ({"enum": ["é/", 1]}, r'"\u00e9\/"', True),
        ({"enum": ["é/", 1]}, "1.00", True),
        ({"type": "integer"}, "1e3", True),
        ({"type": "integer"}, "1e-3", False),
        (POINT, '{"x": 1, "y": 2, "x": 3}', False),
        ({"pattern": r"^\<[^>]+\>$"}, '"<b>"', True),  # the ends of words, to some
        ({"pattern": r"^\<[^>]+\>$"}, '"b"', False),
        ({"properties": {"ab": {}}, "patternProperties": {"^(?<first>a)": {"type": "null"}}}, '{"ab": 1}', False),
        ({"properties": {"ab": {}}, "patternProperties": {r"^\u{61}": {"type": "null"}}}, '{"ab": 1}', False),
        ({"properties": {"é": {}}, "patternProperties": {r"^\w$": {"type": "null"}}}, '{"é": 1}', True),
    ],
)
def test_a_value_may_be_spelled_in_every_way_that_means_it(schema: Schema, text: str, fits: bool):
    assert (stuck(grammar(schema), text) is None) == fits


def test_other_engines_get_open_objects_too():
    assert "root ::=" in to_gbnf(grammar(POINT)).text


# --- generated schemas and values ---------------------------------------------------------------------------------------------


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        return {name: shuffled(value[name], chance) for name in chance.sample([*value], len(value))}
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


def changed(value: Any, chance: random.Random) -> Any:
    """The value with something in it added, removed or replaced."""
    value = json.loads(json.dumps(value))
    places: list[Any] = [value]
    for place in places:  # grows in the loop
        places += [item for item in (place.values() if isinstance(place, dict) else place) if isinstance(item, dict | list)]
    place, new = chance.choice(places), chance.choice([None, True, 0, 3.0, -2.5, "", "red", [], {"a": 1}, [1, "a"]])
    match place:
        case {} if place and chance.random() < 0.5:
            place.pop(chance.choice([*place]))
        case {}:
            place[chance.choice([*schemas.NAMES, *place, "zusätzlich"])] = new
        case _ if place and chance.random() < 0.5:
            place[chance.randrange(len(place))] = new
        case _:
            place.append(new)
    return value


def values_of(schema: Schema, seed: int) -> Iterator[Any]:
    """Values out of both grammars of the schema, in other orders, and with something changed."""
    chance = random.Random(seed)
    tokens, compiling = compiler()
    for as_written in (True, False):
        sampler = Sampler(tokens, compiling, format_named("hermes"), seed)
        try:
            compiled = grammar(schema, as_written=as_written)
        except UnsupportedSchema:  # closed, no object has as many properties as it wants
            continue
        for _ in range(2):
            sample = sampler.draw(compiled)
            if sample.whole and "Infinity" not in json.dumps(value := json.loads(sample.text)):
                yield from (value, shuffled(value, chance), *(shuffled(changed(value, chance), chance) for _ in range(4)))


def check(seeds: range) -> tuple[int, int, int]:
    """How many schemas there were, and how many values that are valid and that are not."""
    count = valid = invalid = 0
    for seed in seeds:
        schema = schemas.schema(seed)
        try:
            compiled = grammar(schema)
        except UnsupportedSchema as refused:
            assert "no value fits" in refused.why
            continue
        count += 1
        for value in values_of(schema, seed):
            where, wrong = stuck(compiled, write_value(value)), complaint(schema, (), value)
            valid, invalid = valid + (not wrong), invalid + bool(wrong)
            text = f"{value} by {json.dumps(schema)}; left: {compiled.unenforced}"
            assert wrong or where is None, f"refused at {where}: {text}"
            assert where is not None or not complaint(schema, compiled.unenforced, value), f"{wrong} in {text}"
    return count, valid, invalid


def test_generated_values_may_be_written_exactly_if_they_are_valid():
    count, valid, invalid = check(range(40))
    assert count > 30
    assert valid > 200
    assert invalid > 100


@pytest.mark.slow
def test_hundreds_of_generated_schemas_are_taken_at_their_word():
    count, valid, _ = check(range(2000, 2600))
    assert count > 500
    assert valid > 3000
