"""Tools that the caller runs itself: their calls are events of their own, and the run ends with them."""

from callsmith.core.events import CallDeferred, ConfirmationNeeded, ToolFinished
from callsmith.core.values import Call, Request, Tool
from callsmith.runtime.deferred import DeferredTools
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import ASKED, FakeModel, calls, ended, everything, finished, says

LOOK, PAY, ADD = Call("look", {}, "l1"), Call("pay", {}, "p1"), Call("add", {"a": 1, "b": 2}, "a1")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(side_effects=True)
def pay() -> str:
    """Pay."""
    raise AssertionError("nobody has approved it")


async def test_a_call_of_the_callers_tool_ends_the_run_once_the_others_have_run():
    toolset = DeferredTools(Functions(add), [Tool("look")])
    events = await everything(FakeModel(calls(LOOK, ADD), says("never")), toolset)
    assert [event.call for event in events if isinstance(event, CallDeferred)] == [LOOK]
    assert [result.content for result in finished(events)] == [3]
    assert ended(events).reason == "calls"


async def test_a_call_that_needs_approval_is_why_the_run_ends_also_beside_one_of_the_callers():
    events = await everything(FakeModel(calls(LOOK, PAY)), DeferredTools(Confirmed(Functions(pay)), [Tool("look")]))
    assert {type(event) for event in events} >= {CallDeferred, ConfirmationNeeded}
    assert not any(isinstance(event, ToolFinished) for event in events)
    assert ended(events).reason == "confirmation"


async def test_where_two_tools_have_one_name_the_callers_is_meant():
    toolset = DeferredTools(Functions(add), [Tool("add", "The caller's.")])
    assert [tool.description for tool in await toolset.tools()] == ["The caller's."]
    events = await everything(FakeModel(calls(ADD)), toolset, Request(ASKED.messages))
    assert [event.call for event in events if isinstance(event, CallDeferred)] == [ADD]
