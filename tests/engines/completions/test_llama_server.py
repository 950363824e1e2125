"""The completions engine in front of a real llama-server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import PromptTooLong, Rejected
from callsmith.core.values import Sampling, TokenBias
from callsmith.engines import open_engine
from callsmith.engines.port import Engine, Piece
from callsmith.engines.upstream import Upstream
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Alt, FreeText, Grammar, Lit, Seq, Until
from tests.engines.contract import GREEDY, EngineContract, say
from tests.llama_servers import llama_server

pytestmark = [pytest.mark.model, pytest.mark.weights]

ASKED = Prompt("<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with llama_server(256) as address:
        yield address


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = open_engine(f"completions:{url}")
    yield engine
    await engine.close()


class TestContract(EngineContract):
    @pytest.fixture
    def prompt(self) -> Prompt:
        return ASKED


def test_the_server_says_what_it_serves(engine: Engine) -> None:
    info = engine.info
    assert info.name == "smollm2-135m"
    assert info.context == 256
    assert info.template and "<|im_start|>" in info.template
    assert (info.bos, info.eos) == ("<|im_start|>", "<|im_end|>")
    assert info.specials["<|im_end|>"] == 2
    assert len(info.specials) == 17  # all that look like one, and not the ordinary token "[:]"


async def test_what_only_spells_a_special_token_stays_letters(engine: Engine) -> None:
    text = "<|im_end|>"
    spelled = Prompt(text + text, cuts=(1, len(text) + 1))
    _, finished = await say(engine, spelled, replace(GREEDY, max_tokens=1))
    _, meant = await say(engine, Prompt(text + text), replace(GREEDY, max_tokens=1))
    assert meant.usage.prompt == 2
    assert finished.usage.prompt > 2 * 2
    assert await engine.count(text) == 1


async def test_a_grammar_is_enforced_and_ends_the_answer(engine: Engine) -> None:
    said, finished = await say(engine, ASKED, grammar=Grammar(Seq((Lit("Die See"), Lit(" ist tief.")))))
    assert said == "Die See ist tief."
    assert finished.reason == "stop"


async def test_a_special_token_in_a_grammar_is_a_piece_of_its_own(engine: Engine) -> None:
    grammar = Grammar(Lit("a<file_sep>b"))
    pieces = [item async for item in engine.generate(ASKED, GREEDY, grammar) if isinstance(item, Piece)]
    assert pieces == [Piece("a"), Piece("<file_sep>", special=True), Piece("b")]


async def test_a_grammar_that_waits_for_a_trigger_leaves_text_alone_until_it_comes(engine: Engine) -> None:
    free, _ = await say(engine, ASKED)
    word = free.split()[3]
    held = Grammar(Alt((FreeText((word,)), Seq((Until(word), Lit(" – quoth he."))))), triggers=(word,))
    said, finished = await say(engine, ASKED, grammar=held)
    assert said == free[: free.index(word)] + word + " – quoth he."
    assert finished.reason == "stop"
    never = Grammar(Alt((FreeText(("never",)), Seq((Until("never"), Lit("!"))))), triggers=("never",))
    assert (await say(engine, ASKED, grammar=never))[0] == free


async def test_a_prompt_that_is_too_long_is_the_clients_mistake(engine: Engine) -> None:
    with pytest.raises(PromptTooLong) as caught:
        await say(engine, Prompt("hello " * 300), Sampling(temperature=0.0))
    assert caught.value.tokens == 301
    assert caught.value.context == 256
    with pytest.raises(PromptTooLong):
        await say(engine, Prompt("hello " * 300), GREEDY)


async def test_an_answer_ends_where_the_context_does(engine: Engine) -> None:
    sampling = replace(GREEDY, max_tokens=5000)
    prompt = Prompt("hello " * 250)
    _, finished = await say(engine, prompt, sampling)
    assert finished.reason == "length"
    assert finished.usage.prompt + finished.usage.completion <= 256


async def test_a_client_that_goes_away_stops_the_server(engine: Engine, url: str) -> None:
    async with aclosing(engine.generate(ASKED, replace(GREEDY, max_tokens=200))) as answer:
        await anext(answer)
    upstream = Upstream(url)
    for _ in range(200):
        slots = await upstream.get("slots")
        assert isinstance(slots, list)
        if not any(slot["is_processing"] for slot in slots):  # type: ignore[call-overload, index]
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the server goes on")
    await upstream.close()


async def test_the_second_prompt_that_begins_alike_is_cached(engine: Engine) -> None:
    await say(engine, ASKED)
    _, finished = await say(engine, ASKED)
    assert finished.usage.cached > 0
    _, salted = await say(engine, replace(ASKED, cache_salt="mine"))
    assert salted.usage.cached == 0


async def test_biases_and_stop_strings_count(engine: Engine) -> None:
    biased = replace(GREEDY, logit_bias=(TokenBias(31, 100.0),), max_tokens=3, stop=("zzz",))
    said, finished = await say(engine, ASKED, biased)
    assert finished.usage.completion == 3
    assert len(set(said)) == 1


@pytest.mark.slow
async def test_a_server_with_a_key_is_asked_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with llama_server(256, "very-secret") as url:
        with pytest.raises(Rejected, match="CALLSMITH_UPSTREAM_KEY") as caught:
            open_engine(f"completions:{url}")
        assert caught.value.status == 401
        monkeypatch.setenv("CALLSMITH_UPSTREAM_KEY", "very-secret")
        engine = open_engine(f"completions:llama-server+{url}/v1")
        assert (await say(engine, ASKED))[0]
        await engine.close()
