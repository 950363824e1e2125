"""Grammars that users write in GBNF: which texts they accept, and what is wrong with those that are refused."""

import json

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UsageError
from callsmith.core.values import Output
from callsmith.formats import format_named
from callsmith.grammar.languages.gbnf import gbnf_to_lark, is_gbnf
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar
from tests.grammar.sampling import compiler

JSON = r"""
# any JSON value
root   ::= ws value
value  ::= object | array | string | number |
           ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws (
    value
    ("," ws value)*
  )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def accepts(gbnf: str, text: str) -> bool:
    tokens, compiling = compiler("")
    node = output_grammar(format_named("hermes"), Output(grammar=gbnf)).node
    constraint = compiling.begin(Grammar(node))
    for character in text:  # letter by letter: which tokens a text has makes no difference
        for token in tokens.tokenize(character):
            if not constraint.admits(token):
                return False
    return constraint.may_end


@pytest.mark.parametrize(
    ("gbnf", "accepted", "refused"),
    [
        ('root ::= "yes" | "no" [!.]{0,3}', ["yes", "no", "no!.!"], ["yes!", "no....", "maybe", ""]),
        # Parts share characters: nothing is taken that another part needs.
        ('root ::= [a-z]* "z"', ["z", "zz", "abz"], ["ab", "zq"]),
        ('root ::= word "!"\nword ::= ([a-z] | "abcd" | "(" word ")")*', ["abx!", "abcd!", "(abc)abcx!"], ["(ab!", "ab"]),
        ("root ::= .{2}", ["a\n", "é😀"], ["a", "abc"]),
        (r'root ::= "\"\\\n\t\x41\u00e9\U0001F600/"', ['"\\\n\tAé😀/'], ["x"]),
        (r"root ::= [^a-c\]\-/^]+", ["xyz", "["], ["a", "]", "-", "/", "^"]),
        ("root ::= [-a] [a-]", ["--", "aa", "-a"], ["b-"]),
        ('root ::= a-b "c"?\na-b ::= "a" |\n  "b"', ["a", "bc"], ["c", "abc"]),
        ('root ::= "a"{2} "b"{,2} "c"{1,}', ["aac", "aabbccc"], ["ac", "aabbbc", "aa"]),
        ('root ::= "a" | ', ["a", ""], ["b"]),
        ('root ::= "(" root ")" | ""', ["", "(())"], ["(()", ")"]),
        ('# a comment ::= here\nroot ::= "a" # and here\n\n', ["a"], ["#"]),
        ('root ::= "<|im_end|>"', ["<|im_end|>"], ["<"]),
    ],
)
def test_a_text_is_accepted_as_llama_cpp_would(gbnf: str, accepted: list[str], refused: list[str]) -> None:
    assert [text for text in accepted if not accepts(gbnf, text)] == []
    assert [text for text in refused if accepts(gbnf, text)] == []


@pytest.mark.parametrize("value", [{"a": [1, -2.5, {"b": None}], "c": 'é "\\'}, [], "x", 10, True])
def test_a_grammar_of_json_accepts_json(value: object) -> None:
    assert accepts(JSON, json.dumps(value, ensure_ascii=False))
    assert not accepts(JSON, json.dumps(value, ensure_ascii=False) + "}")


@pytest.mark.parametrize(
    ("gbnf", "why"),
    [
        ('start ::= "a"', "no rule 'root'"),
        ("root ::= other", "no rule 'other'"),
        ('root ::= "a', 'line 1: expected "'),
        ('\nroot ::= ("a"', "line 2: expected )"),
        ('root ::= "a")', "expected the end of the rule"),
        ("root ::= [z-a]", "lower to the higher"),
        ("root ::= []", "without characters"),
        (r'root ::= "\q"', "unknown escape"),
        (r'root ::= "\uD800"', "no character d800"),
        ('root ::= "a"{x}', "number of repetitions"),
        ('root ::= "a"{3,2}', "lower to the higher number"),
        ('root ::= "a"{9999}', "at most 2000"),
        ("root ::= <think>", "tokens in a grammar"),
        ("root ::= " + "(" * 60 + '"a"' + ")" * 60, "nested more than 50"),
        ("root ::= =", "expected a name"),
        ('root ::= "a"' + "*" * 60_000, "expected a name"),
        ('root ::= "a"\n' + "".join(f'r{at} ::= "a"\n' for at in range(1001)), "more than 1000 rules"),
        ('root ::= "' + "a" * 70_000 + '"', "bytes, more than 65536"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(gbnf: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        gbnf_to_lark(gbnf)
    assert why in str(refused.value)
    assert refused.value.field == "grammar"


def test_rules_that_lie_deep_in_each_other_are_no_problem() -> None:
    chain = "".join(f"r{at} ::= r{at + 1}\n" for at in range(500))
    assert accepts(f'root ::= r0\n{chain}r500 ::= "a"', "a")


def test_lark_is_told_from_gbnf() -> None:
    assert is_gbnf('# yes\n  root ::= "a"')
    assert not is_gbnf('start: "::=" | /a/\n')
