"""LangChain: `ChatOpenAI(base_url=…)`, in both of the APIs it can speak."""

from typing import Any, Literal

import pytest

pytest.importorskip("langchain_openai", reason="langchain-openai is not installed: make test-clients installs it")

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from tests.clients.conftest import Tell, calling

# It keeps one HTTP client an address for all its life, and that belongs to one loop.
pytestmark = [pytest.mark.clients, pytest.mark.asyncio(loop_scope="module")]

APIS = pytest.mark.parametrize("responses", [False, True], ids=["chat completions", "responses"])
BOTH = (("get_weather", {"city": "Köln"}), ("add", {"a": 17, "b": 25}))


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"snow in {city}"


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


class Verdict(BaseModel):
    """What is to be thought of it."""

    mood: Literal["good", "bad"]
    points: int = Field(ge=0, le=10)
    reasons: list[str] = Field(max_length=2)


def chat(url: str, *, responses: bool = False, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=url, api_key="none", max_retries=0, use_responses_api=responses, **more)  # pyright: ignore


def ran(message: AIMessage) -> list[Any]:
    """The answers of the tools to everything the message calls."""
    by_name = {item.name: item for item in (get_weather, add)}
    return [by_name[call["name"]].invoke(call) for call in message.tool_calls]


@APIS
async def test_a_loop_of_tools_ends_in_an_answer(tell: Tell, responses: bool) -> None:
    result = tell(calling(*BOTH, text="Let me see."), "Snow, and 42.")
    model = chat(result.url, responses=responses).bind_tools([get_weather, add])
    question = HumanMessage("How is the weather in Köln, and what is 17 + 25?")
    first = await model.ainvoke([question])
    assert [(call["name"], call["args"]) for call in first.tool_calls] == list(BOTH)
    assert first.text.strip() == "Let me see."
    last = await model.ainvoke([question, first, *ran(first)])
    assert last.text == "Snow, and 42."
    assert not last.tool_calls
    assert "snow in Köln" in result.prompts[1]
    assert "42" in result.prompts[1]
    assert last.usage_metadata
    assert last.usage_metadata["output_tokens"] > 0


@APIS
async def test_streamed_pieces_add_up_to_the_same_calls(tell: Tell, responses: bool) -> None:
    result = tell(calling(*BOTH, text="Let me see."))
    model = chat(result.url, responses=responses, stream_usage=True).bind_tools([get_weather, add])
    pieces: list[AIMessageChunk] = [piece async for piece in model.astream("?")]  # pyright: ignore
    assert len(pieces) > 5
    whole = sum(pieces[1:], pieces[0])
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == list(BOTH)
    assert whole.text.strip() == "Let me see."
    assert whole.usage_metadata


@APIS
async def test_an_answer_of_a_schema_is_a_value_of_it(tell: Tell, responses: bool) -> None:
    result = tell('{"mood": "good", "points": 7, "reasons": ["snow"]}')
    model = chat(result.url, responses=responses).with_structured_output(Verdict)
    assert await model.ainvoke("?") == Verdict(mood="good", points=7, reasons=["snow"])
    assert result.engine.asked[0].grammar


async def test_an_answer_of_a_schema_may_come_as_a_call(tell: Tell) -> None:
    result = tell(calling(("Verdict", {"mood": "bad", "points": 0, "reasons": []})))
    model = chat(result.url).with_structured_output(Verdict, method="function_calling")
    assert await model.ainvoke("?") == Verdict(mood="bad", points=0, reasons=[])
    assert result.engine.asked[0].grammar


@pytest.mark.slow
@pytest.mark.weights
@APIS
async def test_a_small_model_is_held_to_calls_and_schemas(small: str, responses: bool) -> None:
    model = chat(small, responses=responses, temperature=1, max_tokens=120)
    called = await model.bind_tools([get_weather, add], tool_choice="add").ainvoke("How much is 17 + 25?")
    ((name, arguments),) = [(call["name"], call["args"]) for call in called.tool_calls]
    assert name == "add"
    assert {*map(type, arguments.values())} == {int}
    answer = await model.ainvoke([HumanMessage("How much is 17 + 25?"), called, *ran(called)])
    assert answer.text
    assert isinstance(await model.with_structured_output(Verdict).ainvoke("I had a great day!"), Verdict)


@pytest.mark.slow
@pytest.mark.weights
async def test_an_able_model_calls_by_itself(able: str) -> None:
    model = chat(able, temperature=0, max_tokens=60).bind_tools([get_weather])
    question = HumanMessage("How is the weather in Bonn?")
    called = await model.ainvoke([question])
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("get_weather", {"city": "Bonn"})]
