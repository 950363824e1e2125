"""Prompts far longer than the context: they are refused before all of them is tokenized, and away from the engine's thread."""

import threading
from typing import Any

import pytest

pytest.importorskip("llguidance")

from callsmith.core.errors import PromptTooLong
from callsmith.core.values import Message, Request, Sampling
from callsmith.formats.prompt.prompt import Prompt
from callsmith.models.local import LocalModel
from tests.grammar.sampling import vocabulary

WORDS = "a rose is a rose is a rose. "


class Counted:
    """What a vocabulary tokenizes, and in which threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tokens: Any) -> None:
        self.bytes, self.threads = 0, set[str]()
        real = tokens._tokens

        def tokenize(data: bytes, **options: Any) -> Any:
            self.bytes += len(data)
            self.threads.add(threading.current_thread().name.rsplit("_", 1)[0])
            return real(data, **options)

        monkeypatch.setattr(tokens, "_tokens", tokenize)


def test_a_prompt_that_cannot_fit_is_refused_by_its_beginning(monkeypatch: pytest.MonkeyPatch):
    tokens = vocabulary()
    counted = Counted(monkeypatch, tokens)
    with pytest.raises(PromptTooLong):
        tokens.prompt(Prompt(WORDS * 200_000), 2048)
    assert counted.bytes < 50_000


def test_what_may_fit_is_tokenized_whole():
    tokens = vocabulary()
    spaces = Prompt(" " * 300_000)
    assert len(tokens.prompt(spaces, 300_000)) == len(tokens.prompt(spaces))


def test_more_pieces_than_the_context_has_tokens_are_not_even_tokenized(monkeypatch: pytest.MonkeyPatch):
    tokens = vocabulary()
    counted = Counted(monkeypatch, tokens)
    with pytest.raises(PromptTooLong):
        tokens.prompt(Prompt("<|im_end|>" * 3000, cuts=tuple(range(1, 30_000, 10))), 2048)
    assert counted.bytes == 0


async def test_the_engine_and_the_loop_do_not_tokenize_long_prompts(shallow: LocalModel, monkeypatch: pytest.MonkeyPatch):
    engine: Any = shallow.engine
    counted = Counted(monkeypatch, engine._vocabulary)
    with pytest.raises(PromptTooLong):
        [piece async for piece in engine.generate(Prompt(WORDS * 100_000), Sampling(max_tokens=1))]
    await shallow.count(Request((Message.user(WORDS * 5_000),)))
    assert counted.threads == {"callsmith-tokens"}
