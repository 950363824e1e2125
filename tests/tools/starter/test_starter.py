"""The starter tools as a toolset."""

import pytest

from callsmith.core.values import Call
from callsmith.tools.functions import Functions
from callsmith.tools.starter import SOURCE, starter_toolset
from tests.tools.contract import ToolsetContract


class TestStarterTools(ToolsetContract):
    working = Call("calculate", {"expression": "23 * 47 + 5"}, "c1")

    @pytest.fixture
    def toolset(self) -> Functions:
        return starter_toolset()


async def test_they_change_nothing_and_say_where_they_come_from():
    tools = await starter_toolset().tools()
    assert [tool.name for tool in tools] == ["current_time", "calculate", "convert_units"]
    assert all(tool.idempotent and not tool.side_effects and tool.source == SOURCE for tool in tools)


async def test_the_clock_is_never_answered_from_a_cache():
    clock, *others = await starter_toolset().tools()
    assert clock.cache_seconds == 0
    assert all(other.cache_seconds is None for other in others)
