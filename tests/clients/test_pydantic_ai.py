"""Pydantic AI: an `OpenAIProvider(base_url=…)`, in both of the APIs it can speak."""

from typing import Any, Literal

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: make test-clients installs it")

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.conftest import Tell, calling

pytestmark = pytest.mark.clients

APIS = pytest.mark.parametrize("api", [OpenAIChatModel, OpenAIResponsesModel], ids=["chat completions", "responses"])
BOTH = (("get_weather", {"city": "Köln"}), ("add", {"a": 17, "b": 25}))


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"snow in {city}"


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


class Verdict(BaseModel):
    """What is to be thought of it."""

    mood: Literal["good", "bad"]
    points: int = Field(ge=0, le=10)


GOOD = {"mood": "good", "points": 7}


def at(url: str, api: Any) -> Model:
    """All that is told of our server."""
    return api("m", provider=OpenAIProvider(base_url=url, api_key="none"))


def returned(messages: list[Any]) -> list[Any]:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


@APIS
async def test_a_loop_of_tools_ends_in_an_answer(tell: Tell, api: Any) -> None:
    result = tell(calling(*BOTH, text="Let me see."), "Snow, and 42.")
    run = await Agent(at(result.url, api), tools=[get_weather, add]).run("How is the weather in Köln, and what is 17 + 25?")
    assert run.output == "Snow, and 42."
    assert returned(run.all_messages()) == ["snow in Köln", 42]
    assert "snow in Köln" in result.prompts[1]
    assert run.usage.output_tokens > 0


@APIS
async def test_a_streamed_run_does_the_same(tell: Tell, api: Any) -> None:
    result = tell(calling(*BOTH), "Snow, and 42.")
    async with Agent(at(result.url, api), tools=[get_weather, add]).run_stream("?") as run:
        pieces = [text async for text in run.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == "Snow, and 42."
    assert len(pieces) > 1
    assert returned(run.all_messages()) == ["snow in Köln", 42]


@APIS
async def test_an_output_type_is_asked_for_as_a_call(tell: Tell, api: Any) -> None:
    result = tell(calling(("add", {"a": 3, "b": 4})), calling(("final_result", GOOD)))
    run = await Agent(at(result.url, api), tools=[add], output_type=Verdict).run("?")
    assert run.output == Verdict(mood="good", points=7)
    assert result.engine.asked[0].grammar


@APIS
async def test_an_output_type_is_asked_for_as_a_schema(tell: Tell, api: Any) -> None:
    result = tell('{"mood": "good", "points": 7}')
    run = await Agent(at(result.url, api), output_type=NativeOutput(Verdict)).run("?")
    assert run.output == Verdict(mood="good", points=7)
    assert result.engine.asked[0].grammar


@APIS
async def test_what_is_invalid_is_put_to_the_model_again(tell: Tell, api: Any) -> None:
    result = tell(calling(("add", {"a": "x", "b": 4})), calling(("add", {"a": 3, "b": 4})), "7.")
    run = await Agent(at(result.url, api), tools=[add]).run("?")
    assert run.output == "7."
    assert returned(run.all_messages())[-1] == 7
    assert "valid integer" in result.prompts[1]


@pytest.mark.slow
@pytest.mark.weights
@APIS
async def test_a_small_model_is_held_to_the_output_type(small: str, api: Any) -> None:
    settings: Any = {"temperature": 1, "max_tokens": 120}
    run = await Agent(at(small, api), output_type=Verdict, model_settings=settings).run("I had a great day!")
    assert isinstance(run.output, Verdict)
    run = await Agent(at(small, api), output_type=NativeOutput(Verdict), model_settings=settings).run("I had a great day!")
    assert isinstance(run.output, Verdict)


@pytest.mark.slow
@pytest.mark.weights
async def test_an_able_model_calls_by_itself(able: str) -> None:
    agent = Agent(at(able, OpenAIChatModel), tools=[get_weather], model_settings={"temperature": 0, "max_tokens": 60})
    run = await agent.run("How is the weather in Bonn?")
    assert {*returned(run.all_messages())} == {"snow in Bonn"}  # left to itself, this model calls more than once
