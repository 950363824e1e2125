"""Grammars are made once for each set of tools, and never mistaken for those of another."""

import re
from types import MappingProxyType
from typing import Any

import pytest

from callsmith.core.values import Choice, Output, Tool
from callsmith.formats import format_named
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.models.grammars import Grammars, fingerprint
from tests.work import count_calls

REQUIRED = Choice("required")


def tool(schema: Any = None, name: str = "f") -> Tool:
    return Tool(name, "", {"type": "object", "properties": {"a": schema if schema is not None else {"type": "string"}}})


def many(count: int = 12) -> tuple[Tool, ...]:
    return tuple(tool(name=f"f{number}") for number in range(count))


@pytest.mark.req("R184")
@pytest.mark.req("R68", "R78")
def test_the_same_tools_get_the_same_grammar_also_as_other_objects() -> None:
    grammars, tools = Grammars(format_named("hermes")), (tool(), tool(name="g"))
    grammar = grammars.get(tools, REQUIRED)
    assert grammar is not None
    assert grammars.get(tools, REQUIRED) is grammar
    assert grammars.get((tool(), tool(name="g")), REQUIRED) is grammar
    assert grammars.get(REQUIRED.among(tools), REQUIRED) is grammar
    assert grammars.get((Tool("f", "said otherwise", tool().parameters), tool(name="g")), REQUIRED) is grammar


def test_a_list_that_has_changed_gets_another_grammar_and_a_tuple_of_as_many_tools_too() -> None:
    grammars, tools = Grammars(format_named("hermes")), [tool(), tool(name="g")]
    grammar = grammars.get(tools, REQUIRED)
    tools[1] = tool(name="h")
    assert grammars.get(tools, REQUIRED) is not grammar
    for number in range(600):  # more than are kept, so that places in memory are used again
        assert made_for(grammars.get((tool(name=f"f{number}"),), REQUIRED)) == f"f{number}"


def made_for(grammar: Any) -> str:
    return re.findall(r"f\d+", repr(grammar))[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"const": 1}, {"const": 1.0}),
        ({"const": 1}, {"const": True}),
        ({"const": None}, {"const": "None"}),
        ({"type": "object", "properties": {"x": {}, "y": {}}}, {"type": "object", "properties": {"y": {}, "x": {}}}),
    ],
)
def test_what_is_not_quite_the_same_is_not_taken_for_it(one: Any, other: Any) -> None:
    grammars = Grammars(format_named("hermes"))
    assert grammars.get((tool(one),), REQUIRED) is not grammars.get((tool(other),), REQUIRED)


def test_a_fingerprint_does_not_depend_on_what_is_shared() -> None:
    string = {"type": "string"}
    shared = Tool("f", "", {"properties": {"a": string, "b": string}})
    apart = Tool("f", "", {"properties": {"a": {"type": "string"}, "b": {"type": "".join(["str", "ing"])}}})
    assert fingerprint((shared,)) == fingerprint((apart,))
    assert fingerprint((shared,)) != fingerprint((shared, shared))
    assert fingerprint((shared,)) != fingerprint((shared,), Output(choices=("a",)))


def test_how_it_is_asked_for_makes_another_grammar() -> None:
    grammars, tools = Grammars(format_named("hermes")), (tool(),)
    grammars_made = [
        grammars.get(tools, REQUIRED),
        grammars.get(tools, Choice()),
        grammars.get(tools, REQUIRED, parallel=False),
        grammars.get(tools, REQUIRED, opened="<think>\n"),
        grammars.get(tools, REQUIRED, thinking=True),
        grammars.get(tools, Choice(), output=Output(choices=("a",))),
    ]
    assert len({id(item) for item in grammars_made}) == len(grammars_made)
    assert grammars.get((), Choice()) is None


def test_what_has_no_fingerprint_is_not_kept_by_it() -> None:
    assert fingerprint((Tool("f", "", MappingProxyType({"type": "object", "properties": {}})),)) is None


def test_many_tools_are_a_relay_only_for_an_engine_that_takes_one() -> None:
    hermes = format_named("hermes")
    assert isinstance(Grammars(hermes, relays=True).get(many(), REQUIRED), Relay)
    assert isinstance(Grammars(hermes).get(many(), REQUIRED), Grammar)
    assert isinstance(Grammars(hermes, relays=True).get(many(3), REQUIRED), Grammar)
    assert isinstance(Grammars(hermes, relays=True).get(many(), Choice(), output=Output.json_object()), Grammar)


def test_what_is_not_enforced_is_told_by_tool() -> None:
    grammars = Grammars(format_named("hermes"), relays=True)
    unlike = tool({"type": "string", "not": {"const": "x"}}, "odd")
    unenforced = grammars.list_unenforced(unlike)
    assert {(item.tool, item.keyword) for item in unenforced} == {("odd", "not")}
    assert not any(grammars.list_unenforced(plain) for plain in many())


def test_a_tool_is_examined_once_for_what_is_not_enforced() -> None:
    grammars = Grammars(format_named("qwen3-coder"))
    large = Tool("f", "", {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(100)}})
    first = count_calls(lambda: grammars.list_unenforced(large))
    assert count_calls(lambda: grammars.list_unenforced(large)) < first / 20
