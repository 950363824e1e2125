"""A plain list of functions and definitions, wherever a toolset is taken."""

from typing import Any

import httpx2
import pytest

from callsmith import Agent, Call, Confirmed, Conversation, Result, Tool, define, run, run_sync, tool
from callsmith.core.errors import UsageError
from callsmith.core.events import CallDeferred, ConfirmationNeeded
from callsmith.runtime.typed import run_typed
from callsmith.server.app import create_app
from tests.fakes import FakeModel, calls, ended, everything, finished, says

SEARCH = define("search_flights").description("Search flights.").parameter("destination", str)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


def adding() -> FakeModel:
    return FakeModel(calls(Call("add", {"a": 19, "b": 23}, "c1")), says("42"))


async def test_a_run_takes_a_list_of_functions() -> None:
    events = await everything(adding(), [add, erase])
    assert [event.content for event in finished(events)] == [42]
    assert ended(events).text == "42"


def test_the_sync_run_and_a_conversation_take_one_too() -> None:
    assert run_sync(adding(), [add], "What is 19 + 23?").text == "42"
    assert Conversation(adding(), [add]).send_sync("What is 19 + 23?").text == "42"


async def test_a_typed_run_takes_one() -> None:
    assert await run_typed(adding(), int, "What is 19 + 23?", tools=[add]) == 42


async def test_calls_of_definitions_in_the_list_are_left_to_the_caller() -> None:
    answer = calls(Call("search_flights", {"destination": "NYC"}, "c1"))
    events = [event async for event in run(FakeModel(answer), [SEARCH, add], "Book a flight to NYC")]
    assert [event.call.name for event in events if isinstance(event, CallDeferred)] == ["search_flights"]
    assert ended(events).reason == "calls"


@pytest.mark.parametrize("toolset", [SEARCH, SEARCH.build()])
async def test_a_conversation_goes_on_with_the_results_of_such_calls(toolset: Any) -> None:
    model = FakeModel(calls(Call("search_flights", {"destination": "NYC"}, "c1")), says("One at 10am."))
    conversation = Conversation(model, [toolset])
    turn = await conversation.send("Book a flight to NYC")
    assert [call.name for call in turn.calls] == ["search_flights"]
    assert (await conversation.submit_results([Result(turn.calls[0].id, "", {"flights": []})])).text == "One at 10am."
    assert [listed_tool.name for listed_tool in model.asked[-1].tools] == ["search_flights"]
    assert [item.name for item in conversation.fork()._settings["external"]] == ["search_flights"]  # pyright: ignore


async def test_an_agent_takes_one_and_is_a_tool_itself() -> None:
    agent = Agent("adder", "Adds.", tools=[add, erase])
    assert (await agent.conversation(adding()).send("19 + 23?")).text == "42"
    assert [listed_tool.side_effects for listed_tool in await agent.as_toolset(adding()).tools()] == [True]


async def test_wrappers_take_lists_of_functions() -> None:
    events = await everything(FakeModel(calls(Call("erase", {"path": "a"}, "c1"))), Confirmed([erase]))
    assert any(isinstance(event, ConfirmationNeeded) for event in events)


async def test_a_server_takes_one() -> None:
    app = create_app({"m": adding()}, tools=[add])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
        answer = await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "19 + 23?"}]})
    assert answer.json()["choices"][0]["message"]["content"] == "42"


@pytest.mark.parametrize("wrong", [[42], ["add"], [None]])
async def test_what_is_no_tool_in_a_list_is_named(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected a"):
        await everything(adding(), wrong)
    with pytest.raises(UsageError, match="expected a"):
        Conversation(adding(), wrong)


async def test_an_empty_list_is_no_tools() -> None:
    model = FakeModel(says("hi"))
    assert (await Conversation(model, []).send("hi")).text == "hi"
    assert model.asked[0].tools == ()


async def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two tools are called 'add'"):
        Conversation(adding(), [add, Tool("add")])
