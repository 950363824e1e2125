"""JSON Schema in all its forms: what is meant is enforced, what is not is listed exactly, what no value fits is refused."""

from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import ModelError, UnsupportedSchema
from callsmith.core.schema import locate, validate
from callsmith.core.values import Call, Tool
from callsmith.engines.decoding import compiler as constraint
from callsmith.formats import format_named
from callsmith.formats.algebra import JSON, KEY, NAME, PYTHON, RAW, VALUE, Calls, Format, Spelling, each
from callsmith.formats.reader.typed import types_of
from callsmith.formats.write import write
from callsmith.grammar.patterns.portable import to_portable
from callsmith.grammar.schema.normal_form import UnenforcedKeywords
from callsmith.grammar.schema.normalize import normalize_standalone
from tests.grammar.checking import required, stuck
from tests.grammar.sampling import Sampler, compiler

pytestmark = pytest.mark.weights
HERMES = format_named("hermes")
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
A_STRING = {"properties": {"a": STRING}}
NESTED = {"$id": "https://a.example/s.json", "$defs": {"a/b": {"$anchor": "here", **STRING}, "c d": {"$id": "c.json", **INTEGER}}}


def fits(schema: Any, value: Any, name: str = "hermes", **root: Any) -> bool:
    """Whether the grammar lets a value through, as the one argument of a tool."""
    format = format_named(name)
    tool = Tool("f", "", {"type": "object", "properties": {"v": schema}, "required": ["v"], **root})
    return stuck(required(format, [tool]), write(format, [Call("f", {"v": value}, "000000000")])) is None


def left(schema: Any, name: str = "hermes", **root: Any) -> set[tuple[str, str]]:
    """What the grammar of a value lists, by place within it."""
    tool = Tool("f", "", {"type": "object", "properties": {"v": schema}, "required": ["v"], **root})
    return {(path.removeprefix("#/properties/v"), keyword) for path, keyword in required(format_named(name), [tool]).unenforced}


@pytest.mark.req("R73")
@pytest.mark.req("R231")
@pytest.mark.req("R65")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, ["a", None], [1]),
        ({"type": "dict", "properties": {"a": {"type": "float"}}}, [{"a": 1.5}, {}], [{"a": "x"}, 1]),
        ({"type": "tuple", "items": {"type": "int"}}, [[1, 2]], [["a"]]),
        ({"type": "any"}, [1, "a", None, [1]], []),
        ({"type": "integer", "format": "int32", "example": 3, "xml": {}, "discriminator": {}}, [3], ["3"]),
        ({"type": ["string", "integer"], "minLength": 2, "minimum": 5}, ["ab", 5], ["a", 4, None]),
        ({"const": None}, [None], ["null", 0]),
        ({"enum": ["a", 1, None, True, [1], {"b": 2}]}, ["a", 1, None, True, [1], {"b": 2}], ["b", 2, False, [2]]),
        ({"type": "string", "enum": ["a", 5]}, ["a"], [5]),
        ({"type": "integer", "minimum": 3, "enum": [1, 3, 5]}, [3, 5], [1]),
        (True, [1, "x"], []),
        ({"type": "array", "items": [STRING, INTEGER], "additionalItems": False}, [["a", 1], ["a"]], [[1], ["a", 1, 2]]),
        ({"type": "object", "properties": {}}, [{}, {"a": 1}], [1]),
        ({"type": "object", "required": ["a"]}, [{"a": 1}], [{}]),
        ({"type": "object", "additionalProperties": INTEGER}, [{"a": 1}, {}], [{"a": "x"}]),
        ({"type": "object", "patternProperties": {"^x": INTEGER}}, [{"x1": 1}], [{"x1": "a"}, {"y": 1}]),
        ({"type": "object", "propertyNames": {"enum": ["a", "b"]}}, [{"a": 1}], [{"c": 1}]),
        ({"allOf": [{**A_STRING, "required": ["a"]}, {"properties": {"b": INTEGER}}]}, [{"a": "x", "b": 1}], [{}]),
        ({"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}]}, ["ab"], ["a", "b"]),
        ({"oneOf": [STRING, INTEGER]}, ["a", 1], [None]),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": INTEGER, "b": INTEGER}}, [{"a": 1}], [{}]),
        ({"properties": {"a": INTEGER}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"not": {"type": "null"}}, [1, "a"], [None]),
        ({"type": "string", "pattern": r"^\d+\s[\w.]$"}, ["12 ."], ["٣ a", "1 é"]),
    ],
)  # fmt: skip
def test_what_a_schema_means_is_enforced(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert left(schema) == set()
    document = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    for value in good:
        assert fits(schema, value), value
        assert validate(document, {"v": value}) == []
    for value in bad:
        assert not fits(schema, value), value


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/a~1b", "#/%24defs/a~1b", "#here", "https://a.example/s.json#/$defs/a~1b", "#/properties/first"],
)
def test_references_are_followed_in_every_spelling(reference: str) -> None:
    root = {**NESTED, "properties": {"first": STRING}}
    located = locate(root, reference)
    assert located is not None
    assert located[0]["type"] == "string"
    assert types_of(root, {"$ref": reference}) == {"string"}
    normal = normalize_standalone({**root, "type": "object", "properties": {"first": STRING, "v": {"$ref": reference}}}, [])
    assert normal["$defs"]["d0"]["type"] == "string"


