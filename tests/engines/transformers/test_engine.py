"""Hugging Face checkpoints in process, on a real one: `make test-torch`."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from tokenizers import decoders
from transformers import AutoTokenizer

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import PromptTooLong, UsageError
from callsmith.core.events import CallReady
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling, TokenBias, Tool
from callsmith.engines import open_engine
from callsmith.engines.decoding.compiler import Compiler, TriggeredConstraint
from callsmith.engines.port import Engine, Finished, Piece
from callsmith.engines.transformers.checkpoint import TokenizerVocabulary
from callsmith.engines.transformers.engine import TransformersEngine
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, JsonValue, Lit, Many
from callsmith.models import Options, open_model
from tests.engines.contract import GREEDY, EngineContract, say
from tests.engines.transformers.conftest import THREADS_HERE
from tests.engines.transformers.conversion import write_unquantised
from tests.small import small_file
from tests.waiting import until

pytestmark = [pytest.mark.torch, pytest.mark.weights]

SEA = Prompt("<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n")
LONG = Prompt("<|im_start|>user\n" + "The quick brown fox jumps over the lazy dog. " * 80)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self, shared: Engine) -> Engine:
        return shared

    @pytest.fixture
    def fresh(self, folder: Path) -> Iterator[Engine]:
        engine = open_engine(f"transformers:{folder}", context=256, live=2, threads=THREADS_HERE, device="cpu")
        yield engine
        asyncio.run(engine.close())

    @pytest.fixture
    def prompt(self) -> Prompt:
        return SEA


@pytest.fixture(params=["in time", "ahead"])
def either(request: pytest.FixtureRequest, shared: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> TransformersEngine:
    """The engine, as it is and as on a GPU, where the next step is begun before the tokens of this one are known."""
    if request.param == "ahead":
        monkeypatch.setattr(shared.sampler, "goes_on", True)
        monkeypatch.setattr(shared.sampler, "most_skipping", 0)
    return shared


async def test_the_folder_tells_what_it_is(shared: TransformersEngine) -> None:
    info = shared.info
    assert info.name == "SmolLM2-135M-Instruct"
    assert info.description == "llama 135M float32"
    assert (info.weights.format, info.weights.parameters) == ("safetensors", 134515008)
    assert "<|im_start|>" in (info.template or "")
    assert (info.bos, info.eos) == ("<|im_start|>", "<|im_end|>")
    assert info.specials["<|im_end|>"] == 2
    assert info.context == 512
    assert await shared.count("<|im_start|>user") == 2


async def test_the_answer_is_that_of_llama_cpp_on_the_same_numbers(shared: TransformersEngine, tmp_path: Path) -> None:
    llama = open_engine(f"llama:{write_unquantised(small_file(), tmp_path / 'f32.gguf')}", context=512, threads=THREADS_HERE)
    try:
        for question in ("Tell me about the sea.", "What is the capital of France?", "Count from one to ten."):
            prompt = Prompt(SEA.text.replace("Tell me about the sea.", question))
            assert shared.vocabulary.prompt(prompt) == llama.vocabulary.prompt(prompt)
            assert (await say(shared, prompt))[0] == (await say(llama, prompt))[0]
    finally:
        await llama.close()


def test_special_tokens_are_the_same_to_the_grammar_engine_and_to_ours(shared: TransformersEngine) -> None:
    tokenizer = shared.vocabulary.guidance_tokenizer([])
    marked = {token for token in range(shared.vocabulary.size) if tokenizer.is_special_token(token)}
    assert marked == set(shared.vocabulary.special) == set(shared.info.specials.values())


def test_a_decoder_of_bytes_behind_others_says_the_same_to_the_grammar_engine(shared: TransformersEngine, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bytes_alone = tokenizer.backend_tokenizer.decoder
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), bytes_alone])
    vocabulary = TokenizerVocabulary(tokenizer, shared.vocabulary.size, shared.vocabulary.ends)
    assert vocabulary.says == shared.vocabulary.says


def test_the_text_of_a_special_token_can_be_tokenized_as_letters(shared: TransformersEngine) -> None:
    vocabulary = shared.vocabulary
    tokens = vocabulary.tokenize("<|im_end|>", specials=False)
    assert len(tokens) > 1
    assert b"".join(vocabulary.decode(tokens)) == b"<|im_end|>"
    assert vocabulary.tokenize("<|im_end|>") == [2]


async def test_a_grammar_holds_and_what_it_forces_is_not_sampled(shared: TransformersEngine) -> None:
    decodes = shared.stats.decodes
    text, finished = await say(shared, SEA, Sampling(temperature=1.0, seed=3, max_tokens=60), Grammar(JsonValue(WEATHER)))
    assert validate(WEATHER, json.loads(text)) == []
    assert finished.reason == "stop"
    assert shared.stats.forced > 0
    assert shared.stats.decodes - decodes < finished.usage.completion


async def test_each_of_several_answers_keeps_to_its_own_grammar_or_none(either: TransformersEngine) -> None:
    free = await say(either, SEA)
    three = Grammar(Many(Lit("abc "), 3, 3))
    answers = await asyncio.gather(
        say(either, SEA), say(either, SEA, GREEDY, Grammar(JsonValue(WEATHER))), say(either, SEA, GREEDY, three)
    )
    assert answers[0][0] == free[0]
    assert validate(WEATHER, json.loads(answers[1][0])) == []
    assert answers[2][0] == "abc abc abc "


async def test_an_answer_that_joins_or_leaves_does_not_change_the_others(either: TransformersEngine) -> None:
    """Greedy answers of different lengths, begun while others are in the middle: each is what it is alone."""
    prompts = [Prompt(SEA.text.replace("the sea", thing)) for thing in ("cats", "the old town of Prague", "rain", "a bus", "tea")]
    sizes = (20, 6, 13, 9, 17)
    settings = [replace(GREEDY, max_tokens=size) for size in sizes]
    alone = [await say(either, prompt, sampling) for prompt, sampling in zip(prompts, settings, strict=True)]

    async def late(number: int) -> tuple[str, Finished]:
        before = either._batch.steps
        await until(lambda: number == 0 or either._batch.steps >= before + 2 * number)
        return await say(either, prompts[number], settings[number])

    together = await asyncio.gather(*(late(number) for number in range(len(prompts))))
    assert [text for text, _ in together] == [text for text, _ in alone]


async def test_a_step_that_was_begun_ahead_is_not_decoded_again(
    shared: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, passes = shared._context, list[int]()
    monkeypatch.setattr(shared.sampler, "goes_on", True)
    step = context._step

    def counted(positions: Mapping[int, int], tokens: object) -> None:
        passes.append(len(positions))
        step(positions, tokens)

    monkeypatch.setattr(context, "_step", counted)
    before = shared._batch.steps
    _, finished = await say(shared, SEA)
    assert len(passes) == finished.usage.completion == shared._batch.steps - before


@pytest.mark.parametrize("goes_on", [False, True])
async def test_what_is_copied_is_guessed_and_takes_fewer_passes(
    shared: TransformersEngine, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    context, passes = shared._context, list[int]()
    forward = context._forward

    def counted(parts: list[Any], tokens: int) -> None:
        passes.append(tokens)
        forward(parts, tokens)

    monkeypatch.setattr(context, "_forward", counted)
    prompt = Prompt("<|im_start|>user\n" + "The quick brown fox jumps over the lazy dog. " * 6)
    plain = await say(shared, prompt, replace(GREEDY, max_tokens=40, seed=1))
    before, passes[:] = len(passes), []
    monkeypatch.setattr(context, "looks_up", True)
    monkeypatch.setattr(shared.sampler, "goes_on", goes_on)
    assert await say(shared, prompt, replace(GREEDY, max_tokens=40, seed=1)) == plain
    assert len(passes) < before / 2
    _, other = await asyncio.gather(say(shared, prompt), say(shared, SEA))
    assert other[0] == (await say(shared, SEA))[0]


async def test_a_token_that_its_trigger_refuses_is_drawn_again_from_the_same_logits(
    either: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second token is refused once, as if it had completed a trigger and written too much."""
    said: list[list[int]] = []
    for refused in (False, True):
        tokens: list[int] = []

        def admits(_: object, token: int, tokens: list[int] = tokens, refused: bool = refused) -> bool:
            tokens.append(token)
            return not refused or len(tokens) != 2

        monkeypatch.setattr(TriggeredConstraint, "admits", admits)
        await say(either, SEA, replace(GREEDY, max_tokens=4), Grammar(JsonValue(WEATHER), triggers=("{",)))
        said.append(tokens)
    plain, again = said
    assert again[:2] == plain[:2]
    assert again[2] != plain[1]
    assert len(again) == len(plain) + 1


