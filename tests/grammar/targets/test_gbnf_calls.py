"""The calls of every format in GBNF, judged by llama.cpp's own grammar engine."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from callsmith.core.errors import UsageError
from callsmith.core.values import Call, Choice, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.gbnf import to_gbnf
from tests.effort import tries
from tests.formats.laws import rounds
from tests.grammar.targets.llama_grammar import LlamaGrammar, missing
from tests.grammar.targets.test_gbnf import INTEGER, STRING, obj

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
REQUIRED = Choice("required")


def in_order(value: Any, schema: Any) -> Any:
    """The value with its keys in the schema's order, which is the one most grammars want."""
    if not isinstance(value, dict):
        return value
    return {key: in_order(value[key], inner) for key, inner in schema["properties"].items() if key in value}


def calls_of(format: Format, drawn: Iterable[Call]) -> list[Call]:
    return [Call(drawn_call.name, drawn_call.arguments, fit_id("call_1", format.ids)) for drawn_call in drawn]


@EVERY
@pytest.mark.req("R65")
@settings(
    max_examples=tries(2, 5), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(data=st.data())
def test_the_grammar_of_every_format_accepts_what_is_written(format: Format, data: st.DataObject) -> None:
    tools, drawn = data.draw(rounds(format))
    ordered = (
        Call(drawn_call.name, in_order(drawn_call.arguments, tool.parameters))
        for drawn_call, tool in zip(drawn, tools, strict=True)
    )
    calls = calls_of(format, ordered)
    try:
        one, all_of_them = write(format, calls[:1]), write(format, calls)
    except UsageError:
        assume(False)
    grammar = grammar_for(format, tools, REQUIRED)
    assert grammar is not None
    judge = LlamaGrammar(to_gbnf(grammar).text)
    assert judge.stuck(one) is None
    assert judge.stuck(all_of_them) is None


@EVERY
def test_the_grammar_of_every_format_refuses_a_wrong_call(format: Format) -> None:
    tools = [Tool("f", "", obj({"n": INTEGER, "s": STRING, "e": {"enum": ["x", "y"]}}, "n", "s")), Tool("now")]
    grammar = grammar_for(format, tools, REQUIRED)
    assert grammar is not None
    judge = LlamaGrammar(to_gbnf(grammar).text)

    def written(name: str = "f", **arguments: Any) -> str:
        return write(format, calls_of(format, [Call(name, arguments)]))

    assert judge.stuck(written(n=1, s="a", e="x")) is None
    wrong = [written("g", n=1, s="a"), written("now", n=1), written(n=1), written(n="one", s="a"), written(n=1.5, s="a")]
    wrong += [written(n=1, s="a", e="z"), written(n=1, s="a", more=1), written(n=1, s="a") + " and more", "I would rather not."]
    assert [text for text in wrong if judge.accepts(text)] == []


@EVERY
def test_where_calling_is_optional_text_is_accepted_and_calls_behind_it(format: Format) -> None:
    tools = [Tool("f", "", obj({"s": STRING}, "s")), Tool("now")]
    grammar = grammar_for(format, tools, Choice())
    assert grammar is not None
    judge = LlamaGrammar(to_gbnf(grammar).text)
    assert judge.stuck(write(format, text="It is sunny, I think.")) is None
    assert judge.stuck(write(format, calls_of(format, [Call("f", {"s": "a"})]), text="Let me see.")) is None
