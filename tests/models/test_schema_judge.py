"""Grammars of schemas, tried on instances."""

import json

import pytest

pytest.importorskip("llguidance")

from callsmith.core.values import Json
from callsmith.engines.decoding import compiler
from callsmith.models.schema_judge import SchemaJudge, SchemaVerdict, write_value

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}


def judged(*lines: object) -> list[SchemaVerdict]:
    with SchemaJudge() as judge:
        return list(judge.judge_lines(line if isinstance(line, str) else json.dumps(line) for line in lines))


def test_instances_are_accepted_as_the_grammar_of_the_schema_has_it() -> None:
    instances = [{"a": 1, "b": "é😀\n"}, {"b": "x", "a": 1}, {"a": "1", "b": "x"}, {"a": 1, "b": "x", "c": 1}, {}, 5]
    (verdict,) = judged({"schema": OBJECT, "instances": instances})
    assert verdict == SchemaVerdict(True, (), (True, False, False, False, False, False))


def test_what_is_not_enforced_is_listed_with_its_place() -> None:
    schema = {"type": "array", "items": {"type": "array", "uniqueItems": True}}
    (verdict,) = judged({"schema": schema, "instances": [[[1, 1]], [1]]})
    assert verdict == SchemaVerdict(True, (("uniqueItems", "#/items"),), (True, False))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "Expecting value"),
        ("[]", "no `schema`"),
        ({"schema": 5}, "neither an object"),
        ({"schema": {}, "instances": 5}, "not a list"),
        ({"schema": {"type": "strange"}}, "strange"),
        ({"schema": False}, "no value fits"),
        ('{"schema": ' + "[" * 100_000, "recursion"),
        ({"schema": {"type": "string", "minLength": 3, "maxLength": 2}}, "no value fits"),
    ],
)
def test_a_line_that_cannot_be_judged_says_why_and_the_next_one_is_judged(line: object, why: str) -> None:
    bad, good = judged(line, {"schema": True, "instances": [1, None, {"a": [1.5]}]})
    assert not bad.compiled
    assert why in bad.error
    assert good.accepts == (True, True, True)


def test_a_value_is_written_as_a_grammar_has_it() -> None:
    assert (
        write_value({"a": [1, 1.5, 1e-7, 1e22], "é\n": None})
        == '{"a": [1, 1.5, 0.0000001, 10000000000000000000000], "é\\n": null}'
    )
    assert write_value(1e50) == "1" + "0" * 50
    assert write_value(1e-300) == "1e-300"
    assert write_value("\ud800") == '"\\ud800"'
    assert json.loads(write_value([True, -0.0, "\\"])) == [True, -0.0, "\\"]


def test_an_object_that_may_be_one_of_hundreds_is_told_from_them() -> None:
    tasks = [
        {"properties": {"task": {"const": f"t{n}"}, **{f"a{n}_{m}": {"type": "string"} for m in range(9)}}} for n in range(300)
    ]
    schema = {
        "anyOf": [*({**task, "additionalProperties": False} for task in tasks), {"properties": {"run": {"type": "string"}}}]
    }
    instances: list[Json] = [{"run": "ls"}, {"task": "t7", "a7_1": "x"}, {"run": 5, "task": "t7"}]
    with SchemaJudge(as_written=True) as judge:
        verdict = judge.judge(schema, instances)
    assert (verdict.error, verdict.accepts) == ("", (True, True, False))


def test_a_grammar_engine_that_gives_up_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_LIMITS", {"max_items_in_row": 10})
    with SchemaJudge() as judge:
        verdict = judge.judge({"anyOf": [{"properties": {f"a{n}": {"type": "string"}}} for n in range(50)]}, [{"a7": "x"}])
    assert not verdict.compiled
    assert "gave up" in verdict.error
