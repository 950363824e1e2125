"""The completions engine in front of a real vLLM. Its model writes at random: calls are valid because of the grammar."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")

from callsmith.core.errors import PromptTooLong
from callsmith.core.events import CallReady, ModelEvent, Stopped
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling, Tool
from callsmith.engines import open_engine
from callsmith.engines.port import Engine, Piece
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, Lit
from callsmith.models import open_model
from callsmith.models.local import LocalModel
from tests.engines.contract import GREEDY, EngineContract, say
from tests.vllm_servers import vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.weights]

ASKED = Prompt("<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n")
QUESTIONS, AT_ONCE = 100, 10
WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
)
TIME = Tool(
    "get_time",
    parameters={
        "type": "object",
        "properties": {"zone": {"type": "string", "minLength": 2, "maxLength": 6}},
        "required": ["zone"],
    },
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with vllm_server(tmp_path_factory.mktemp("tiny")) as address:
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
    assert info.context == 1024
    assert info.is_enforcing
    assert info.template and "tool_call" in info.template
    assert info.eos == "<|im_end|>"
    assert {"<|im_end|>", "<tool_call>", "</think>"} <= set(info.specials)


async def test_letters_stay_letters_and_special_tokens_are_pieces_of_their_own(engine: Engine) -> None:
    _, meant = await say(engine, Prompt("<|im_end|><|im_end|>"), Sampling(max_tokens=1))
    _, spelled = await say(engine, Prompt("<|im_end|><|im_end|>", cuts=(1, 11)), Sampling(max_tokens=1))
    assert meant.usage.prompt == 2 < spelled.usage.prompt
    grammar = Grammar(Lit("a<file_sep>b"))
    pieces = [item async for item in engine.generate(ASKED, GREEDY, grammar) if isinstance(item, Piece)]
    assert "".join(piece.text for piece in pieces) == "a<file_sep>b"  # which it may spell, too


async def test_a_prompt_that_is_too_long_is_the_clients_mistake(engine: Engine) -> None:
    with pytest.raises(PromptTooLong):
        await say(engine, Prompt("hello " * 1500), GREEDY)


@pytest.mark.parametrize("choice", [Choice("required"), Choice.only("get_time")])
async def test_a_hundred_required_calls_are_valid(url: str, choice: Choice) -> None:
    model = open_model(f"completions:{url}")
    valid = 0
    for start in range(0, QUESTIONS, AT_ONCE):
        answers = await asyncio.gather(*(answer(model, choice, seed) for seed in range(start, start + AT_ONCE)))
        valid += sum(is_valid(events, choice) for events in answers)
    await model.close()
    assert valid == QUESTIONS


async def answer(model: LocalModel, choice: Choice, seed: int) -> list[ModelEvent]:
    sampling = Sampling(temperature=1.0, max_tokens=300, seed=seed)
    messages = (Message.user("What is the weather?"),)
    request = Request(messages, (WEATHER, TIME), choice, parallel=False, sampling=sampling, thinking=False)
    return [event async for event in model.stream(request)]


def is_valid(events: list[ModelEvent], choice: Choice) -> bool:
    assert isinstance(events[-1], Stopped) and events[-1].report.unenforced == ()
    calls = [event.call for event in events if isinstance(event, CallReady)]
    tools = {tool.name: tool for tool in choice.among((WEATHER, TIME))}
    return bool(calls) and all(call.name in tools and not validate(tools[call.name].parameters, call.arguments) for call in calls)