def test_a_reference_counts_together_with_what_stands_beside_it() -> None:
    schema = {"$ref": "#/$defs/word", "maxLength": 3, "description": "said"}
    assert fits(schema, "abc", **{"$defs": {"word": STRING}})
    assert not fits(schema, "abcd", **{"$defs": {"word": STRING}})


@pytest.mark.req("R73")
@pytest.mark.req("R231")
def test_a_recursive_reference_with_something_beside_it_ends() -> None:
    node = {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#/$defs/node", "required": ["n"]}}}
    assert fits({"$ref": "#/$defs/node"}, {"next": {"n": 1, "next": {"n": 2}}}, **{"$defs": {"node": node}})
    assert not fits({"$ref": "#/$defs/node"}, {"next": {}}, **{"$defs": {"node": node}})


@pytest.mark.req("R73")
@pytest.mark.req("R231")
@pytest.mark.parametrize(
    ("schema", "listed"),
    [
        ({"type": "string", "uniqueItems": True, "minimum": 3}, set()),  # which say nothing of a string
        ({"type": "array", "items": INTEGER, "uniqueItems": True, "maxItems": 1}, set()),
        ({"type": "array", "items": INTEGER, "uniqueItems": True}, {("", "uniqueItems")}),
        ({"type": "array", "items": INTEGER, "contains": {"const": 1}}, {("", "contains")}),
        ({"type": "string", "format": "iban"}, {("", "format")}),
        ({"type": "string", "format": "password", "deprecated": True, "x-a": 1}, set()),
        ({"type": "string", "pattern": "^(?!a)"}, {("", "pattern")}),
        ({"type": "string", "pattern": r"(a)\1"}, {("", "pattern")}),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, {("", "oneOf")}),
        ({"oneOf": [{"properties": {"k": {"const": text}}, "required": ["k"]} for text in "ab"]}, set()),
        ({"oneOf": [{"properties": {"a": INTEGER}}, {"properties": {"b": INTEGER}}]}, {("", "oneOf")}),  # {} fits both
        ({"if": {"minimum": 1}, "then": {"maximum": 5}}, {("", "if"), ("", "then")}),
        ({"then": {"maximum": 5}}, set()),  # without an `if` it says nothing
        ({"type": "integer", "maximum": 10**20}, {("", "maximum")}),
        ({"allOf": [{"type": "array", "items": {"not": {"const": 1}}}]}, {("/allOf/0/items", "not")}),
        ({"properties": {"a": INTEGER, "b": INTEGER}, "minProperties": 1}, {("", "minProperties")}),
        ({"properties": {"a": INTEGER}, "required": ["a"], "minProperties": 1, "maxProperties": 1}, set()),
        ({"properties": {"a": INTEGER, "b": INTEGER}, "dependentRequired": {"a": ["b"]}}, {("", "dependentRequired")}),
        ({"properties": {"a": INTEGER}, "dependentRequired": {"z": ["a"]}}, set()),  # there is never a z
    ],
)  # fmt: skip
def test_what_is_not_enforced_is_listed_and_nothing_else(schema: Any, listed: set[tuple[str, str]]) -> None:
    assert left(schema) == listed


