"""Text up to a closing tag: in pieces, for the sake of cheap masks, it is the same text."""

import random
from functools import cache
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

import numpy as np

from callsmith.core.values import Choice, Tool
from callsmith.engines.decoding.compiler import Compiler
from callsmith.formats import format_named
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.nodes import Alt, Grammar, JsonValue, Lit, Seq, Until
from callsmith.grammar.targets.lark import to_lark
from tests.grammar.sampling import vocabulary

pytestmark = pytest.mark.weights

CLOSES = ("</parameter>", "</a>", "<>", "[/X]", "a-b", "]^")


@cache
def compiler() -> Compiler:
    return Compiler(vocabulary())


def text_up_to(close: str, unlike: str, *, apart: bool, beside: bool = False) -> Grammar:
    text = Seq((Until(close, not_starting_with=unlike, is_distinct=apart), Lit(".")))
    number = Seq((JsonValue({"type": ["integer", "null"]}), Lit(f"\n{close}.")))
    return Grammar(Seq((Lit("="), Alt((number, text)) if beside else text)))


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("unlike", ["", "{("])
@pytest.mark.parametrize("close", CLOSES)
@pytest.mark.sampled
def test_in_pieces_it_allows_the_same_tokens_everywhere(close: str, unlike: str, beside: bool) -> None:
    grammars = [text_up_to(close, unlike, apart=apart, beside=beside) for apart in (True, False)]
    assert ["lazy" in to_lark(grammar) for grammar in grammars] == [False, True]
    chance = random.Random(close + unlike)
    parts = [close[:size] for size in range(1, len(close))] + [
        close[1:],
        close[-1:],
        "x",
        " ",
        "\n",
        "{",
        "12",
        "null",
        " y>z",
        "é",
    ]
    for _ in range(12):
        text = "=" + "".join(chance.choice(parts) for _ in range(chance.randint(0, 9))) + close + "."
        pieces, whole = (compiler().begin(grammar) for grammar in grammars)
        for token in vocabulary().tokenize(text):
            assert pieces.find_forced() == whole.find_forced()
            assert np.array_equal(pieces.tokens(), whole.tokens()), text
            assert pieces.may_end == whole.may_end
            if not whole.admits(token):
                assert not pieces.admits(token)
                break
            assert pieces.admits(token)
        else:
            assert pieces.ended and whole.ended


@pytest.mark.parametrize("close", ["</a></b>", "```", '"', "<a<"])
def test_what_closes_it_must_have_ends_of_its_own_to_be_taken_apart(close: str) -> None:
    assert "lazy" in to_lark(text_up_to(close, "", apart=True))
    assert "lazy" in to_lark(text_up_to("</a>", "<", apart=True))
    assert "lazy" in to_lark(Grammar(Until("</a>", ("<b>",), is_distinct=True)))


def schema(value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": value}, "required": ["a"]}


@pytest.mark.parametrize(
    ("parameters", "lazy"),
    [
        (schema({"type": "string"}), False),
        (schema({"anyOf": [{"enum": ["x"]}, {"type": "string"}, {"type": "null"}]}), False),
        (schema({"anyOf": [{"enum": ["x<y"]}, {"type": "string"}]}), True),
        ({"anyOf": [schema({"enum": ["x<y"]}), schema({"type": "string"})]}, True),
    ],
)
def test_beside_a_word_with_the_first_letter_of_the_tag_it_is_not_taken_apart(parameters: dict[str, Any], lazy: bool) -> None:
    grammar = grammar_for(format_named("qwen3-coder"), [Tool("f", "", parameters)], Choice("required"))
    assert grammar is not None
    assert ("lazy" in to_lark(grammar)) is lazy
    held = compiler().begin(grammar)
    text = "<tool_call>\n<function=f>\n<parameter=a>\nx<z</param>\n</parameter>\n</function>\n</tool_call>"
    assert all(held.admits(token) for token in vocabulary().tokenize(text))
    assert held.may_end