async def test_a_prompt_that_begins_like_the_last_one_is_not_decoded_again(shared: TransformersEngine) -> None:
    first, finished = await say(shared, SEA)
    longer = Prompt(SEA.text + first + "<|im_end|>\n<|im_start|>user\nAnd the moon?<|im_end|>\n<|im_start|>assistant\n")
    reused, again = await say(shared, longer)
    assert again.usage.cached >= finished.usage.prompt
    elsewhere, cold = await say(shared, replace(longer, origin=Origin(cache_salt="other")))
    assert cold.usage.cached == 0
    assert reused == elsewhere


async def test_a_bias_and_a_penalty_change_what_is_said(either: TransformersEngine) -> None:
    [word] = either.vocabulary.tokenize("sea")
    biased = replace(GREEDY, max_tokens=3, logit_bias=(TokenBias(word, 20.0),))
    assert (await say(either, SEA, biased))[0] == "seaseasea"
    assert (await say(either, SEA, replace(biased, repetition_penalty=10.0)))[0] != "seaseasea"
    with pytest.raises(UsageError, match="no token 99999999"):
        await say(either, SEA, replace(GREEDY, logit_bias=(TokenBias(99999999, 1.0),)))


async def test_log_probabilities_come_with_the_tokens(shared: TransformersEngine) -> None:
    items = [item async for item in shared.generate(SEA, replace(GREEDY, max_tokens=5, logprobs=3))]
    tokens = [token for item in items if isinstance(item, Piece) for token in item.tokens]
    assert len(tokens) == 5
    for token in tokens:
        assert token.logprob.logprob <= 0
        assert token.logprob.logprob == token.logprob.top[0].logprob  # greedy: the likeliest
        assert len(token.logprob.top) == 3