@pytest.mark.parametrize(
    ("schema", "path", "keyword"),
    [
        ({"type": "array", "items": STRING, "enum": ["a", "b"]}, "", "enum"),
        ({"enum": []}, "", "enum"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "", "minimum"),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4}, "", "exclusiveMinimum"),
        ({"type": "integer", "minimum": 4, "maximum": 6, "multipleOf": 7}, "", "minimum"),
        ({"type": "string", "minLength": 5, "maxLength": 3}, "", "minLength"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "", "maxItems"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "/properties/a", "false"),
        ({**A_STRING, "required": ["b"], "additionalProperties": False}, "/additionalProperties", "false"),
        ({"type": "object", "properties": {"a": INTEGER}, "minProperties": 2}, "", "minProperties"),
        ({"allOf": [STRING, INTEGER]}, "/allOf/1", "type"),
        ({"anyOf": [False, {"enum": []}]}, "", "anyOf"),
        ({"not": {}}, "", "not"),
        (False, "", "false"),
        ({"$ref": "#/$defs/infinite"}, None, "$ref"),
        ({"$ref": "#/$defs/circle"}, None, "$ref"),
    ],
)  # fmt: skip
def test_what_no_value_fits_is_refused_by_place_and_keyword(schema: Any, path: str | None, keyword: str) -> None:
    infinite = {"type": "object", "properties": {"next": {"$ref": "#/$defs/infinite"}}, "required": ["next"]}
    definitions = {"infinite": infinite, "circle": {"anyOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/infinite"}]}}
    with pytest.raises(UnsupportedSchema, match="no value fits") as caught:
        left(schema, **{"$defs": definitions})
    assert caught.value.keyword in (keyword, "anyOf")
    if path is not None:
        assert (caught.value.path, caught.value.keyword) == (f"#/properties/v{path}", keyword)


def test_what_no_value_fits_does_no_harm_where_it_is_optional() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": []}, "b": INTEGER}}
    assert fits(schema, {"b": 1})
    assert not fits(schema, {"a": 1})
    assert fits({"anyOf": [{"enum": []}, STRING]}, "x")
    tree = {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 1}}}
    assert fits({"$ref": "#/$defs/t"}, {"kids": [{}]}, **{"$defs": {"t": tree}})


@pytest.mark.parametrize("name", ["qwen3-coder", "kimi-k3", "minimax-m3", "pythonic", "gemma4"])
def test_numbers_are_bounded_in_every_spelling(name: str) -> None:
    schema = {"type": "number", "minimum": 1, "exclusiveMaximum": 3}
    assert left(schema, name) == set()
    assert fits(schema, 2.5, name)
    assert not fits(schema, 3, name)


def test_text_that_is_read_as_a_number_gets_around_its_bounds_and_that_is_listed() -> None:
    schema = {"anyOf": [STRING, {"type": "integer", "minimum": 3}]}
    assert left(schema, "qwen3-coder") == {("/anyOf/1", "minimum")}
    assert left(schema) == set()


