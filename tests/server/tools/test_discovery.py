"""A server with more tools than a prompt should hold."""

from typing import Any

from callsmith.core.values import Call, Tool
from callsmith.runtime.discovery import FIND_TOOLS
from callsmith.server.settings import Llm, Settings
from tests.fakes import FakeModel, Handlers, hello
from tests.runtime.many import MANY
from tests.server.asking import HI, WEATHER, calls, client, says

SEARCH = Call(FIND_TOOLS, {"query": "current weather"}, "a")
BONN = Call("current_weather", {"city": "Bonn"}, "b")
OWN = Handlers(*MANY, **{tool.name: hello for tool in MANY})


def names(model: FakeModel) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in model.asked]


async def asked(model: FakeModel, extra: dict[str, Any] | None = None, budget: int | None = None, **sent: Any) -> Any:
    settings = Settings(llm=Llm(tools_budget=budget, tools_require_confirmation_for_side_effects=False))
    chat = client(model, tools=OWN, settings=settings).chat.completions
    return await chat.create(model="m", messages=HI, extra_body=extra, **sent)


async def test_the_model_is_shown_what_it_has_found():
    model = FakeModel(calls(SEARCH), calls(BONN), says("Hello, said the weather."))
    answer = await asked(model)
    assert answer.choices[0].message.content == "Hello, said the weather."
    assert names(model) == [[FIND_TOOLS], [FIND_TOOLS, "current_weather"], [FIND_TOOLS, "current_weather"]]


async def test_with_a_budget_of_nothing_it_is_shown_everything():
    model = FakeModel(says("So many."))
    await asked(model, budget=0)
    assert names(model) == [[tool.name for tool in MANY]]


async def test_a_clients_tools_are_always_shown():
    model = FakeModel(calls(SEARCH), says("Hm."))
    await asked(model, {"tool_mode": "mixed"}, tools=[WEATHER])
    assert names(model) == [[FIND_TOOLS, "weather"], [FIND_TOOLS, "weather", "current_weather"]]


async def test_a_request_says_which_of_the_servers_tools_it_wants():
    model = FakeModel(says("Hm."))
    await asked(model, {"server_tools": ["get_order", "share_ph*"]})
    await asked(model, {"server_tools": []})
    assert names(model) == [["get_order", "share_photo"], []]


async def test_what_a_request_does_not_want_is_not_found():
    model = FakeModel(calls(SEARCH), says("Hm."))
    await asked(model, {"server_tools": ["*_order", "*_invoice"]}, budget=10)
    assert "No tool fits" in model.asked[1].messages[-1].content
    assert "20 tools (shop: 20)" in model.asked[1].messages[-1].content


async def test_a_client_may_have_a_search_of_its_own():
    model = FakeModel(calls(SEARCH), says("Hm."))
    own = {"type": "function", "function": {"name": FIND_TOOLS, "parameters": {"type": "object"}}}
    answer = await asked(model, {"tool_mode": "mixed"}, tools=[own])
    assert answer.choices[0].message.tool_calls[0].function.name == FIND_TOOLS
    assert len(names(model)[0]) == 301
    assert Tool(FIND_TOOLS) not in model.asked[0].tools[1:]
