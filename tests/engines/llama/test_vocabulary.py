"""A text tokenised in pieces, some of them kept, has the tokens it has as a whole. On real vocabularies."""

import json
import random

import pytest

pytest.importorskip("xllamacpp")

from llguidance import LLMatcher

from callsmith.engines.decoding.vocabulary import LONG, SafeCuts
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.engines.lru import LRU
from callsmith.formats.prompt.prompt import Prompt
from tests.grammar.sampling import vocabulary

WHITE = [" ", "  ", "\n", "\n\n", " \n\t", "\r\n", "\u00a0", "\u3000", "\v"]
WORDS = [
    "hello",
    "can't",
    "12345",
    '{"a": [1, 2]}',
    "猫が好き",
    "🐈‍⬛",
    "e\u0301",
    "<",
    "|>",
    "<|im",
    "_end|>",
    "\0",
    "word " * 150,
]
both = pytest.mark.parametrize("name", ["smollm2-135m", pytest.param("qwen2.5-coder-1.5b", marks=pytest.mark.slow)])


def some_text(vocabulary: GgufVocabulary, chance: random.Random) -> str:
    specials = chance.sample(list(vocabulary.specials), 6)
    return "".join(chance.choice(chance.choice((specials, WHITE, WORDS))) for _ in range(chance.randint(1, 200)))


@pytest.mark.weights
@both
def test_the_tokens_of_the_pieces_are_those_of_the_whole(name: str) -> None:
    tokens, chance, cuts = vocabulary(name), random.Random(7), 0
    for _ in range(150):
        text = some_text(tokens, chance)
        whole = list(tokens._tokens(text.encode()))
        assert tokens.tokenize(text) == whole
        assert tokens.tokenize(text) == whole, "the second time"
        cuts += len(list(tokens._safe_cuts.pieces(text.encode()))) - 1
    assert cuts > 300


@pytest.mark.weights
@both
def test_what_the_prompt_before_had_is_not_tokenised_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, tokenised = vocabulary(name), list[int]()
    system = "<|im_start|>system\n" + f"tools of {name}\n" * 1000
    question = "<|im_end|>\n<|im_start|>user\nWhat now?<|im_end|>\n"
    plain = tokens._tokens

    def counting(data: bytes) -> object:
        tokenised.append(len(data))
        return plain(data)

    monkeypatch.setattr(tokens, "_tokens", counting)
    tokens.prompt(Prompt(system + question))
    assert sum(tokenised) == len(system + question)
    tokenised.clear()
    longer = question * 2 + "<|im_start|>assistant\n"
    tokens.prompt(Prompt(system + longer))
    assert sum(tokenised) == len(longer)


TEXT = b"a" * LONG


def pieces(specials: list[bytes], data: bytes, eaters: list[bytes] | None = None) -> list[bytes]:
    return list(SafeCuts(specials, eaters or []).pieces(data))


def test_a_long_text_is_cut_before_special_tokens() -> None:
    assert pieces([b"<x>", b"[y]"], TEXT + b"<x>" + TEXT + b"[y]b") == [TEXT, b"<x>" + TEXT, b"[y]b"]


def test_short_pieces_stay_together_but_not_with_a_long_one_behind_them() -> None:
    assert pieces([b"<x>"], b"<x>a<x>b<x>" + TEXT + b"<x>c<x>d") == [b"<x>a<x>b", b"<x>" + TEXT, b"<x>c<x>d"]


def test_what_is_added_at_the_end_leaves_the_pieces_before_as_they_are() -> None:
    turn = b"<x>" + b"b" * 200
    before, after = pieces([b"<x>"], turn * 20), pieces([b"<x>"], turn * 21)
    assert len(before) > 5
    assert after[: len(before) - 1] == before[:-1]


@pytest.mark.parametrize(
    "others",
    [[b"<x><y>"], [b"-<x>-"], [b">>"], [b"<<"], [b"a<"], [b"x>b"], [b"<x>"]],
    ids=["longer", "around", "next", "before", "its-start", "its-end", "twice"],
)
def test_there_is_no_cut_at_a_token_that_another_may_take_a_part_of(others: list[bytes]) -> None:
    data = TEXT + b"<x>" + TEXT
    assert pieces([b"<x>", *others], data) == [data]


def test_there_is_no_cut_before_a_token_that_eats_white_space_or_can_be_eaten_from() -> None:
    for token, eaters in ((b"<x>", [b"<x>"]), (b" <x>", []), (b"<x>\n", []), (b"\n", []), (b"", [])):
        data = TEXT + token + TEXT
        assert pieces([token], data, eaters) == [data]


def test_an_empty_text_and_no_special_tokens_do_no_harm() -> None:
    assert pieces([], TEXT) == [TEXT]
    assert pieces([b"<x>"], b"") == [b""]


def test_no_more_is_kept_than_may_weigh_so_much() -> None:
    kept = LRU[str](10)
    for key in "abc":
        kept.put(key, key, 4)
    assert [kept.get(key) for key in "abc"] == [None, "b", "c"]
    kept.get("b")
    kept.put("d", "d", 5)
    assert [kept.get(key) for key in "bcd"] == ["b", None, "d"]
    assert kept.put("d", "another", 5) == "d"
    kept.put("heavy", "heavy", 11)
    kept.put("e", "e", 10)
    assert (kept.get("heavy"), kept.get("e"), len(kept)) == (None, "e", 1)


@pytest.mark.weights
@both
def test_a_grammar_that_spells_a_special_token_is_met_by_letters(name: str) -> None:
    """llama.cpp finds added tokens in every text, whatever it is asked for: Qwen's </tool_call> is one."""
    tokens = vocabulary(name)
    for text in tokens.specials:
        matcher = LLMatcher(tokens.guidance_tokenizer([]), LLMatcher.grammar_from_lark(f"start: {json.dumps('a' + text)}"))
        while not matcher.is_stopped() and not matcher.is_error():
            forced = matcher.compute_ff_tokens()
            assert forced and not set(forced) & set(tokens.special), text
            assert matcher.consume_tokens(forced), matcher.get_error()