def test_a_property_is_not_reached_by_an_escaped_spelling_of_its_name() -> None:
    schema = {"type": "object", "properties": {"ab": STRING}, "additionalProperties": INTEGER}
    grammar = required(HERMES, [Tool("f", "", schema)])

    def written(arguments: str) -> str | None:
        return stuck(grammar, f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>')

    assert written('{"ab": "x", "abc": 1, "größe": 2}') is None
    assert written('{"ab": 1}') is not None
    assert written('{"\\u0061b": 1}') is not None


def test_times_have_no_sixtieth_second_and_host_names_no_leading_hyphen() -> None:
    for name, good, bad in [
        ("time", "10:12:59Z", "10:12:60Z"),
        ("date-time", "5789-07-20t07:12:00z", "5789-07-20t07:12:60z"),
        ("hostname", "a-b.example", "-a.example"),
    ]:
        schema = {"type": ["string", "null"], "format": name}
        assert fits(schema, good)
        assert fits(schema, None)
        assert not fits(schema, bad)


def test_an_anchor_is_sought_in_the_schema_that_is_referred_to_and_not_in_those_inside_it() -> None:
    inner = [{"$id": "inner", "$anchor": "here", "type": "number"}, {"$anchor": "here", "type": "string"}]
    schema = {"$id": "https://example.com/s", "$defs": {"a": {"$id": "outer", "allOf": inner}}, "$ref": "outer#here"}
    assert fits(schema, "a") and not fits(schema, 1)


def test_a_name_that_one_pattern_forbids_and_another_lets_in_is_listed() -> None:
    for patterns, listed in [({"f.*": True, "b.*": False}, [("#", "patternProperties")]), ({"^f": True, "^b": False}, [])]:
        unenforced: UnenforcedKeywords = []
        normalize_standalone({"type": "object", "patternProperties": patterns}, unenforced)
        assert unenforced == listed


def test_patterns_are_taken_as_ecma_means_them_or_not_at_all() -> None:
    assert to_portable(r"^\d+$") == "^[0-9]+$"
    for irregular in ("(?=a)", r"\bword", r"(a)\1", "a{", "[", "(", "*a", r"\cA"):
        assert to_portable(irregular) is None


def test_names_by_a_pattern_of_hundreds_of_letters_are_no_silent_end() -> None:
    schema = {"type": "object", "patternProperties": {"^[A-Za-z0-9-_.:]{1,255}$": {"type": "string", "format": "uri"}}}
    tokens, compiling = compiler()
    sampler = Sampler(tokens, compiling, HERMES, "names")
    grammar = required(
        HERMES, [Tool("f", "", {"type": "object", "properties": {"v": schema}, "required": ["v"]})], parallel=False
    )
    assert all(sample.text.endswith("</tool_call>") for sample in (sampler.draw(grammar) for _ in range(6)) if sample.whole)


def test_a_mask_that_runs_out_of_fuel_is_an_error_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint, "_LIMITS", {"step_lexer_fuel": 10})
    tokens, _ = compiler()
    pattern = {"type": "string", "pattern": "^([a-z]{1,50}[0-9]{1,50}){1,50}$"}
    grammar = required(HERMES, [Tool("f", "", {"type": "object", "properties": {"v": pattern}, "required": ["v"]})])
    with pytest.raises(ModelError, match="gave up"):
        Sampler(tokens, constraint.Compiler(tokens), HERMES, 1).draw(grammar)


@pytest.mark.parametrize(("values", "close"), [(JSON, ""), (PYTHON, ""), (JSON, "</>"), (RAW, "</>")])
def test_what_stands_between_arguments_may_also_begin_what_stands_behind_them(values: Spelling, close: str) -> None:
    inner = (KEY, "=", VALUE, close) if close else (KEY, "=", VALUE)
    format = Format("lines", (Calls("<call>", NAME, "(\n", each(*inner, between="\n"), "\n)</call>", values=values),))
    tool = Tool("f", "", {"type": "object", "properties": {"a": STRING, "b": INTEGER, "c": STRING}, "required": ["a"]})
    for arguments in ({"a": "x"}, {"a": "x", "b": 2}, {"a": "x", "b": 2, "c": "y"}, {"a": "x\ny", "c": "\n"}):
        assert stuck(required(format, [tool]), write(format, [Call("f", arguments)])) is None
    tokens, compiling = compiler()
    sampler = Sampler(tokens, compiling, format, "lines")
    assert all(sampler.draw(required(format, [tool])).whole for _ in range(10))


def test_left_is_a_list_of_places_and_keywords() -> None:
    unenforced: UnenforcedKeywords = []
    normalize_standalone({"type": "array", "items": {"type": "string", "format": "iban"}, "uniqueItems": True}, unenforced)
    assert sorted(unenforced) == [("#", "uniqueItems"), ("#/items", "format")]
