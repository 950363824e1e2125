"""A call that must come comes, and is valid: over a real model, too small to call tools of its own accord."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.events import CallReady, ModelEvent, Started, Stopped, Text, Unreadable
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling, Tool
from callsmith.models.local import LocalModel
from tests.effort import tries

pytestmark = [pytest.mark.weights, pytest.mark.model]


def tool(name: str, description: str, required: str = "", **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
    return Tool(name, description, schema)


def text(longest: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": longest}


CITY = text(20)
TOOLS = (
    tool("get_weather", "The weather in a city.", "city", city=CITY, unit={"enum": ["celsius", "fahrenheit"]}),
    tool("set_timer", "Start a timer.", "minutes", minutes={"type": "integer", "minimum": 1, "maximum": 120}, label=text(16)),
    tool("now", "What time it is."),
    tool(
        "book",
        "Book seats.",
        "route seats",
        route={
            "type": "object",
            "properties": {"origin": CITY, "target": CITY},
            "required": ["origin", "target"],
            "additionalProperties": False,
        },
        seats={"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 99}, "minItems": 1, "maxItems": 3},
        window={"type": "boolean"},
    ),
    tool(
        "vote",
        "Vote.",
        "choice",
        choice={"enum": ["yes", "no", 0, None]},
        weight={"anyOf": [{"type": "number"}, {"type": "null"}]},
    ),
    tool("open_page", "Open a web page.", "url", url={"type": "string", "pattern": "^https://[a-z]{1,12}\\.org/[a-z]{0,8}$"}),
    tool("greet", "Greet a person by name.", "who", who={"type": "string"}),
    tool("on_day", "What happened on a day.", "day", day={"type": "string", "format": "date"}),
)
QUESTIONS = ("How is the weather in Köln?", "Please take care of it.", "My name is Ada.", "Book two seats from Bonn to Ulm.")


async def ask(model: LocalModel, number: int, tools: tuple[Tool, ...], choice: Choice, max_tokens: int = 600) -> list[ModelEvent]:
    """One answer, of several at once. Nothing is seeded, so that prompts are reused: whatever is drawn must hold."""
    request = Request(
        (Message.user(QUESTIONS[number % len(QUESTIONS)]),),
        tools,
        choice,
        parallel=False,
        sampling=Sampling(temperature=1.2, max_tokens=max_tokens),
    )
    return [event async for event in model.stream(request)]


def only_call(events: list[ModelEvent], tools: tuple[Tool, ...]) -> str:
    """The name of the one call there is, valid and nothing beside it."""
    ready = [event for event in events if isinstance(event, CallReady)]
    assert len(ready) == 1, events
    call = ready[0].call
    assert not ready[0].repairs
    assert not [event for event in events if isinstance(event, Text | Unreadable)]
    assert isinstance(events[-1], Stopped)
    assert events[-1].reason == "calls"
    assert validate({tool.name: tool for tool in tools}[call.name].parameters, call.arguments) == []
    return call.name


async def check_required(model: LocalModel, rounds: int, every: int = 1) -> None:
    for number, first in list(enumerate(TOOLS))[::every]:
        offered = (first, *TOOLS[number + 1 :][: number % 3])
        for answer in await asyncio.gather(*(ask(model, number, offered, Choice("required")) for _ in range(rounds))):
            only_call(answer, offered)


@pytest.mark.req("R25")
@pytest.mark.req("R64")
@pytest.mark.req("R81")
@pytest.mark.generated
async def test_required_calls_come_and_are_valid(shallow: LocalModel) -> None:
    await check_required(shallow, tries(1, 3), every=tries(4, 1))


@pytest.mark.slow
async def test_two_hundred_required_calls_come_and_are_valid(small: LocalModel) -> None:
    await check_required(small, 25)


@pytest.mark.req("R26")
@pytest.mark.req("R29")
@pytest.mark.generated
async def test_the_tool_that_is_named_is_the_one_that_is_called(shallow: LocalModel) -> None:
    names = [tool.name for tool in TOOLS[:: tries(4, 1)]]
    answers = await asyncio.gather(*(ask(shallow, number, TOOLS, Choice.only(name)) for number, name in enumerate(names)))
    assert [only_call(answer, TOOLS) for answer in answers] == names


async def check_none(model: LocalModel, count: int) -> None:
    requests = [ask(model, number * 4 // count, TOOLS, Choice("none"), max_tokens=30) for number in range(count)]
    for events in await asyncio.gather(*requests):
        assert not [event for event in events if not isinstance(event, Started | Text | Stopped)]
        assert isinstance(events[-1], Stopped)


@pytest.mark.generated
async def test_where_no_call_is_wanted_none_comes(shallow: LocalModel) -> None:
    await check_none(shallow, tries(2, 10))


@pytest.mark.slow
async def test_where_no_call_is_wanted_none_comes_in_fifty_answers(small: LocalModel) -> None:
    await check_none(small, 50)
