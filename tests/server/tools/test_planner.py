"""Which tools a request gets, and for whom they run."""

from collections.abc import Sequence

import pytest

from callsmith.core.capability.origin import Origin
from callsmith.core.values import Choice, Message, Request, Tool
from callsmith.server.http.request_context import act_for
from callsmith.server.settings import Key, Settings
from callsmith.server.tools.planner import ToolPlanner
from callsmith.tools.functions import Functions
from callsmith.wire.extensions import ToolOptions, ToolSource
from tests.fakes import FakeModel
from tests.server.asking import says, weather

MESSAGES = (Message.user("hi"),)
CLIENTS = Tool("look_up")


def search(words: str) -> str:
    return words


class Counted(Functions):
    times = 0

    async def tools(self) -> Sequence[Tool]:
        self.times += 1
        return await super().tools()


@pytest.mark.parametrize(
    ("has_tools", "tools", "options", "expected"),
    [
        (False, (), ToolOptions(), True),
        (False, (CLIENTS,), ToolOptions(), True),
        (True, (), ToolOptions(), False),
        (True, (CLIENTS,), ToolOptions(), True),
        (True, (CLIENTS,), ToolOptions(mode="mixed"), False),
        (True, (CLIENTS,), ToolOptions(sources=(ToolSource("python"),)), False),
    ],
)
def test_who_runs_the_calls(has_tools: bool, tools: tuple[Tool, ...], options: ToolOptions, expected: bool):
    planner = ToolPlanner(Settings(), Functions(weather) if has_tools else None)
    assert planner.runs_no_tools(Request(MESSAGES, tools), options) is expected


def test_a_clients_tools_that_have_to_be_found_are_run_here():
    planner = ToolPlanner(Settings())
    deferred = Tool("look_up", deferred=True)
    assert not planner.runs_no_tools(Request(MESSAGES, (deferred,)), ToolOptions())
    assert planner.runs_no_tools(Request(MESSAGES, (deferred,), Choice("none")), ToolOptions())


async def test_a_plan_has_the_clients_tools_first_and_no_two_of_one_name():
    planner, model = ToolPlanner(Settings(), Functions(weather, search)), FakeModel(says("a"))
    request = Request(MESSAGES, (CLIENTS, Tool("search")), origin=Origin("s1"))
    plan = await planner.plan("m", model, request, ToolOptions(mode="mixed"))
    assert [tool.name for tool in plan.request.tools] == ["look_up", "search", "weather"]
    assert (plan.model_name, plan.context.conversation, plan.client_tools) == ("m", "s1", request.tools)


async def test_a_key_and_a_request_narrow_what_is_offered():
    planner = ToolPlanner(Settings(), Functions(weather, search))
    act_for("ada", Key("0" * 64, tools=("s*",)))
    assert [tool.name for tool in await planner.list_offered()] == ["search"]
    assert await planner.list_offered(ToolOptions(allowed=("weather",))) == ()


async def test_tools_are_listed_once_for_a_request():
    tools = Counted(weather)
    planner = ToolPlanner(Settings(), tools).for_request()
    await planner.list_offered()
    await planner.plan("m", FakeModel(says("a")), Request(MESSAGES), ToolOptions())
    assert tools.times == 1


def test_starter_tools_are_for_requests_that_ask_for_them_where_there_are_no_others():
    starter, own = Functions(search), Functions(weather)
    assert ToolPlanner(Settings(), None, starter).server_tools(ToolOptions(starter=True)) is starter
    assert ToolPlanner(Settings(), None, starter).server_tools(ToolOptions()) is None
    assert ToolPlanner(Settings(), own, starter).server_tools(ToolOptions(starter=True)) is own
