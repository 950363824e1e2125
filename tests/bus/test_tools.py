"""Tools offered as capabilities, and capabilities used as tools: what goes in at one end comes out at the other."""

from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.offer import offer
from callsmith.bus.reach import CapabilityTools, tool_of
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import UsageError
from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from callsmith.wire.capability.errors import BusError

SEEN: list[Context] = []


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def count(to: int):
    """Count."""
    for number in range(to):
        yield ToolProgress("", f"at {number}", number, to)
    yield {"counted": to}


@tool(side_effects=True)
def pay(euros: int, context: Context) -> str:
    """Pay."""
    SEEN.append(context)
    return f"paid {euros}"


def fail() -> str:
    """Fail."""
    raise ValueError("no")


async def offered() -> tuple[CapabilityBus, CapabilityTools]:
    bus = CapabilityBus()
    await offer(bus, Functions(add, count, pay, fail), "experimental.home")
    return bus, CapabilityTools(bus, patterns=["experimental.home.*"])


async def events_of(toolset: Any, call: Call, context: Context | None = None) -> list[Any]:
    return [event async for event in toolset.call(call, context or Context())]


async def test_an_offered_tool_is_found_as_it_was() -> None:
    _, toolset = await offered()
    tools = {listed_tool.name: listed_tool for listed_tool in await toolset.tools()}
    assert set(tools) == {"home_add", "home_count", "home_pay", "home_fail"}
    (original,) = await Functions(add).tools()
    assert tools["home_add"].parameters["properties"] == original.parameters["properties"]
    assert (tools["home_add"].description, tools["home_add"].original) == ("Add two numbers.", "experimental.home.add")
    assert (tools["home_add"].side_effects, tools["home_pay"].side_effects) == (False, True)
    assert tools["home_add"].bound_capability == "experimental.home.add"


async def test_calls_results_and_progress_travel() -> None:
    _, toolset = await offered()
    (result,) = await events_of(toolset, Call("home_add", {"a": 2, "b": 3}, "c1"))
    assert result == Result("c1", "home_add", 5)
    *progress, last = await events_of(toolset, Call("home_count", {"to": 2}, "c2"))
    assert [(item.text, item.current, item.total) for item in progress] == [("at 0", 0, 2), ("at 1", 1, 2)]
    assert last.content == {"counted": 2}


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (Call("home_add", {"a": "x"}, "c1"), "schema_mismatch"),
        (Call("home_fail", {}, "c1"), "internal_error"),
        (Call("home_other", {}, "c1"), "bad_request"),
    ],
)
async def test_failures_are_results(call: Call, code: str) -> None:
    _, toolset = await offered()
    (result,) = await events_of(toolset, call)
    assert (result.ok, result.code) == (False, code)


@pytest.mark.req("R97")
async def test_the_tool_runs_for_the_caller_of_the_capability() -> None:
    _, toolset = await offered()
    ann = Authority("ann", trust="member")
    (result,) = await events_of(toolset, Call("home_pay", {"euros": 5}, "c1"), Context(conversation="s1", authority=ann))
    assert result.content == "paid 5"
    assert (SEEN[-1].subject, SEEN[-1].conversation) == ("ann", "s1")
    stranger = Context(authority=Authority("eve", trust="unknown"))
    (refused,) = await events_of(toolset, Call("home_pay", {"euros": 5}, "c1"), stranger)
    assert (refused.code, len(SEEN)) == ("unauthorized", 1)


async def test_what_the_offering_node_wants_confirmed_does_not_run() -> None:
    bus = CapabilityBus()
    await offer(bus, Confirmed(Functions(pay)), "experimental.bank")
    with pytest.raises(BusError, match="requires_confirmation"):
        await bus.call("experimental.bank.pay", (1, 0), {"input": {"euros": 5}})


async def test_withdrawn_tools_are_gone() -> None:
    bus = CapabilityBus()
    withdraw = await offer(bus, Functions(add))
    assert [item.descriptor.name for item in bus.offers()] == ["experimental.tools.add"]
    withdraw()
    assert bus.offers() == []


async def test_two_tools_cannot_have_one_name() -> None:
    first, second = tool(name="Add")(add), tool(name="add")(lambda: 1)
    with pytest.raises(UsageError, match=r"experimental\.tools\.add"):
        await offer(CapabilityBus(), Functions(first, second))


def test_what_is_in_params_and_in_input_are_the_parameters_of_a_tool() -> None:
    part = {"type": "object", "properties": {"corpus": {"type": "string"}}, "required": ["corpus"]}
    input_schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    bus_tool = tool_of(Descriptor("rag.query", (1, 3), {"type": "object", "properties": {"params": part, "input": input_schema}}))
    assert bus_tool.name == "rag_query"
    assert bus_tool.parameters["required"] == ["corpus", "query"]
    assert bus_tool.binding is not None
    assert bus_tool.binding.body({"corpus": "v", "query": "q"}) == {"params": {"corpus": "v"}, "input": {"query": "q"}}
    clash = {"type": "object", "properties": {"params": part, "input": part}}
    with pytest.raises(UsageError, match="by hand"):
        tool_of(Descriptor("rag.query", request_schema=clash))


async def test_what_can_be_no_tool_is_left_out_and_the_others_stay() -> None:
    bus = CapabilityBus()
    part = {"type": "object", "properties": {"x": {"type": "string"}}}
    bus.register(
        Descriptor("experimental.odd", request_schema={"properties": {"params": part, "input": part}}), lambda call: None
    )  # type: ignore[arg-type]
    await offer(bus, Functions(add))
    toolset = CapabilityTools(bus, patterns=["experimental.*"])
    assert [listed_tool.name for listed_tool in await toolset.tools()] == ["tools_add"]
    first, second = await toolset.tools(), await toolset.tools()
    assert first[0] is second[0]


async def test_the_newest_version_of_a_capability_is_the_tool() -> None:
    bus = CapabilityBus()
    for minor in (0, 2, 1):
        bus.register(Descriptor("experimental.a", (1, minor)), lambda call: None)  # type: ignore[arg-type]
    (bus_tool,) = await CapabilityTools(bus, patterns=["experimental.*"]).tools()
    assert bus_tool.bound_version == (1, 2)
