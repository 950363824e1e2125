"""Special tokens: a token is not its letters, neither to a grammar nor to the reader."""

from collections.abc import Sequence
from functools import cache

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import Unavailable
from callsmith.core.events import ModelEvent, Text
from callsmith.core.values import Tool
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.engines.port import Piece
from callsmith.formats import format_named
from callsmith.formats.inference.laws import merge_deltas
from callsmith.formats.reader.reader import Reader
from callsmith.models.weights.fetch import locate
from tests.formats.laws import calls_in
from tests.grammar.checking import STRING, TOOLS, check_calls, obj, read_sample, required
from tests.grammar.sampling import Sampler, letters, vocabulary
from tests.grammar.sampling import matcher as matcher_of

pytestmark = pytest.mark.weights

QWEN = "qwen2.5-coder-1.5b"


@cache
def qwen() -> GgufVocabulary:
    try:
        locate(QWEN)
    except Unavailable as missing:
        pytest.skip(f"the vocabulary in which <tool_call> is one token: {missing}")
    return vocabulary(QWEN)


def test_a_special_token_is_not_its_letters_to_the_grammar_nor_to_the_reader() -> None:
    hermes, tokens = format_named("hermes"), qwen()
    tools = [Tool("f", "", obj({"s": STRING}))]
    grammar = required(hermes, tools)
    open_token, close_token = tokens.specials["<tool_call>"], tokens.specials["</tool_call>"]
    body = letters(tokens, '\n{"name": "f", "arguments": {"s": "</tool_call>"}}\n')  # in a string the letters are just letters
    compiling = Compiler(tokens)

    def goes_through(*wanted: int) -> bool:
        matcher = matcher_of(compiling.begin(grammar))
        return matcher.validate_tokens(list(wanted)) == len(wanted)

    assert goes_through(open_token, *body, close_token)
    assert not goes_through(*letters(tokens, "<tool_call>"), *body, close_token)
    assert not goes_through(open_token, *body, *letters(tokens, "</tool_call>"))
    assert not goes_through(open_token, *body[:-2], close_token)  # nor may the token stand in a string

    def read_tokens(wanted: Sequence[int]) -> list[ModelEvent]:
        reader = Reader(hermes, tools, specials=frozenset(tokens.specials))
        events = [
            event for token in wanted for event in reader.feed(tokens.says[token].decode(), special=token in tokens.special)
        ]
        return merge_deltas(events + reader.close())

    assert calls_in(read_tokens([open_token, *body, close_token])) == [("f", {"s": "</tool_call>"})]
    quoted = [*letters(tokens, "<tool_call>"), *body, *letters(tokens, "</tool_call>")]
    assert read_tokens(quoted) == [Text("".join(tokens.says[token].decode() for token in quoted))]


def test_answers_under_a_tokenizer_with_tool_tokens_are_read_back() -> None:
    hermes, tokens = format_named("hermes"), qwen()
    sampler = Sampler(tokens, Compiler(tokens), hermes, "qwen")
    for number in range(24):
        tools = [TOOLS[number % len(TOOLS)]]
        grammar = required(hermes, tools, parallel=False)
        sample = sampler.draw(grammar)
        if sample.whole:
            assert sample.pieces[0] == Piece("<tool_call>", special=True)
            assert check_calls(read_sample(hermes, sample, tools, tokens.specials), tools, grammar, sample.text)
