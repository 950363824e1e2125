"""Looser schemas for servers that take no large grammars: each step lets go of more, and says of what."""

from typing import Any

import jsonschema_rs
import pytest

from callsmith.core.values import Choice, Tool
from callsmith.formats import format_named
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.schema.loosen import STEPS, loosen
from callsmith.grammar.targets.gbnf import to_gbnf

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 2000, "pattern": "^[a-z]+$"},
        "kind": {"enum": ["a", "b"]},
        "place": {
            "type": "object",
            "properties": {"street": {"type": "object", "properties": {"number": {"type": "integer"}}}},
            "required": ["street"],
        },
        "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 500},
    },
    "required": ["name", "kind"],
    "$defs": {"item": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 7}}}},
}
VALID = {"name": "abc", "kind": "a", "place": {"street": {"number": 1}}, "list": [{"size": 3}]}


def loosened(step: int) -> tuple[Any, list[tuple[str, str]]]:
    let_go: list[tuple[str, str]] = []
    return loosen(SCHEMA, step, let_go), let_go


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_what_was_valid_stays_so(step: int) -> None:
    schema, let_go = loosened(step)
    assert jsonschema_rs.is_valid(schema, VALID)
    assert bool(let_go) == bool(step)
    assert all(path.startswith("#") for path, _ in let_go)


def test_the_grammar_of_many_nested_parameters_becomes_smaller_with_each_step() -> None:
    inner = {f"i{at}": {"type": "string", "pattern": f"^[a-z]{{{at},9}}-[0-9]+$"} for at in range(9)}
    nested = {"type": "object", "properties": {f"n{at}": {"type": "object", "properties": inner} for at in range(9)}}
    schema = {"type": "object", "properties": {f"p{at}": nested for at in range(9)}}
    sizes: list[int] = []
    for step in range(STEPS + 1):
        tool = Tool("f", parameters=loosen(schema, step, []))
        grammar = grammar_for(format_named("hermes"), (tool,), Choice("required"))
        assert grammar is not None
        sizes.append(len(to_gbnf(grammar).text))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] / 2


def test_each_step_lets_go_of_more_and_says_where() -> None:
    first, second, third, fourth = (loosened(step) for step in range(1, STEPS + 1))
    assert set(first[1]) == {
        ("#/properties/name", "maxLength"),
        ("#/properties/name", "pattern"),
        ("#/properties/list", "maxItems"),
        ("#/$defs/item/properties/size", "maximum"),
    }
    assert ("#/properties/place/properties/street", "properties") in second[1]
    assert second[0]["properties"]["place"]["required"] == ["street"]
    assert ("#/properties/kind", "enum") in third[1]
    assert third[0]["properties"]["place"] == {"type": "object"}
    assert third[0]["required"] == ["name", "kind"]
    assert fourth[0]["type"] == "object"
    assert "properties" not in fourth[0]


def test_a_schema_that_is_none_is_left_as_it_is() -> None:
    let_go: list[tuple[str, str]] = []
    odd: Any = {"type": "object", "properties": {"a": True, "b": "?"}, "anyOf": 7, "items": [1]}
    assert loosen(odd, 1, let_go)["properties"] == {"a": True, "b": "?"}
