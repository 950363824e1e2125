"""The OpenAI Agents SDK: an `OpenAIProvider(base_url=…)`, in both of the APIs it can speak."""

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed: make test-clients installs it")

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool
from pydantic import BaseModel

from tests.clients.conftest import Tell, calling

# The provider keeps one HTTP client for all its life, and that belongs to one loop.
pytestmark = [pytest.mark.clients, pytest.mark.asyncio(loop_scope="module")]

APIS = pytest.mark.parametrize("responses", [False, True], ids=["chat completions", "responses"])
BOTH = (("get_weather", {"city": "Köln"}), ("add", {"a": 17, "b": 25}))


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"snow in {city}"


@function_tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


class Verdict(BaseModel):
    mood: str
    points: int


def at(url: str, *, responses: bool) -> RunConfig:
    """All that is told of our server."""
    provider = OpenAIProvider(base_url=url, api_key="none", use_responses=responses)
    return RunConfig(model="m", model_provider=provider, tracing_disabled=True)


def done(items: list[object]) -> list[str]:
    return [str(getattr(item, "type", "")) for item in items]


AGENT = Agent(name="helper", instructions="Help.", tools=[get_weather, add])


@APIS
async def test_a_loop_of_tools_ends_in_an_answer(tell: Tell, responses: bool) -> None:
    result = tell(calling(*BOTH, text="Let me see."), "Snow, and 42.")
    run = await Runner.run(
        AGENT, "How is the weather in Köln, and what is 17 + 25?", run_config=at(result.url, responses=responses)
    )
    assert run.final_output == "Snow, and 42."
    assert done(run.new_items).count("tool_call_output_item") == 2
    assert "snow in Köln" in result.prompts[1]
    assert "42" in result.prompts[1]
    assert run.context_wrapper.usage.output_tokens > 0


@APIS
async def test_a_streamed_run_does_the_same(tell: Tell, responses: bool) -> None:
    result = tell(calling(*BOTH), "Snow, and 42.")
    run = Runner.run_streamed(AGENT, "?", run_config=at(result.url, responses=responses))
    events = [event async for event in run.stream_events()]
    pieces = [getattr(event.data, "delta", "") for event in events if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"]  # fmt: skip
    assert "".join(pieces) == run.final_output == "Snow, and 42."
    assert len(pieces) > 1
    assert "snow in Köln" in result.prompts[1]


@APIS
async def test_one_agent_hands_over_to_another(tell: Tell, responses: bool) -> None:
    result = tell(calling(("transfer_to_poet", {})), "A rose is a rose.")
    first = Agent(name="clerk", handoffs=[Agent(name="poet", instructions="Rhyme.")])
    run = await Runner.run(first, "A poem!", run_config=at(result.url, responses=responses))
    assert run.last_agent.name == "poet"
    assert run.final_output == "A rose is a rose."


@APIS
async def test_an_answer_of_a_schema_is_a_value_of_it(tell: Tell, responses: bool) -> None:
    result = tell(calling(("add", {"a": 3, "b": 4})), '{"mood": "good", "points": 7}')
    judge = Agent(name="judge", tools=[add], output_type=Verdict)
    run = await Runner.run(judge, "?", run_config=at(result.url, responses=responses))
    assert run.final_output == Verdict(mood="good", points=7)


async def test_what_was_said_before_is_remembered_by_the_server(tell: Tell) -> None:
    result = tell("Hello Ada.", "Ada.")
    config = at(result.url, responses=True)
    first = await Runner.run(AGENT, "I am Ada.", run_config=config)
    second = await Runner.run(AGENT, "Who am I?", previous_response_id=first.last_response_id, run_config=config)
    assert second.final_output == "Ada."
    assert "I am Ada." in result.prompts[1]


@pytest.mark.slow
@pytest.mark.weights
@APIS
async def test_a_small_model_is_held_to_a_call_and_then_answers(small: str, responses: bool) -> None:
    settings = ModelSettings(tool_choice="add", temperature=1, max_tokens=120)
    agent = Agent(name="helper", instructions="Help.", tools=[add, get_weather], model_settings=settings)
    run = await Runner.run(agent, "How much is 17 + 25?", run_config=at(small, responses=responses), max_turns=6)
    assert done(run.new_items)[:2] == ["tool_call_item", "tool_call_output_item"]
    assert isinstance(run.final_output, str)


@pytest.mark.slow
@pytest.mark.weights
async def test_an_able_model_calls_by_itself(able: str) -> None:
    agent = Agent(
        name="helper",
        tools=[get_weather],
        model_settings=ModelSettings(temperature=0, max_tokens=60),
        tool_use_behavior="stop_on_first_tool",  # left to itself, this model calls again and again
    )
    run = await Runner.run(agent, "How is the weather in Bonn?", run_config=at(able, responses=True), max_turns=3)
    assert "tool_call_output_item" in done(run.new_items)
    assert "snow" in run.final_output.lower()
