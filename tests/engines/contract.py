"""What every engine keeps: subclass `EngineContract`, give it an `engine` and a `prompt`, and the tests below are yours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Sampling
from callsmith.engines.port import Engine, Finished, Piece
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar

GREEDY = Sampling(temperature=0.0, max_tokens=24)


async def gather(answer: AsyncIterator[Piece | Finished]) -> tuple[str, Finished]:
    """The whole text and how it ended."""
    items = [item async for item in answer]
    assert isinstance(items[-1], Finished)
    pieces = [item for item in items[:-1] if isinstance(item, Piece)]
    assert len(pieces) == len(items) - 1, "Finished comes once, at the end"
    return "".join(piece.text for piece in pieces), items[-1]


async def say(
    engine: Engine, prompt: Prompt, sampling: Sampling = GREEDY, grammar: Grammar | None = None
) -> tuple[str, Finished]:
    """Ask, and wait for the whole answer."""
    return await gather(engine.generate(prompt, sampling, grammar))


class EngineContract:
    """Give `engine` (one that answers every request with more than 12 characters) and `prompt`.

    Where an engine is dear, the tests may share one, and `fresh` is another that may be closed.
    """

    @pytest.fixture
    def fresh(self, engine: Engine) -> Engine:
        return engine

    @pytest.fixture
    def prompt(self) -> Prompt:
        return Prompt("Tell me about the sea.")

    async def test_an_answer_is_pieces_of_text_and_then_one_finished(self, engine: Engine, prompt: Prompt) -> None:
        text, finished = await say(engine, prompt)
        assert text
        assert finished.usage.prompt > 0
        assert finished.usage.completion > 0

    async def test_no_piece_is_empty(self, engine: Engine, prompt: Prompt) -> None:
        assert all(item.text for item in [item async for item in engine.generate(prompt, GREEDY)] if isinstance(item, Piece))

    async def test_max_tokens_ends_an_answer_by_length(self, engine: Engine, prompt: Prompt) -> None:
        _, finished = await say(engine, prompt, replace(GREEDY, max_tokens=2))
        assert finished.reason == "length"
        assert finished.usage.completion == 2

    async def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(self, engine: Engine, prompt: Prompt) -> None:
        whole, _ = await say(engine, prompt)
        stop = whole[5:9]
        text, finished = await say(engine, prompt, replace(GREEDY, stop=("never said", stop)))
        assert text == whole[: whole.index(stop)]
        assert finished.reason == "stop"

    async def test_text_that_only_begins_like_a_stop_string_is_not_lost(self, engine: Engine, prompt: Prompt) -> None:
        whole, _ = await say(engine, prompt)
        text, _ = await say(engine, prompt, replace(GREEDY, stop=(whole[-4:] + "\0",)))
        assert text == whole

    async def test_the_same_seed_says_the_same(self, engine: Engine, prompt: Prompt) -> None:
        seeded = Sampling(temperature=1.0, seed=7, max_tokens=24)
        assert (await say(engine, prompt, seeded))[0] == (await say(engine, prompt, seeded))[0]

    async def test_tokens_have_log_probabilities_and_places_where_the_engine_gives_them(
        self, engine: Engine, prompt: Prompt
    ) -> None:
        if not engine.info.logprobs:
            pytest.skip("it gives none")
        answer = [item async for item in engine.generate(prompt, replace(GREEDY, logprobs=3)) if isinstance(item, Piece)]
        text, tokens = "".join(piece.text for piece in answer), [token for piece in answer for token in piece.tokens]
        assert [token.start for token in tokens] == sorted(token.start for token in tokens)
        assert (tokens[0].start, tokens[-1].end) == (0, len(text))
        for token in tokens:
            logprob, top = token.logprob, [candidate.logprob for candidate in token.logprob.top]
            assert text[token.start : token.end] == logprob.text or "\ufffd" in logprob.text
            assert 1 <= len(top) <= 3 and top == sorted(top, reverse=True)
            assert logprob.logprob == pytest.approx(top[0]) and logprob.logprob < 1e-3

    async def test_an_answer_given_up_leaves_the_engine_in_working_order(self, engine: Engine, prompt: Prompt) -> None:
        async with aclosing(engine.generate(prompt, GREEDY)) as answer:
            async for _ in answer:
                break
        assert (await say(engine, prompt))[0]

    async def test_a_cancelled_answer_leaves_the_engine_in_working_order(self, engine: Engine, prompt: Prompt) -> None:
        task = asyncio.create_task(say(engine, prompt))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await say(engine, prompt))[0]

    async def test_several_may_ask_at_once(self, engine: Engine, prompt: Prompt) -> None:
        answers = await asyncio.gather(*(say(engine, prompt) for _ in range(3)))
        assert all(text for text, _ in answers)

    async def test_special_tokens_map_text_to_id(self, engine: Engine) -> None:
        assert all(text and token >= 0 for text, token in engine.info.specials.items())

    async def test_generating_after_close_is_an_error(self, fresh: Engine, prompt: Prompt) -> None:
        await fresh.close()
        with pytest.raises(UsageError):
            await say(fresh, prompt)

    async def test_closing_twice_does_no_harm(self, fresh: Engine) -> None:
        await fresh.close()
        await fresh.close()
