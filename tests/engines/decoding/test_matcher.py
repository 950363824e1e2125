"""Looking up single tokens gives what the whole mask gives. On a real vocabulary."""

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("xllamacpp")

import numpy as np

from callsmith.core.values import Call, Choice, Tool
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.matcher import Constraint
from callsmith.engines.decoding.trials import Cancellation
from callsmith.formats import format_named
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.limits import is_simple
from callsmith.grammar.nodes import Grammar, Lit, Seq, Until
from tests.grammar.sampling import vocabulary

pytestmark = pytest.mark.weights

TOOL = Tool(
    "send",
    "",
    {
        "type": "object",
        "properties": {"to": {"type": "string"}, "n": {"type": "integer"}, "how": {"enum": ["fast", "far"]}},
        "required": ["to"],
    },
)


def places(name: str) -> Iterator[Constraint]:
    """Every place in a call where something can be chosen."""
    format, tokens = format_named(name), vocabulary()
    grammar = grammar_for(format, [TOOL, Tool("now")], Choice("required"))
    assert grammar is not None
    constraint = Compiler(tokens).begin(grammar)
    assert isinstance(constraint, Constraint)
    for token in tokens.tokenize(write(format, [Call("send", {"to": 'me, "you" and <us>', "n": 12, "how": "far"})] * 2)):
        if not constraint.find_forced():
            yield constraint
        constraint.consume(token)


@pytest.mark.req("R70")
@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "pythonic"])
def test_a_token_by_itself_is_allowed_where_the_mask_allows_it(name: str) -> None:
    random, size = np.random.default_rng(1), vocabulary().size
    seen = 0
    for constraint in places(name):
        some = random.integers(0, size, 20)
        singly = constraint.among(some)
        assert not constraint._masked
        allowed = constraint.tokens()
        assert constraint._masked
        assert (singly == np.isin(some, allowed)).all()
        several = np.concatenate([some, random.choice(allowed, 10)])
        assert (constraint.among(several) == np.isin(several, allowed)).all()
        logits = np.zeros(size, np.float32)
        constraint.restrict(logits)
        assert (np.flatnonzero(logits == 0) == allowed).all()
        seen += 1
    assert seen > 20


@pytest.mark.req("R70")
@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "pythonic", "deepseek-v3"])
def test_where_tokens_are_forced_the_mask_is_that_of_the_grammar_engine(name: str) -> None:
    format, tokens = format_named(name), vocabulary()
    grammar = grammar_for(format, [TOOL, Tool("now")], Choice("required"))
    assert grammar is not None
    constraint = Compiler(tokens).begin(grammar)
    assert isinstance(constraint, Constraint)
    forced = 0
    for token in tokens.tokenize(write(format, [Call("send", {"to": "me", "n": 12, "how": "far"})] * 2)):
        bits = np.frombuffer(constraint.matcher.compute_bitmask(), np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, count=tokens.size, bitorder="little"))
        assert (constraint.tokens() == allowed).all()
        forced += bool(constraint.find_forced())
        constraint.consume(token)
    assert forced > 5


def test_tokens_that_must_come_are_forgotten_where_another_one_was_taken() -> None:
    tokens = vocabulary()
    constraint = Compiler(tokens).begin(Grammar(Lit("function")))
    assert tokens.text(constraint.find_forced()[0]) == "function"
    for letter in "fun":  # spelled in other tokens, as a prefix that was prefilled may be
        constraint.consume(tokens.tokenize(letter)[0])
    assert tokens.text(constraint.find_forced()[0]) == "ction"


def test_where_a_token_is_forced_its_halves_are_not_allowed() -> None:
    tokens = vocabulary()
    constraint = Compiler(tokens).begin(Grammar(Lit("function")))
    half = tokens.tokenize("fun")[0]
    assert tokens.text(constraint.find_forced()[0]) == "function"
    assert not constraint.among(np.array([half]))[0]


def test_a_costly_grammar_is_tried_also_where_it_names_special_tokens_with_large_numbers() -> None:
    compiler, last = Compiler(vocabulary()), vocabulary().size - 1
    lark = f'start: (<[{last}]> x){{500,}}\nx: %json {{"type": "string", "maxLength": 16}}'
    assert not is_simple(lark)
    try:
        assert not compiler.compile(lark, Cancellation()).is_error()
    finally:
        compiler.close()


@pytest.mark.req("R68", "R78")
def test_a_grammar_is_compiled_once_and_also_its_prefix_is_taken_in_once() -> None:
    compiler = Compiler(vocabulary())
    grammar = Grammar(Seq((Lit("<think>"), Until("</think>"))), prefix="<think>")
    first, second = compiler.begin(grammar), compiler.begin(grammar)
    assert len(compiler._prepared) == len(compiler._compiled) == 1
    assert isinstance(first, Constraint)
    assert isinstance(second, Constraint)
    first.consume(vocabulary().tokenize("hm")[0])
    assert first.matcher is not second.matcher
    assert not second.may_end
    compiler.begin(Grammar(Seq((Lit("<think>"), Until("</think>"))), prefix="<think>"))
    assert len(compiler._compiled) == 1


@pytest.mark.parametrize(("lexers", "compiled"), [(1, 1), (3, 3), (9, 5)])
def test_a_grammar_is_compiled_again_for_answers_at_the_same_time(
    lexers: int, compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lark_texts: list[str] = []
    compile_once = Compiler._compile
    monkeypatch.setattr(Compiler, "_compile", lambda self, lark: lark_texts.append(lark) or compile_once(self, lark))
    compiler = Compiler(vocabulary(), lexers)
    grammar = Grammar(Seq((Lit("<think>"), Until("</think>"))), prefix="<think>")
    for _ in range(3):
        compiler.begin(grammar)  # one after another
    assert len(lark_texts) == 1
    for _ in range(2):
        together = [compiler.begin(grammar) for _ in range(5)]
        assert len(lark_texts) == compiled
        for constraint in together:
            constraint.consume(vocabulary().tokenize("hm")[0])  # all are behind the prefix
        del together, constraint


def test_many_threads_may_ask_one_compiler() -> None:
    compiler, grammars, failed = Compiler(vocabulary()), [Grammar(Lit(f"say {number}")) for number in range(5)], []

    def work() -> None:
        try:
            for number in range(40):
                assert compiler.begin(grammars[number % 5]).find_forced()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
