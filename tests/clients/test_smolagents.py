"""smolagents: `OpenAIModel(api_base=…)`, with agents that call tools and agents that write code."""

from typing import Any

import pytest

pytest.importorskip("smolagents", reason="smolagents is not installed: make test-clients installs it")

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

from tests.clients.conftest import Tell, calling

pytestmark = pytest.mark.clients

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Which city.
    """
    return f"snow in {city}"


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def at(url: str, **more: Any) -> OpenAIModel:
    """All that is told of our server."""
    return OpenAIModel("m", api_base=url, api_key="none", client_kwargs={"max_retries": 0}, **more)


@STREAMED
def test_a_loop_of_tools_ends_in_an_answer(tell: Tell, streamed: bool) -> None:
    both = calling(("get_weather", {"city": "Köln"}), ("add", {"a": 17, "b": 25}))
    result = tell(both, calling(("final_answer", {"answer": "Snow, and 42."})))
    agent = ToolCallingAgent([get_weather, add], at(result.url), stream_outputs=streamed, max_steps=3, verbosity_level=0)
    assert agent.run("How is the weather in Köln, and what is 17 + 25?") == "Snow, and 42."
    assert "snow in Köln" in result.prompts[1]
    assert "42" in result.prompts[1]
    assert all(request.grammar for request in result.engine.asked)  # it requires a call each time


@STREAMED
def test_an_agent_that_writes_code_calls_tools_from_it(tell: Tell, streamed: bool) -> None:
    result = tell("Thought: I add.\n<code>\nfinal_answer(add(a=17, b=25))\n</code>")
    agent = CodeAgent([add], at(result.url), stream_outputs=streamed, max_steps=2, verbosity_level=0)
    assert agent.run("How much is 17 + 25?") == 42


def test_an_agent_that_writes_code_may_ask_for_it_in_a_schema(tell: Tell) -> None:
    result = tell('{"thought": "I add.", "code": "final_answer(add(a=17, b=25))"}')
    agent = CodeAgent([add], at(result.url), use_structured_outputs_internally=True, max_steps=2, verbosity_level=0)
    assert agent.run("How much is 17 + 25?") == 42
    assert result.engine.asked[0].grammar


@pytest.mark.slow
@pytest.mark.weights
def test_a_small_model_is_held_to_calls_at_every_step(small: str) -> None:
    agent = ToolCallingAgent([add], at(small, temperature=1, max_tokens=80), max_steps=2, verbosity_level=0)
    agent.run("How much is 17 + 25?")
    steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
    assert steps
    for step in steps:
        assert {call.name for call in step.tool_calls} <= {"add", "final_answer"}
