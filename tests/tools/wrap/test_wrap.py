"""What holds for every toolset around a toolset."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from callsmith.core.approval import Policy
from callsmith.core.capability.execution import Execution
from callsmith.core.events import CallReady, Stopped, Text, ToolFinished, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Tool
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Audited, Cached, Confirmed, Filtered, Limited, Merged, Rate, Renamed, Timed
from tests.fakes import FakeModel, Recording
from tests.tools.contract import ToolsetContract, outcome
from tests.tools.wrap.recording import NOBODY, items, names


@tool(idempotent=True)
async def count(to: int) -> AsyncIterator[ToolProgress | int]:
    """Count."""
    for current in range(to):
        yield ToolProgress("", current=current, total=to)
    yield to


@tool(side_effects=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


WRAPPERS = {
    "merged": lambda inner: Merged(inner, Functions(delete)),
    "prefixed": lambda inner: Merged(("a", inner), prefix="always"),
    "renamed": lambda inner: Renamed(inner, {"count": "a_count"}),
    "filtered": lambda inner: Filtered(inner, allow="c*"),
    "confirmed": lambda inner: Confirmed(inner, Policy()),
    "timed": lambda inner: Timed(inner, 5),
    "cached": lambda inner: Cached(inner, 60, 10),
    "limited": lambda inner: Limited(inner, parallel=2, budgets={"*": 9}, rate=Rate(9, 60)),
}


class TestEveryWrapper(ToolsetContract):
    working = Call("count", {"to": 2}, "c1")

    @pytest.fixture(params=WRAPPERS)
    def toolset(self, request: pytest.FixtureRequest) -> Toolset:
        if request.param in ("prefixed", "renamed"):
            self.working = replace(self.working, name="a_count")
        return WRAPPERS[request.param](Functions(count))

    async def test_progress_comes_through(self, toolset: Toolset):
        progress, last = await outcome(toolset.call(self.working, NOBODY))
        assert [item.current for item in progress] == [0, 1]
        assert last.content == 2


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_what_is_not_read_to_its_end_is_closed(wrap):
    inner = Recording(Tool("count", idempotent=True))
    toolset = wrap(inner)
    reading = toolset.call(Call((await names(toolset))[0], {}, "c1"), NOBODY)
    assert isinstance(await anext(reading), ToolProgress)
    await reading.aclose()
    assert inner.closed == 1


@pytest.mark.req("R97")
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_the_caller_is_the_same_inside(wrap):
    inner = Recording(Tool("count", idempotent=True))
    toolset = wrap(inner)
    context = Context("talk", "ada", 2, tighten=Policy())
    await items(toolset, Call((await names(toolset))[0], {}, "c1"), context)
    assert inner.contexts == [context]


class Counted(Functions):
    """Functions that count how often they are listed."""

    times = 0

    async def tools(self) -> Sequence[Tool]:
        self.times += 1
        return await super().tools()


async def audit(_: Execution) -> None:
    pass


@pytest.mark.parametrize(
    ("wrap", "most"),
    [
        (lambda tools: Renamed(Merged(("a", Filtered(Cached(Audited(tools, audit)))), prefix="always")), 1),
        (lambda tools: Filtered(Merged(("a", Confirmed(Cached(Audited(tools, audit)))))), 4),  # what judges looks at each call
    ],
)
async def test_a_run_lists_the_tools_once(wrap: Callable[[Toolset], Toolset], most: int):
    tools = Counted(count)
    toolset = wrap(tools)
    (name,) = [tool.name for tool in await toolset.tools()]
    tools.times = 0
    calls = [Call(name, {"to": number}, f"c{number}") for number in range(3)]
    model = FakeModel(*([CallReady(0, call), Stopped("calls")] for call in calls), [Text("done"), Stopped("stop")])
    events = [event async for event in run(model, toolset, "read them")]
    assert [event.result.ok for event in events if isinstance(event, ToolFinished)] == [True] * 3
    assert tools.times == most
