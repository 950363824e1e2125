"""The completions engine in front of a real llama-server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("xllamacpp")

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import PromptTooLong, Rejected
from callsmith.core.events import Stopped
from callsmith.core.values import Message, Request, Sampling, TokenBias, TokenLogprob, Tool
from callsmith.engines import open_engine
from callsmith.engines.port import Engine, Piece
from callsmith.engines.upstream import Upstream
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Alt, FreeText, Grammar, Lit, Seq, Until
from callsmith.models import open_model
from callsmith.models.opening import Options
from tests.engines.contract import GREEDY, EngineContract, say
from tests.llama_servers import llama_server
from tests.small import open_shallow, small_file

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
    assert info.name == "SmolLM2-135M-Instruct"
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
    text, finished = await say(engine, ASKED, grammar=Grammar(Seq((Lit("Die See"), Lit(" ist tief.")))))
    assert text == "Die See ist tief."
    assert finished.reason == "stop"


async def test_a_special_token_in_a_grammar_is_a_piece_of_its_own(engine: Engine) -> None:
    grammar = Grammar(Lit("a<file_sep>b"))
    pieces = [item async for item in engine.generate(ASKED, GREEDY, grammar) if isinstance(item, Piece)]
    assert pieces == [Piece("a"), Piece("<file_sep>", special=True), Piece("b")]


async def test_a_grammar_that_waits_for_a_trigger_leaves_text_alone_until_it_comes(engine: Engine) -> None:
    free, _ = await say(engine, ASKED)
    word = free.split()[3]
    held = Grammar(Alt((FreeText((word,)), Seq((Until(word), Lit(" – quoth he."))))), triggers=(word,))
    text, finished = await say(engine, ASKED, grammar=held)
    assert text == free[: free.index(word)] + word + " – quoth he."
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
    _, salted = await say(engine, replace(ASKED, origin=Origin(cache_salt="mine")))
    assert salted.usage.cached == 0


async def test_biases_and_stop_strings_count(engine: Engine) -> None:
    biased = replace(GREEDY, logit_bias=(TokenBias(31, 100.0),), max_tokens=3, stop=("zzz",))
    text, finished = await say(engine, ASKED, biased)
    assert finished.usage.completion == 3
    assert len(set(text)) == 1


async def test_log_probabilities_are_those_of_the_same_weights_here(engine: Engine) -> None:
    first = replace(GREEDY, max_tokens=1, logprobs=20)
    local = open_shallow(context=256)
    try:
        expected, reported = await first_token(local.engine, first), await first_token(engine, first)
        warm = await first_token(engine, replace(first, temperature=2.0, seed=1))
    finally:
        await local.close()
    assert len(reported.top) == 20
    assert [candidate.data for candidate in reported.top[:5]] == [candidate.data for candidate in expected.top[:5]]
    assert [candidate.logprob for candidate in reported.top[:5]] == pytest.approx(
        [candidate.logprob for candidate in expected.top[:5]], abs=0.1
    )
    assert [candidate.data for candidate in warm.top] == [candidate.data for candidate in reported.top]  # before temperature
    assert [candidate.logprob for candidate in warm.top] == pytest.approx(
        [candidate.logprob for candidate in reported.top], abs=0.01
    )


async def test_an_answer_that_ends_at_once_tells_what_else_was_likely(engine: Engine) -> None:
    ends = replace(GREEDY, logprobs=3, logit_bias=(TokenBias(engine.info.specials["<|im_end|>"], 100.0),))
    (piece,) = [item async for item in engine.generate(ASKED, ends) if isinstance(item, Piece)]
    (token,) = piece.tokens
    assert (piece.text, token.logprob.text) == ("", "<|im_end|>")
    assert token.logprob.logprob < token.logprob.top[-1].logprob


async def test_a_character_of_several_tokens_has_one_place(engine: Engine) -> None:
    grammar = Grammar(Lit("a😀<file_sep>b"))
    pieces = [item async for item in engine.generate(ASKED, replace(GREEDY, logprobs=0), grammar) if isinstance(item, Piece)]
    text, tokens = "".join(piece.text for piece in pieces), [token for piece in pieces for token in piece.tokens]
    assert text == "a😀<file_sep>b"
    assert [text[token.start : token.end] for token in tokens] == ["a", "😀", "<file_sep>", "b"]


async def test_whether_tools_are_called_is_decided_beforehand() -> None:
    tool = Tool("get_time", parameters={"type": "object", "properties": {}, "additionalProperties": False})
    question = Message.user("Write a JSON array of three numbers in a fenced block: ```json")
    request = Request((question,), (tool,), sampling=Sampling(temperature=0.0, max_tokens=8))
    with llama_server(256, weights=small_file()) as url:  # two layers would not know what to write
        model = open_model(f"completions:{url}", Options(tool_prompt="json-array"))
        try:
            always, never = [
                [event async for event in model.stream(replace(request, call_bias=bias))][-1] for bias in (20.0, -20.0)
            ]
        finally:
            await model.close()
    assert isinstance(always, Stopped) and always.report.decision and always.report.decision.calls
    assert isinstance(never, Stopped) and never.report.decision and not never.report.decision.calls
    assert -15 < never.report.decision.score < 15  # one that was seen


async def first_token(engine: Engine, sampling: Sampling) -> TokenLogprob:
    pieces = [item async for item in engine.generate(ASKED, sampling) if isinstance(item, Piece)]
    return pieces[0].tokens[0].logprob


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
