"""The tools of a ToolExecutor: bound to capabilities, functions beside them, and those that the caller runs."""

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.reach import CapabilityTools, bound_tool
from callsmith.capabilities.executor import ToolExecutor
from callsmith.core.capability.execution import Execution
from callsmith.core.errors import UsageError
from callsmith.core.ports import Context
from callsmith.core.values import Call, Tool
from callsmith.tools.functions import Functions
from callsmith.tools.wrap import Audited
from callsmith.wire.capability.chat import read_chat
from tests.capabilities.chatting import called, chat, chat_bus
from tests.capabilities.test_executor import FOUND, SEARCH, offer


@pytest.mark.req("R13")
async def test_bound_definitions_say_which_capability_in_which_version_and_the_models_node_runs_it() -> None:
    bus, _ = chat_bus(called(("search_corpus", FOUND)), "It opens at 17:42.")
    calls = offer(bus, "rag.query", {"chunks": []})
    (definition,) = ToolExecutor(bus, [SEARCH]).bound_definitions
    fields = {"bound_capability": "rag.query", "bound_version": "1.0", "bound_params": ["corpus"], "side_effects": False}
    assert definition == {
        "name": "search_corpus",
        "description": "Search a corpus.",
        "parameters_schema": SEARCH.parameters,
        **fields,
    }
    assert read_chat(chat(tools=[definition])).request.tools == (SEARCH,)
    answer = await bus.call("llm.chat", (2, 0), chat(tools=[definition]))
    assert (answer["output"]["message"]["content"], calls[0].input) == ("It opens at 17:42.", {"query": "hall"})


@pytest.mark.req("R13")
def test_a_binding_that_the_wire_cannot_tell_is_not_written() -> None:
    tool = bound_tool("caption", "", {"type": "object"}, "img.describe@1.0", constants={"input.task": "caption"})
    with pytest.raises(UsageError, match="only where it was made"):
        _ = ToolExecutor(CapabilityBus(), [tool]).bound_definitions


@pytest.mark.req("R13")
async def test_the_record_of_a_bound_tool_names_its_capability_and_version() -> None:
    bus = CapabilityBus()
    offer(bus, "rag.query", {"chunks": []})
    records: list[Execution] = []

    async def audit(execution: Execution) -> None:
        records.append(execution)

    async for _ in Audited(CapabilityTools(bus, [SEARCH]), audit).call(Call("search_corpus", FOUND, "c1"), Context()):
        pass
    assert {(record.name, record.bound_capability, record.bound_version) for record in records} == {
        ("search_corpus", "rag.query", "1.0")
    }


def find_neighbour() -> str:
    """Who is there?"""
    return "ann and bob"


@pytest.mark.req("R125")
async def test_a_custom_tool_stands_unbound_among_the_bound_ones() -> None:
    bus, engine = chat_bus(called(("find_neighbour", {})), "Ann and Bob.")
    executor = ToolExecutor(bus, [SEARCH, find_neighbour])
    assert [native_definition["name"] for native_definition in executor.native_definitions] == ["search_corpus", "find_neighbour"]
    assert (await executor.dispatch(Call("find_neighbour", {}, "c1"))).content == "ann and bob"
    message = await executor.run_chat_with_tools(chat("Wer ist da?"))
    assert message["content"] == "Ann and Bob."
    assert "ann and bob" in engine.asked[1].prompt.text


@pytest.mark.req("R125")
async def test_an_unbound_tool_without_a_function_is_run_by_whoever_asked() -> None:
    bus, engine = chat_bus(called(("find_neighbour", {})), "Ann and Bob.")
    executor, body = ToolExecutor(bus, [SEARCH, Tool("find_neighbour", "Who is there?")]), chat("Wer ist da?")
    message = await executor.run_chat_with_tools(body)
    (call,) = message["tool_calls"]
    assert (call["name"], call["arguments"]) == ("find_neighbour", {})
    answered = {"role": "tool", "tool_call_id": call["id"], "content": "ann and bob"}
    message = await executor.run_chat_with_tools(chat(messages=[*body["input"]["messages"], message, answered]))
    assert message["content"] == "Ann and Bob."
    assert "ann and bob" in engine.asked[1].prompt.text
    result = await executor.dispatch(Call("find_neighbour", {}, "c1"))
    assert (result.ok, result.code) == (False, "not_implemented")


async def test_toolsets_of_other_kinds_stand_beside_the_bound_tools() -> None:
    bus, engine = chat_bus(called(("find_neighbour", {})), "Ann and Bob.")
    message = await ToolExecutor(bus, [SEARCH], others=Functions(find_neighbour)).run_chat_with_tools(chat())
    assert message["content"] == "Ann and Bob."
    assert "ann and bob" in engine.asked[1].prompt.text