async def test_a_prompt_too_long_is_refused_and_a_full_context_ends_the_answer(either: TransformersEngine) -> None:
    with pytest.raises(PromptTooLong):
        await say(either, LONG)
    _, finished = await say(either, Prompt(LONG.text[:1900]), Sampling(temperature=0), Grammar(Many(Lit("a "), 900, None)))
    assert finished.reason == "length"
    assert finished.usage.prompt + finished.usage.completion == 512


async def test_cancelling_ends_the_work_within_a_step(either: TransformersEngine) -> None:
    async with aclosing(either.generate(SEA, Sampling(temperature=0, max_tokens=400))) as answer:
        async for _ in answer:
            break
        before = either._batch.steps
    await until(lambda: not either.working)
    assert either._batch.steps <= before + 2
    assert not either._batch.live


async def test_a_grammar_that_fails_in_the_middle_fails_its_own_answer_alone(
    either: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from callsmith.core.errors import ModelError
    from callsmith.engines.decoding import compiler

    free, _ = await say(either, SEA)
    monkeypatch.setattr(compiler, "_LIMITS", {"step_lexer_fuel": 1, "step_max_items": 1})
    monkeypatch.setattr(either, "_compiler", Compiler(either.vocabulary))
    other = asyncio.create_task(say(either, SEA))
    with pytest.raises(ModelError, match="gave up"):
        await say(either, SEA, GREEDY, Grammar(Many(JsonValue(WEATHER), 1, 3)))
    assert (await other)[0] == free


async def test_required_and_strict_calls_are_valid_behind_a_model(folder: Path) -> None:
    model = open_model(f"transformers:{folder}", Options(context=1024, live=2, threads=THREADS_HERE))
    tools = tuple(Tool(f"tool_{number}", "The weather in a city.", WEATHER, strict=True) for number in range(6))
    question = Request(
        (Message.user("Weather in Paris, in celsius?"),), tools, sampling=Sampling(temperature=1.0, max_tokens=120)
    )
    try:
        for seed in range(3):
            request = replace(question, choice=Choice("required"), sampling=replace(question.sampling, seed=seed))
            calls = [event.call async for event in model.stream(request) if isinstance(event, CallReady)]
            assert calls
            assert all(validate(WEATHER, call.arguments) == [] for call in calls)
        async for _ in model.stream(question):  # strict tools, free to choose: a grammar that waits for its trigger
            pass
    finally:
        await model.engine.close()
