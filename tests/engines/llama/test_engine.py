"""GGUF models in process, on a real one."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

import numpy as np

from callsmith.core.errors import ModelError, PromptTooLong, Unavailable, UnsupportedSchema, UsageError
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Sampling, TokenBias, Tool
from callsmith.engines import llama, open_engine
from callsmith.engines.decoding import compiler
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.job import GenerationJob
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.llama import gguf
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.llama.libllama import load
from callsmith.engines.port import Engine, Finished, Piece
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.reader.parse import parse
from callsmith.grammar.nodes import Alt, Grammar, JsonValue, Lit, Many, Node, Seq
from callsmith.grammar.relay import relay_for
from callsmith.models.local import LocalModel
from tests.effort import tries
from tests.engines.contract import GREEDY, EngineContract, say
from tests.small import THREADS, shallow_file
from tests.waiting import until

pytestmark = pytest.mark.weights

SEA = Prompt("<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n")
LONG = Prompt("<|im_start|>user\n" + "The quick brown fox jumps over the lazy dog. " * 150)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def file() -> Path:
    return shallow_file()


@pytest.fixture
def shared(shallow: LocalModel) -> LlamaEngine:
    assert isinstance(shallow.engine, LlamaEngine)
    return shallow.engine


@pytest.fixture
def whole(small: LocalModel) -> LlamaEngine:
    """Where it matters what is said: with all layers."""
    assert isinstance(small.engine, LlamaEngine)
    return small.engine


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self, shared: LlamaEngine) -> Engine:
        return shared

    @pytest.fixture
    def fresh(self, file: Path) -> Iterator[Engine]:
        engine = open_engine(f"llama:{file}", context=512, threads=THREADS)
        yield engine
        asyncio.run(engine.close())

    @pytest.fixture
    def prompt(self) -> Prompt:
        return SEA


async def test_a_bias_makes_a_token_certain_or_impossible(shared: LlamaEngine) -> None:
    whole, _ = await say(shared, SEA)
    first, *_ = shared._vocabulary.tokenize(whole)
    banned, _ = await say(shared, SEA, replace(GREEDY, logit_bias=(TokenBias(first, -100.0),)))
    assert not banned.startswith(shared._vocabulary.text(first))
    [word] = shared._vocabulary.tokenize("sea")
    forced, _ = await say(shared, SEA, replace(GREEDY, max_tokens=3, logit_bias=(TokenBias(word, 100.0),)))
    assert forced == "seaseasea"


async def test_a_penalty_keeps_an_answer_from_repeating_itself(whole: LlamaEngine) -> None:
    [word] = whole._vocabulary.tokenize("sea")
    biased = replace(GREEDY, max_tokens=3, logit_bias=(TokenBias(word, 20.0),))
    assert (await say(whole, SEA, biased))[0] == "seaseasea"
    assert (await say(whole, SEA, replace(biased, repetition_penalty=10.0)))[0] != "seaseasea"


async def test_a_bias_on_a_token_that_is_not_there_fails_the_request_alone(shared: LlamaEngine) -> None:
    with pytest.raises(UsageError, match="no token 99999999"):
        await say(shared, SEA, replace(GREEDY, logit_bias=(TokenBias(99999999, 1.0),)))
    assert (await say(shared, SEA))[0]


async def answer_to(engine: LlamaEngine, node: Node, sampling: Sampling = GREEDY, prefix: str = "") -> list[Piece]:
    items = [item async for item in engine.generate(SEA, sampling, Grammar(node, prefix=prefix))]
    return [item for item in items if isinstance(item, Piece)]


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


async def test_the_file_tells_what_it_is(shared: LlamaEngine) -> None:
    assert "smollm2" in shared.info.name.lower()
    assert "Q4_1" in shared.info.description
    assert "<|im_start|>" in (shared.info.template or "")
    assert (shared.info.bos, shared.info.eos) == ("<|im_start|>", "<|im_end|>")
    assert shared.info.specials["<|im_end|>"] == 2
    assert shared.info.context == 2048
    assert await shared.count("<|im_start|>user") == 2


async def test_an_answer_ends_where_the_model_ends_it(whole: LlamaEngine) -> None:
    joke = Prompt(SEA.text.replace("Tell me about the sea.", "Tell me a joke about cats."))
    output, finished = await say(whole, joke, Sampling(temperature=0, max_tokens=100))
    assert finished.reason == "stop"
    assert "<|im_end|>" not in output


# -- grammars


@pytest.mark.req("R64")
@pytest.mark.req("R82")
@pytest.mark.req("R140")
async def test_what_a_grammar_asks_for_is_what_is_said(shared: LlamaEngine) -> None:
    for seed in range(2):
        pieces = await answer_to(shared, JsonValue(WEATHER), Sampling(temperature=1.5, seed=seed, max_tokens=60))
        value = json.loads(text(pieces))
        assert value["unit"] in ("celsius", "fahrenheit")
        assert len(value["city"]) <= 20


async def test_the_end_of_the_grammar_is_the_end_of_the_answer(shared: LlamaEngine) -> None:
    output, finished = await say(shared, SEA, GREEDY, Grammar(Alt((Lit("yes"), Lit("no")))))
    assert output in ("yes", "no")
    assert finished.reason == "stop"


@pytest.mark.req("R227")
async def test_forced_text_costs_hardly_a_decode(shared: LlamaEngine) -> None:
    node = Seq((Lit('Well then, this is what I have to say about it: {"answer": '), Alt((Lit("true"), Lit("false"))), Lit("}")))
    counts: list[int] = []
    for fast_forward in (False, True):
        shared.fast_forward, before = fast_forward, shared.stats.decodes
        assert json.loads(text(await answer_to(shared, node)).partition(": ")[2])["answer"] in (True, False)
        counts.append(shared.stats.decodes - before)
    assert counts[1] < counts[0] / 4


async def test_forced_text_keeps_to_max_tokens_and_stop_strings(shared: LlamaEngine) -> None:
    grammar = Grammar(Lit("one two three four five six"))
    output, finished = await say(shared, SEA, Sampling(max_tokens=3), grammar)
    assert finished.reason == "length"
    assert finished.usage.completion == 3
    assert "one two three four five six".startswith(output)
    output, finished = await say(shared, SEA, Sampling(stop=(" thr",)), grammar)
    assert (output, finished.reason) == ("one two", "stop")


@pytest.mark.parametrize("fast_forward", [True, False])
async def test_characters_of_several_tokens_come_whole(shared: LlamaEngine, fast_forward: bool) -> None:
    shared.fast_forward = fast_forward
    output = "naïve café 🐈‍⬛ 東京 🇩🇪"
    pieces = await answer_to(shared, Lit(output), Sampling(temperature=0, max_tokens=100))
    shared.fast_forward = True
    assert text(pieces) == output
    assert all("\ufffd" not in piece.text for piece in pieces)


@pytest.mark.parametrize("fast_forward", [True, False])
async def test_a_special_token_is_a_piece_of_its_own(shared: LlamaEngine, fast_forward: bool) -> None:
    shared.fast_forward = fast_forward
    pieces = await answer_to(shared, Lit("a<file_sep>b<jupyter_code>"))
    shared.fast_forward = True
    marked = [Piece("<file_sep>", special=True), Piece("<jupyter_code>", special=True)]
    assert [piece for piece in pieces if piece.special] == marked
    assert text(pieces) == "a<file_sep>b<jupyter_code>"


async def test_what_the_prompt_has_written_of_the_grammar_is_not_said_again(shared: LlamaEngine) -> None:
    node = Seq((Lit("<file_sep>\n"), Lit("done")))
    assert text(await answer_to(shared, node, prefix="<file_sep>\n")) == "done"
    with pytest.raises(UsageError, match="does not begin with"):
        await answer_to(shared, node, prefix="something else")


async def test_an_end_spelled_in_letters_is_just_text_within_a_string(
    shared: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = shared._vocabulary
    monkeypatch.setattr(vocabulary, "ends", vocabulary.ends | set(vocabulary.tokenize("xyz")))
    assert text(await answer_to(shared, Lit('"xyz"'))) == '"xyz"'


def test_special_tokens_are_the_same_to_the_grammar_engine_and_to_ours(shared: LlamaEngine) -> None:
    compiler = Compiler(shared._vocabulary)
    compiler.compile('start: "a"')
    tokenizer = compiler._tokenizer
    assert tokenizer is not None
    marked = {token for token in range(shared._vocabulary.size) if tokenizer.is_special_token(token)}
    assert marked == set(shared._vocabulary.special) == set(shared.info.specials.values())


def test_compiled_grammars_are_kept_but_not_for_ever(shared: LlamaEngine) -> None:
    compiler = Compiler(shared._vocabulary)
    first = compiler.compile('start: "0"')
    assert compiler.compile('start: "0"') is first
    for number in range(1, 70):
        compiler.compile(f'start: "{number}"')
    assert len(compiler._compiled) == 64
    assert compiler.compile('start: "0"') is not first


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ('{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ('{"type": "string", "pattern": "(?=a)b"}', "pattern"),
        ('{"$ref": "#/$defs/none"}', "$ref"),
        ('{"type": "strin"}', "type"),
    ],
)
def test_a_schema_the_grammar_engine_refuses_is_unsupported(shared: LlamaEngine, schema: str, keyword: str) -> None:
    with pytest.raises(UnsupportedSchema) as refused:
        Compiler(shared._vocabulary).compile(f"start: %json {schema}")
    assert refused.value.keyword == keyword
    assert "start:" not in str(refused.value)


def test_a_grammar_that_makes_no_sense_is_a_usage_error(shared: LlamaEngine) -> None:
    with pytest.raises(UsageError, match="does not compile"):
        Compiler(shared._vocabulary).compile("start: nothing_of_that_name")


async def test_a_matcher_that_fails_is_an_error_and_never_a_quiet_end(
    shared: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_LIMITS", {"step_lexer_fuel": 1, "step_max_items": 1})
    monkeypatch.setattr(shared, "_compiler", Compiler(shared._vocabulary))
    with pytest.raises(ModelError, match="gave up"):
        await answer_to(shared, Many(JsonValue(WEATHER), 1, 3))


# -- the memory of the model


async def test_a_prompt_that_begins_like_the_last_one_is_not_decoded_again(shared: LlamaEngine) -> None:
    first, finished = await say(shared, SEA)
    longer = Prompt(SEA.text + first + "<|im_end|>\n<|im_start|>user\nAnd the moon?<|im_end|>\n<|im_start|>assistant\n")
    _, again = await say(shared, longer)
    assert again.usage.cached >= finished.usage.prompt
    assert again.usage.prompt > again.usage.cached


async def test_conversations_that_no_longer_fit_are_not_read_again(file: Path) -> None:
    engine = llama.open(str(file), context=512, threads=THREADS)
    output = [f"<|im_start|>user\n{name} " + "went up the hill and down again. " * 25 for name in ("Ada", "Bea", "Cleo")]
    first = [(await say(engine, Prompt(text), GREEDY))[1].usage for text in output]
    again = [(await say(engine, Prompt(text), GREEDY))[1].usage for text in output]
    await engine.close()
    assert sum(item.prompt for item in first) > 512
    assert all(item.cached < 20 for item in first)
    assert all(item.cached == item.prompt - 1 for item in again)


def test_a_sequence_that_was_saved_and_loaded_says_the_same(file: Path) -> None:
    weights = gguf.Weights(load(), file)
    context = gguf.LlamaContext(weights, size=512, threads=THREADS or 2, sequences=3)
    tokens = weights.vocabulary.tokenize(LONG.text[:900])

    def logits(sequence: int) -> Logits:
        """After the last token, which is forgotten again."""
        context.decode([(tokens[-1], len(tokens) - 1, sequence, True)])
        values = context.logits(0).copy()
        context.forget(sequence, len(tokens) - 1)
        return values

    context.decode((token, place, 0, False) for place, token in enumerate(tokens[:-1]))
    before, saved = logits(0), context.save(0)
    context.forget(0, 0)
    assert context.load(0, saved)
    after = logits(0)
    assert context.load(1, saved)
    assert not context.load(2, saved), "there is no room for a third one"
    context.close()
    weights.close()
    assert np.array_equal(before, after)


async def test_a_seeded_answer_does_not_depend_on_what_was_asked_before(file: Path) -> None:
    seeded = Sampling(temperature=1.2, seed=11, max_tokens=16)
    prompt = Prompt(LONG.text[:500] + "<|im_end|>\n<|im_start|>assistant\n")
    weights = gguf.Weights(load(), file)
    engine = LlamaEngine(weights, gguf.LlamaContext(weights, size=512, threads=THREADS or 2, sequences=6, slice=32), live=2)
    fresh, _ = await say(engine, prompt, seeded)
    same, reused = await say(engine, prompt, seeded)
    await say(engine, Prompt(prompt.text[:200]), Sampling(max_tokens=3))
    await say(engine, prompt, Sampling(max_tokens=3))
    again, _ = await say(engine, prompt, seeded)
    await engine.close()
    assert fresh == same == again
    assert reused.usage.cached == reused.usage.prompt // 32 * 32 > 64


async def test_a_prompt_too_long_is_refused_with_the_numbers(file: Path) -> None:
    engine = llama.open(str(file), context=256, threads=THREADS)
    with pytest.raises(PromptTooLong, match=r"at least \d+ tokens > 256 that the context holds") as refused:
        await say(engine, LONG)
    assert 256 < refused.value.tokens <= await engine.count(LONG.text)
    assert (refused.value.context, refused.value.field) == (256, None)  # each API names the field its own way
    assert (await say(engine, SEA))[0]
    await engine.close()


async def test_a_full_context_ends_the_answer_by_length(file: Path) -> None:
    engine = llama.open(str(file), context=256, threads=THREADS)
    endless = Grammar(Many(Lit("a "), 500, None))
    _, finished = await say(engine, SEA, Sampling(temperature=0), endless)
    assert finished.reason == "length"
    assert finished.usage.prompt + finished.usage.completion == 256
    await engine.close()


async def test_half_a_surrogate_pair_is_read_as_a_question_mark(shared: LlamaEngine) -> None:
    half = "say \ud83d, please"  # which JSON can spell, and so the arguments of a call in a conversation may have
    assert (await say(shared, Prompt(half)))[0] == (await say(shared, Prompt("say ?, please")))[0]
    assert await shared.count(half) == await shared.count("say ?, please")


# -- giving up


async def test_giving_up_in_the_middle_of_a_long_prompt_ends_its_work_at_once(shared: LlamaEngine) -> None:
    await say(shared, SEA, Sampling(max_tokens=1))
    task = asyncio.create_task(say(shared, LONG, GREEDY))
    before = shared._batch.steps
    await until(lambda: shared._batch.steps > before)
    task.cancel()
    assert (await say(shared, SEA, Sampling(max_tokens=1)))[0]
    tokens = await shared.count(LONG.text)
    assert all(len(slot.tokens) < tokens for slot in shared._batch.cache._slots)


async def test_those_who_wait_get_their_turn_when_another_gives_up(shared: LlamaEngine) -> None:
    long = shared.generate(SEA, Sampling(temperature=0, max_tokens=300), Grammar(Many(Lit("a "), 300, 300)))
    waiting = asyncio.create_task(say(shared, SEA, GREEDY))
    assert isinstance(long, AsyncGenerator)
    await anext(long)
    await long.aclose()
    assert (await asyncio.wait_for(waiting, 120))[0]


async def test_closing_the_engine_tells_those_who_still_wait(file: Path) -> None:
    engine = llama.open(str(file), context=1024, threads=THREADS)
    tasks = [asyncio.create_task(say(engine, Prompt(LONG.text[:3000]), GREEDY)) for _ in range(2)]
    await until(lambda: engine.working)
    await engine.close()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, Unavailable)


async def test_closing_the_engine_between_two_steps_tells_those_who_still_wait(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llama.open(str(file), context=1024, threads=THREADS)
    prepare, reached, closing = engine._prepare, Event(), Event()

    def prepare_late(job: GenerationJob) -> None:
        if engine._batch.live:  # the second one: a step comes next
            reached.set()
            assert closing.wait(60)
        prepare(job)

    monkeypatch.setattr(engine, "_prepare", prepare_late)
    long = Grammar(Many(Alt((Lit("a "), Lit("b "))), 900, 900))
    tasks = [asyncio.create_task(say(engine, SEA, Sampling(temperature=0), long))]
    await until(lambda: bool(engine._batch.live))
    tasks.append(asyncio.create_task(say(engine, SEA, GREEDY)))
    await until(reached.is_set)
    closed = asyncio.create_task(engine.close())
    await until(lambda: engine._batch.live[0].job.is_cancelled)
    closing.set()
    await closed
    for outcome in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60):
        assert isinstance(outcome, Unavailable)


async def test_closing_the_engine_tells_those_whose_long_texts_are_not_yet_tokenized(file: Path) -> None:
    engine = llama.open(str(file), context=4096, threads=THREADS)
    texts = ["".join(Random(number).choices("abcdef gh", k=20_000)) for number in range(6)]
    answers = [asyncio.create_task(say(engine, Prompt(text), GREEDY)) for text in texts]
    counts = [asyncio.create_task(engine.count(text)) for text in texts]
    await asyncio.sleep(0)
    await engine.close()
    for outcome in await asyncio.gather(*answers, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
    for outcome in await asyncio.gather(*counts, return_exceptions=True):
        assert isinstance(outcome, int | UsageError)


def test_an_engine_serves_one_event_loop_after_another(shared: LlamaEngine) -> None:
    for _ in range(2):
        assert asyncio.run(say(shared, SEA, Sampling(max_tokens=2)))[0]


# -- files


def test_a_file_that_is_not_there_or_no_model_is_unavailable(tmp_path: Path, file: Path) -> None:
    with pytest.raises(Unavailable, match="no model file"):
        open_engine(f"llama:{tmp_path / 'none.gguf'}")
    other = tmp_path / "page.gguf"
    other.write_text("<!doctype html>")
    with pytest.raises(Unavailable, match="not a GGUF file"):
        open_engine(f"llama:{other}")
    for size in (4, 100, 2_000_000, 30_000_000):
        with file.open("rb") as whole:
            other.write_bytes(whole.read(size))
        with pytest.raises(Unavailable, match="cannot be loaded") as refused:
            open_engine(f"llama:{other}")
        assert "fetch it again" in refused.value.hint


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all names are Unicode")
async def test_a_file_is_opened_whose_name_is_no_unicode(tmp_path: Path, file: Path) -> None:
    odd = tmp_path / os.fsdecode(b"my m\xf6del.gguf")
    odd.symlink_to(file)
    engine = open_engine(f"llama:{odd}", context=256, threads=THREADS)
    assert (await say(engine, SEA))[0]
    await engine.close()


def test_weights_are_freed_where_the_rest_of_the_model_cannot_be_opened(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[gguf.Weights] = []
    load_weights = gguf.Weights.__init__

    def remember(weights: gguf.Weights, *args: Any, **options: Any) -> None:
        opened.append(weights)
        load_weights(weights, *args, **options)

    monkeypatch.setattr(gguf.Weights, "__init__", remember)
    with pytest.raises(Unavailable, match="no projector at"):
        open_engine(f"llama:{file}", projector="none.gguf")
    assert [weights.pointer for weights in opened] == [None]


def test_senseless_options_are_refused(file: Path) -> None:
    with pytest.raises(UsageError):
        llama.open(str(file), context=0)


@pytest.mark.generated
async def test_a_constrained_answer_is_brought_to_its_end_before_its_length_cuts_it(shared: LlamaEngine) -> None:
    schema = {
        "type": "object",
        "properties": {
            "essay": {"type": "string"},
            "list": {"type": "array", "items": {"type": "string"}},
            "n": {"type": "number"},
        },
        "required": ["essay", "list", "n"],
        "additionalProperties": False,
    }
    prompt = Prompt("Once upon a time, in a land far away, there lived")
    for seed in range(tries(1, 5)):
        sampling = Sampling(temperature=1.2, seed=seed, max_tokens=120)
        pieces = [piece async for piece in shared.generate(prompt, sampling, Grammar(JsonValue(schema)))]
        assert pieces[-1] == Finished("stop", pieces[-1].usage)
        answer = json.loads("".join(piece.text for piece in pieces if isinstance(piece, Piece)))
        assert set(answer) == {"essay", "list", "n"}


# -- many tools


def many_tools(**schemas: dict[str, object]) -> list[Tool]:
    tools = [Tool(f"get_{number}", "", {**WEATHER, "additionalProperties": False}) for number in range(12)]
    return [*tools, *(Tool(name, "", schema) for name, schema in schemas.items())]


@pytest.mark.generated
async def test_a_relay_holds_an_answer_as_one_grammar_does(shared: LlamaEngine) -> None:
    hermes = format_named("hermes")
    tools = many_tools()
    relay = relay_for(hermes, tools, Choice("required"), parallel=False)
    assert relay is not None
    for seed in range(tries(1, 3)):
        sampling = Sampling(temperature=1.2, seed=seed, max_tokens=80)
        items = [item async for item in shared.generate(SEA, sampling, relay)]
        [tool_call] = parse(hermes, text([item for item in items if isinstance(item, Piece)]), tools).calls
        assert tool_call.name in {tool.name for tool in tools}
        assert validate(WEATHER, tool_call.arguments) == []


async def test_a_tool_that_cannot_be_held_to_its_schema_is_told_before_the_answer(shared: LlamaEngine) -> None:
    tools = many_tools(broken={"type": "object", "properties": {"a": {"$ref": "#/$defs/nothing"}}})
    relay = relay_for(format_named("hermes"), tools, Choice("required"))
    assert relay is not None
    with pytest.raises(UnsupportedSchema, match="broken"):
        _ = [item async for item in shared.generate(Prompt(LONG.text[:1200]), GREEDY, relay)]
