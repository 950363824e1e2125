"""Many answers at once, on a real model."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import CallsmithError, QueueFull, UsageError
from callsmith.core.events import CallReady, ModelEvent, Stopped
from callsmith.core.values import Choice, Message, Request, Result, Sampling, Tool, Usage
from callsmith.engines import llama, open_engine
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.port import Piece
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, JsonValue, Lit
from callsmith.models.local import LocalModel
from tests.engines.contract import GREEDY, say
from tests.small import THREADS, open_shallow, shallow_file

pytestmark = pytest.mark.weights

CITIES = ("Paris", "Miami", "Oslo", "Lima", "Cairo", "Quito", "Kyoto", "Boston")
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TELLING = Sampling(temperature=0, max_tokens=80)


def about(city: str) -> Prompt:
    return Prompt(f"<|im_start|>user\nAnswer in JSON. What is the weather in {city}?<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    engine = llama.open(str(shallow_file()), context=2048, threads=THREADS, live=8, queue=4)
    yield engine
    asyncio.run(engine.close())


async def test_eight_at_once_are_all_held_to_their_grammars_in_few_decodes(engine: LlamaEngine) -> None:
    before = engine.stats.decodes
    answering = (
        say(engine, about(city), Sampling(temperature=1.0, max_tokens=40), Grammar(JsonValue(WEATHER))) for city in CITIES
    )
    answers = await asyncio.gather(*answering)
    for text, finished in answers:
        assert json.loads(text)["unit"] in ("celsius", "fahrenheit")
        assert finished.reason == "stop"
    assert engine.stats.decodes - before < sum(finished.usage.completion for _, finished in answers) / 2


async def test_a_grammar_that_fails_does_not_hurt_the_others(engine: LlamaEngine) -> None:
    wrong = say(engine, about("Rome"), GREEDY, Grammar(Lit("done"), prefix="something else"))
    right = [say(engine, about(city), Sampling(max_tokens=40), Grammar(JsonValue(WEATHER))) for city in CITIES[:3]]
    failed, *answers = await asyncio.gather(wrong, *right, return_exceptions=True)
    assert isinstance(failed, UsageError)
    for answer in answers:
        assert not isinstance(answer, BaseException)
        assert json.loads(answer[0])


async def test_those_who_leave_at_random_harm_nobody(engine: LlamaEngine) -> None:
    random = Random(3)
    tasks = [
        asyncio.create_task(say(engine, about(city), Sampling(max_tokens=40), Grammar(JsonValue(WEATHER)))) for city in CITIES
    ]
    leaving = random.sample(tasks, 4)
    for task in leaving:
        await asyncio.sleep(random.random() * 0.3)
        task.cancel()
    for task, outcome in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        if task not in leaving:
            assert not isinstance(outcome, BaseException)
            assert json.loads(outcome[0])


async def test_above_the_limit_of_the_queue_who_comes_is_told_to_come_again(engine: LlamaEngine) -> None:
    tasks = [asyncio.create_task(say(engine, about("Rome"), TELLING)) for _ in range(12)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull) as refused:
        await say(engine, about("Rome"))
    assert refused.value.seconds >= 1
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert not any(isinstance(outcome, CallsmithError) for outcome in outcomes)
    assert (await say(engine, about("Rome"), Sampling(max_tokens=1)))[1].usage.completion == 1


async def test_an_answer_given_up_is_used_again(engine: LlamaEngine) -> None:
    said: list[Piece] = []
    async with aclosing(engine.generate(about("Bonn"), TELLING)) as pieces:
        async for piece in pieces:
            assert isinstance(piece, Piece)
            said.append(piece)
            if len(said) == 5:
                break
    usage = said[-1].usage
    assert usage is not None
    more = Prompt(about("Bonn").text + "".join(piece.text for piece in said) + "b")
    _, finished = await say(engine, more, Sampling(max_tokens=1))
    assert finished.usage.cached >= usage.prompt + 3


# -- a tool's turns


async def events_of(model: LocalModel, request: Request) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def cost(events: list[ModelEvent]) -> Usage:
    assert isinstance(events[-1], Stopped)
    return events[-1].usage


def about_weather(city: str, session: str = "") -> Request:
    tool = Tool("get_weather", "The weather in a city.", WEATHER)
    messages = (Message.user(f"What is the weather in {city}?"),)
    return Request(messages, (tool,), Choice("required"), parallel=False, sampling=TELLING, origin=Origin(session))


def answered(request: Request, events: list[ModelEvent]) -> Request:
    """The tool has run; now the model may say what it likes."""
    [call] = [event.call for event in events if isinstance(event, CallReady)]
    done = (*request.messages, Message.assistant(calls=[call]), Message.tool(Result(call.id, call.name, "12 degrees")))
    return replace(request, messages=done, choice=Choice(), sampling=Sampling(max_tokens=1))


async def settled(model: LocalModel) -> None:
    """Wait until the engine has nothing to do any more."""
    engine = model.engine
    assert isinstance(engine, LlamaEngine)
    while engine.working:
        await asyncio.sleep(0.01)


@pytest.mark.req("R115")
async def test_a_turn_paused_for_a_tool_keeps_all_it_has_and_pays_only_for_what_is_new(shallow: LocalModel) -> None:
    model = shallow
    request = about_weather("Paris")
    first = await events_of(model, request)
    await settled(model)
    second = await events_of(model, answered(request, first))
    assert cost(first).prompt == await model.count(request)
    assert cost(second).cached == cost(first).prompt + cost(first).completion
    assert cost(second).cached < cost(second).prompt


@pytest.mark.model
async def test_a_session_is_remembered_after_other_conversations_have_filled_the_memory() -> None:
    model = open_shallow(context=448, live=2)
    request = about_weather("Oslo", "s1")
    first = await events_of(model, request)
    await settled(model)
    for number in range(3):
        await say(model.engine, Prompt(f"{number} green bottles hang on the wall. " * 12), Sampling(max_tokens=1))
    second = await events_of(model, answered(request, first))
    assert cost(second).cached == cost(first).prompt + cost(first).completion
    await model.close()


async def test_text_that_is_held_in_other_tokens_is_not_read_again(engine: LlamaEngine) -> None:
    text = "Once upon a time there was a hungry elephant"
    cut = Prompt(text, cuts=tuple(range(8, 20, 3)))  # as no tokenizer would
    _, first = await say(engine, cut, Sampling(max_tokens=1))
    _, second = await say(engine, Prompt(text + ". It"), Sampling(max_tokens=1))
    assert first.usage.prompt > await engine.count(text)
    assert second.usage.cached == first.usage.prompt
    _, seeded = await say(engine, Prompt(text + ". It"), Sampling(max_tokens=1, seed=1))
    assert seeded.usage.prompt == await engine.count(text + ". It")


async def test_an_answer_that_is_stopped_early_tells_what_it_cost(shallow: LocalModel) -> None:
    model = shallow
    tool = Tool("get_weather", "The weather in a city.", WEATHER)
    request = Request(
        (Message.user("Weather in Oslo?"),), tools=(tool,), choice=Choice("required"), parallel=False, sampling=TELLING
    )
    await events_of(model, request)
    usage = cost(await events_of(model, request))
    assert usage.prompt == await model.count(request)
    assert usage.cached == usage.prompt - 1
    assert usage.completion > 5


def test_there_is_room_for_conversations_that_pause_beside_those_that_are_answered() -> None:
    engine = open_engine(f"llama:{shallow_file()}", context=256, live=2)
    assert isinstance(engine, LlamaEngine) and engine._context.sequences == 3 * 2
    asyncio.run(engine.close())
