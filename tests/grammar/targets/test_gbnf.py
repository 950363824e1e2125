"""GBNF, judged by llama.cpp's own grammar engine: what is valid is accepted, what is not is refused, the rest is listed."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import jsonschema_rs
import pytest

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.grammar.nodes import Alt, FreeText, Grammar, JsonValue, Lit, Many, Node, Pattern, Ref, Seq, Until, UserGrammar
from callsmith.grammar.patterns.automaton import to_automaton
from callsmith.grammar.patterns.regex import UnsupportedRegex, match_whole_text, parse, unparse
from callsmith.grammar.schema.normalize import normalize_standalone
from callsmith.grammar.targets.gbnf import Gbnf, to_gbnf
from tests.effort import tries
from tests.formats.reader.corpus import CORPUS
from tests.grammar.targets.gbnf_sample import Case, bfcl_cases, random_cases, spelled
from tests.grammar.targets.llama_grammar import CONVERT, PARSE_JSON, Converter, LlamaGrammar, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def gbnf(schema: Any) -> Gbnf:
    return to_gbnf(Grammar(JsonValue(schema)))


def engine(node: Node, **rules: Node) -> LlamaGrammar:
    return LlamaGrammar(to_gbnf(Grammar(node, rules)).text)


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


# -- the sample


def tally(cases: Iterable[Case]) -> Counter[str]:
    """How many valid values are accepted and how many invalid ones refused; a leak that nothing was said about is `silent`."""
    count: Counter[str] = Counter()
    for case in cases:
        try:
            grammar = gbnf(case.schema)
        except UnsupportedSchema:
            assert not case.valid, f"{case.schema} can be satisfied: {case.valid[0]}"
            continue
        judge = LlamaGrammar(grammar.text)
        for value in case.valid:
            for ascii in (False, True):
                count["valid"] += 1
                count["accepted"] += judge.accepts(spelled(value, ascii=ascii))
        for value in case.invalid:
            refused = not judge.accepts(spelled(value))
            count["invalid"] += 1
            count["refused"] += refused
            count["silent"] += not refused and not grammar.unenforced
    return count


def check(count: Counter[str]) -> None:
    assert count["accepted"] >= 0.99 * count["valid"] > 0, count
    assert count["refused"] >= 0.98 * count["invalid"] > 0, count
    assert not count["silent"], count


@pytest.mark.req("R199")
@pytest.mark.req("R226")
@pytest.mark.generated
@pytest.mark.req("R65")
def test_of_schemas_with_every_keyword_valid_values_are_accepted_and_invalid_ones_refused() -> None:
    check(tally(random_cases(tries(50, 120))))


@pytest.mark.req("R65")
@pytest.mark.skipif(not (CORPUS / "bfcl_gold.jsonl.gz").is_file(), reason=f"no corpus at {CORPUS}: set CALLSMITH_CORPUS")
def test_of_real_tools_the_gold_arguments_are_accepted_and_spoilt_ones_refused() -> None:
    check(tally(bfcl_cases(CORPUS, 200)))


@pytest.mark.slow
def test_of_thousands_of_schemas_valid_values_are_accepted_and_invalid_ones_refused() -> None:
    check(tally(random_cases(3000, seed=7)))
    check(tally(bfcl_cases(CORPUS)))


def walks(cases: Iterable[Case], count: int) -> Iterator[tuple[Case, Gbnf, str]]:
    for case in cases:
        try:
            grammar = gbnf(case.schema)
        except UnsupportedSchema:
            continue
        judge, chance = LlamaGrammar(grammar.text), random.Random(case.origin)
        for _ in range(count):
            if (text := judge.walk(chance)) is not None:
                yield case, grammar, text


def check_walks(cases: Iterable[Case], count: int) -> None:
    done = 0
    for case, grammar, text in walks(cases, count):
        done += 1
        validator = jsonschema_rs.validator_for(case.schema, validate_formats=True)
        assert grammar.unenforced or validator.is_valid(json.loads(text)), (case.schema, text)
    assert done > 100


def test_whatever_is_drawn_out_of_a_grammar_is_json_that_satisfies_the_schema() -> None:
    check_walks(random_cases(60, seed=3, values=0), 3)


@pytest.mark.slow
def test_thousands_of_texts_drawn_out_of_grammars_satisfy_their_schemas() -> None:
    check_walks(random_cases(2000, seed=11, values=0), 5)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing(PARSE_JSON, CONVERT)), reason=missing(PARSE_JSON, CONVERT))
def test_llama_cpps_own_converter_accepts_and_refuses_less_of_the_same_sample() -> None:
    converter, theirs, cases = Converter(), Counter[str](), list(random_cases(60, seed=5))
    for case in cases:
        converted = converter.convert(case.schema)
        try:
            judge = LlamaGrammar(converted[0]) if converted else None
        except ValueError:
            judge = None
        if judge:
            theirs["valid"] += len(case.valid)
            theirs["accepted"] += sum(judge.accepts(spelled(value)) for value in case.valid)
            theirs["invalid"] += len(case.invalid)
            theirs["refused"] += sum(not judge.accepts(spelled(value)) for value in case.invalid)
    converter.close()
    ours = tally(cases)
    assert ours["accepted"] / ours["valid"] > theirs["accepted"] / theirs["valid"]
    assert ours["refused"] / ours["invalid"] > theirs["refused"] / theirs["invalid"]


# -- schemas one by one

TABLE: list[tuple[Any, list[str], list[str]]] = [
    ({"type": "string", "pattern": "^a.b$"}, ['"axb"', '"a\\"b"', '"a\\\\b"', '"a\\u00e9b"'],
     ['"a"b"', '"ab"', '"a\\nb"', '"a\\b"']),
    ({"type": "string", "pattern": r"\d"}, ['"a1"', '"1"', '"é1\\n"'], ['"a"', '""']),
    ({"type": "string", "pattern": "^(foo|ba[rz])+$", "maxLength": 6}, ['"foo"', '"barbaz"'], ['"foobarbaz"', '"ba"']),
    ({"type": "string", "minLength": 2, "maxLength": 2}, ['"ab"', '"😀\\ud83d\\ude00"', '"\\n\\""'],
     ['"a"', '"abc"', '"\\ud83da"']),
    ({"type": "number", "minimum": 0, "maximum": 1}, ["0", "0.5", "1", "1.00"], ["7", "1.01", "-0.1", "01"]),
    ({"type": "number", "exclusiveMinimum": -1.5, "maximum": 2.25}, ["-1.49", "2.25", "0"], ["-1.5", "-1.50", "2.251", "3"]),
    ({"type": "number", "exclusiveMinimum": -0.0, "maximum": 47.9}, ["0.1", "47.9"], ["-3.2", "0", "48"]),
    ({"type": "number"}, ["1e5", "12345678901234567890.5", "-0"], ["+1", ".5", "1.", "00"]),
    ({"type": "integer", "minimum": 5, "exclusiveMinimum": 7, "maximum": 120}, ["8", "120", "99"], ["7", "5", "121", "8.0"]),
    ({"type": "integer", "multipleOf": 7}, ["0", "7", "-14", "700"], ["8", "1"]),
    ({"type": "number", "multipleOf": 0.25}, ["0.25", "1.750", "3"], ["0.3", "0.125"]),
    (obj({"ab": STRING}, additionalProperties=INTEGER), ['{"a": 1}', '{"abc": 1, "ab": "x"}', '{"": 0}'],
     ['{"a": "x"}', '{"\\u0061b": 1}', '{"\\q": 1}', '{"a\tb": 1}']),
    (obj({"a": INTEGER, "b": INTEGER}, "b", additionalProperties=False), ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"b": 2}'],
     ['{"a": 1}', '{"b": 1, "b": 2}', '{"b": 1,"a": 2}', "{}"]),
    (obj({}, "x", additionalProperties=STRING), ['{"x": "y"}', '{"z": "", "x": ""}'], ["{}", '{"x": 1}']),
    (obj({"a": {}}, patternProperties={"^n": INTEGER}, additionalProperties=False), ['{"n": 1}', '{"a": [], "no": 2}'],
     ['{"n": ""}', '{"m": 1}']),
    (obj({"a": {"not": STRING}}), ['{"a": 1}', '{"a": null}'], ['{"a": ""}']),
    ({"allOf": [obj({"a": INTEGER}, "a"), obj({"b": STRING})]}, ['{"a": 1}', '{"a": 1, "b": ""}'],
     ['{"b": ""}', '{"a": 1, "b": 1}']),
    ({**obj({"a": INTEGER}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a": 1}', '{"b": 1}'],
     ["{}", '{"a": "", "b": 1}']),
    ({"type": "array", "prefixItems": [STRING, INTEGER], "items": False, "minItems": 1}, ['["a"]', '["a", 1]'],
     ["[]", '["a", 1, 2]']),
    ({"type": "array", "unevaluatedItems": False}, ["[]"], ["[1]"]),
    ({"type": "array", "items": [STRING], "additionalItems": INTEGER}, ["[]", '["a", 1, 2]'], ['["a", "b"]']),
    ({"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 3}, ["[1, 2]", "[1, 2, 3]"],
     ["[1]", "[1, 2, 3, 4]", "[1,2]"]),
    ({"enum": ["a", 1, None, {"k": [True]}, 'q"']}, ['"a"', "1", "null", '{"k": [true]}', '"q\\""'],
     ['"b"', "2", "true", "[]"]),
    ({"type": "integer", "enum": [1, 2.0, "3"]}, ["1", "2"], ["1.0", '"3"', "3"]),
    ({"const": 1.0}, ["1", "1.0"], ["1.5"]),
    ({"enum": [1e22, 1e-7]}, ["1e+22", "1" + "0" * 22, "1e-07", "0.0000001"], ["1", "1e+2", "0"]),
    ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"2023-04-31"', '"x"']),
    ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": INTEGER}}, ["5"], ['"5"']),
    ({"$ref": "#x", "$defs": {"y": {"$anchor": "x", "type": "null"}}}, ["null"], ["1"]),
    ({"$id": "http://a/b.json", "$ref": "c.json", "$defs": {"c": {"$id": "c.json", "type": "null"}}}, ["null"], ["1"]),
    (obj({"next": {"$ref": "#"}}, additionalProperties=False), ["{}", '{"next": {"next": {}}}'], ['{"next": 1}']),
    ({"anyOf": [{"$ref": "#"}, INTEGER]}, ["1"], ['"a"']),
    ({"type": "string", "nullable": True}, ["null", '"a"'], ["1"]),
    ({"oneOf": [obj({"k": {"const": "a"}, "v": INTEGER}, "k"), obj({"k": {"const": "b"}, "v": STRING}, "k")]},
     ['{"k": "a", "v": 1}', '{"k": "b", "v": ""}'], ['{"k": "a", "v": ""}', '{"k": "c"}']),
]  # fmt: skip


@pytest.mark.req("R67")
@pytest.mark.parametrize(("schema", "good", "bad"), TABLE, ids=[json.dumps(schema)[:60] for schema, _, _ in TABLE])
def test_a_schema_is_enforced_to_the_letter(schema: Any, good: list[str], bad: list[str]) -> None:
    grammar = gbnf(schema)
    assert not grammar.unenforced
    judge = LlamaGrammar(grammar.text)
    assert [text for text in good if not judge.accepts(text)] == []
    assert [text for text in bad if judge.accepts(text)] == []


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "array", "items": STRING, "uniqueItems": True}, ("#", "uniqueItems")),
        (obj({"a": {"not": {"minLength": 2}}}), ("#/properties/a", "not")),
        ({"type": "string", "pattern": "^(?=.*a)b"}, ("#", "pattern")),
        ({"type": "string", "format": "iri"}, ("#", "format")),
        ({"type": "integer", "multipleOf": 12345}, ("#", "multipleOf")),
        ({"oneOf": [INTEGER, {"type": "number"}]}, ("#", "oneOf")),
        (obj({"a": {}, "b": {}}, dependentRequired={"a": ["b"]}), ("#", "dependentRequired")),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"contains": INTEGER}}}, ("#/$defs/a", "contains")),
        ({"type": "object", "propertyNames": {"minLength": 2}}, ("#", "propertyNames")),
        ({"type": "object", "dependencies": {"a": ["b"]}}, ("#", "dependencies")),
        ({"allOf": [{"type": "array"}, {"unevaluatedItems": False}]}, ("#/allOf/1", "unevaluatedItems")),
    ],
)
def test_what_is_not_enforced_is_listed(schema: Any, place: tuple[str, str]) -> None:
    assert gbnf(schema).unenforced == (place,)


def test_of_a_condition_every_keyword_is_listed() -> None:
    assert gbnf({"if": STRING, "then": {"minLength": 2}}).unenforced == (("#", "if"), ("#", "then"))


def test_properties_are_counted_also_where_some_are_optional() -> None:
    grammar = gbnf(obj({"a": {}, "b": {}}, minProperties=1, maxProperties=2))
    assert grammar.unenforced == (("#", "minProperties"), ("#", "maxProperties"))  # others may be written twice
    judge = LlamaGrammar(grammar.text)
    assert judge.accepts('{"a": 1}')
    assert judge.accepts('{"z": 1, "b": 1}')
    assert not judge.accepts("{}")
    assert not judge.accepts('{"a": 1, "b": 1, "z": 1}')


@pytest.mark.parametrize(
    ("schema", "path", "keyword"),
    [
        ({"type": "array", "enum": ["a", "b"]}, "#", "enum"),
        ({"enum": []}, "#", "enum"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "#", "minLength"),
        (obj({"a": False}, "a"), "#/properties/a", "false"),
        (obj({}, "a", additionalProperties=False), "#/additionalProperties", "false"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "#", "minimum"),
        ({"type": "integer", "minimum": 1, "maximum": 2, "multipleOf": 5}, "#", "minimum"),
        ({"allOf": [STRING, INTEGER]}, "#/allOf/1", "type"),
        ({"type": "string", "pattern": "^a$", "minLength": 2}, "#", "pattern"),
        ({"$ref": "#/$defs/gone"}, "#", "$ref"),
        (obj({"next": {"$ref": "#"}}, "next"), "#", "$ref"),
        ({"anyOf": [{"$ref": "#"}]}, "#", "anyOf"),
        (obj({"a": {}}, additionalProperties=False, minProperties=2), "#", "minProperties"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "#", "maxItems"),
        ({"allOf": [False]}, "#/allOf/0", "false"),
    ],
)
def test_what_nothing_satisfies_is_refused_by_place_and_keyword(schema: Any, path: str, keyword: str) -> None:
    with pytest.raises(UnsupportedSchema) as refused:
        gbnf(schema)
    assert (refused.value.path, refused.value.keyword) == (path, keyword)


def test_an_alternative_that_nothing_satisfies_is_left_out() -> None:
    judge = LlamaGrammar(gbnf({"anyOf": [{"type": "array", "enum": ["a"]}, {"type": "null"}]}).text)
    assert judge.accepts("null")
    assert not judge.accepts('"a"')


def test_a_property_or_item_that_nothing_satisfies_is_never_there() -> None:
    never = {"type": "string", "pattern": "^a$", "minLength": 2}
    judge = LlamaGrammar(gbnf(obj({"a": never, "b": {"type": "array", "prefixItems": [INTEGER, never]}})).text)
    assert judge.accepts('{"b": [1]}')
    assert not judge.accepts('{"a": "a"}')
    assert not judge.accepts('{"b": [1, "a"]}')


def test_separators_are_those_of_the_family() -> None:
    tight = LlamaGrammar(to_gbnf(Grammar(JsonValue(obj({"a": {}, "b": {"const": [1, 2]}}), ",", ":"))).text)
    assert tight.accepts('{"a":[1,{"x":2}],"b":[1,2]}')
    assert not tight.accepts('{"a":1, "b":[1,2]}')


def test_a_schema_as_written_leaves_objects_open_and_its_normal_form_closes_them() -> None:
    schema, text = obj({"a": INTEGER}), '{"a": 1, "b": 2}'
    assert LlamaGrammar(gbnf(schema).text).accepts(text)
    assert not LlamaGrammar(gbnf(normalize_standalone(schema, [])).text).accepts(text)


def test_many_properties_come_in_the_order_of_the_schema_and_others_anywhere_between() -> None:
    schema = obj(dict.fromkeys("abcdef", INTEGER), "b", "e")
    judge = LlamaGrammar(gbnf(schema).text)
    assert judge.accepts('{"a": 1, "b": 2, "x": [], "e": 3, "f": 4}')
    assert not judge.accepts('{"b": 1, "a": 2, "e": 3}')
    assert not judge.accepts('{"a": 1, "e": 3}')


# -- expressions

EXPRESSIONS = (
    "a", "^a", "a$", "^a$", "^a|b$", "(^a|b)c", "a*b+", "^[a-c]{2,3}$", "^(a|b)*c?$", "^(a*)*$", r"^\w\d\s$", r"^[^a]b\.$",
    "a||b",
    "^(ab){2}$", "^(?:a|bb)+?$", r"^\u0061[\x62-c]$", "^$", "", "^a{0}b$", "^[a-]$",
)  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_accepts_what_it_finds_and_nothing_else(expression: str) -> None:
    tree = match_whole_text(parse(expression))
    texts = ["".join(letters) for size in range(5) for letters in product("abc", repeat=size)] + ["a1 ", "1b.", "-", "bb.", "é"]
    judge, machine = engine(Pattern(unparse(tree))), to_automaton(tree)
    for text in texts:
        is_match = re.search(expression, text, re.ASCII) is not None
        assert machine.accepts(text) == is_match, text
        assert judge.accepts(text) == is_match, text


@pytest.mark.parametrize(
    "expression", ["(?=a)b", r"(a)\1", r"\bword", r"\p{L}", "a(", "[a", "*a", "a{2,1}", "a^b", "(?i)a", "a++", "[]a"]
)
def test_an_expression_that_cannot_be_followed_says_so(expression: str) -> None:
    with pytest.raises(UnsupportedRegex):
        match_whole_text(parse(expression))


def test_a_character_may_be_given_by_its_number() -> None:
    judge = engine(Pattern(r"a\x{2e}[\x{1f600}b]"))
    assert judge.accepts("a.😀")
    assert not judge.accepts("ax{2e}b")


def test_repetitions_beyond_what_the_engine_counts_are_exact() -> None:
    judge, counts = engine(Many(Lit("a"), 3, 2600)), (2, 3, 501, 2001, 2600, 2601)
    assert [count for count in counts if judge.accepts("a" * count)] == [3, 501, 2001, 2600]
    many = engine(Many(Pattern("[xy]"), 2500))
    assert not many.accepts("x" * 2499)
    assert many.accepts("x" * 2600)


# -- text


def texts_over(alphabet: str, longest: int) -> Iterator[str]:
    return ("".join(letters) for size in range(longest + 1) for letters in product(alphabet, repeat=size))


@pytest.mark.parametrize("stops", [("aab",), ("aba", "bb"), ("a", "bab"), ()])
def test_free_text_contains_none_of_its_stops(stops: tuple[str, ...]) -> None:
    judge = engine(FreeText(stops))
    for text in texts_over("ab", 7):
        assert judge.accepts(text) == (not any(stop in text for stop in stops)), text


@pytest.mark.parametrize(
    ("close", "without", "unlike"), [("aab", (), ""), ("aba", ("bb",), ""), ("ab", (), "b"), ("ba", ("aab",), "a")]
)
def test_text_ends_at_the_first_close(close: str, without: tuple[str, ...], unlike: str) -> None:
    judge = engine(Until(close, without, unlike))
    for text in texts_over("ab ", 6):
        first = text.find(close)
        wanted = first >= 0 and first + len(close) == len(text) and not any(word in text for word in without)
        wanted = wanted and not (unlike and text.strip()[:1] in tuple(unlike))
        assert judge.accepts(text) == wanted, text


def test_names_of_rules_have_letters_digits_and_hyphens_only() -> None:
    grammar = to_gbnf(Grammar(Seq((Ref("a_b"), Ref("a.b"))), {"a_b": Lit("1"), "a.b": Alt((Seq(()), Lit("2")))}))
    assert all(re.fullmatch("[a-zA-Z0-9-]+", line.split(" ::= ")[0]) for line in grammar.text.splitlines())
    assert not re.search(r'(::=|\(|\|) *("")? *\|', grammar.text)  # no alternative but the last is empty
    judge = LlamaGrammar(grammar.text)
    assert judge.accepts("12")
    assert judge.accepts("1")


def test_a_grammar_of_ones_own_in_lark_is_no_gbnf() -> None:
    with pytest.raises(UsageError, match="Lark"):
        to_gbnf(Grammar(UserGrammar('start: "a"')))
