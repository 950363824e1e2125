"""Starter tools: whoever asks for them gets them, where the server was given no tools; nobody else does."""

from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Llm, Settings
from callsmith.tools.functions import Functions
from callsmith.tools.mcp import McpHost
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, http, says, weather

STARTER = ["current_time", "calculate", "convert_units"]
SUM = Call("calculate", {"expression": "23 * 47 + 5"}, "c1")
ASK: Any = {"starter_tools": True}
APIS = {
    "/v1/chat/completions": {"model": "m", "messages": HI},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "messages": HI, "max_tokens": 100},
    "/api/chat": {"model": "m", "messages": HI, "stream": False},
}


async def offered(body: Any, path: str = "/v1/responses", key: str = "", **options: Any) -> list[str]:
    """The tools that the model was shown."""
    model = FakeModel(says("Hm."))
    async with http(create_app({"m": model}, **options)) as asking:
        answer = await asking.post(path, json=body, headers={"authorization": f"Bearer {key}"} if key else {})
    assert answer.status_code == 200, answer.text
    return [tool.name for tool in model.asked[0].tools]


@pytest.mark.parametrize("path", APIS)
async def test_in_every_api_only_a_request_that_asks_for_them_is_offered_them(path: str):
    assert await offered(APIS[path], path) == []
    assert await offered({**APIS[path], "starter_tools": False, "server_tools": ["*"], "tool_mode": "mixed"}, path) == []
    assert await offered(APIS[path] | ASK, path) == STARTER
    assert await offered({**APIS[path], **ASK, "server_tools": ["calc*"]}, path) == ["calculate"]


async def test_a_call_of_one_runs_here_and_is_shown_as_one_of_theirs():
    model = FakeModel(calls(SUM), says("It is 1086."))
    async with http(create_app({"m": model})) as asking:
        body = {**APIS["/v1/responses"], **ASK, "tool_events": True}
        call, message = (await asking.post("/v1/responses", json=body)).json()["output"]
    assert (call["type"], call["server_label"], call["name"], call["output"]) == ("mcp_call", "starter", "calculate", "1086")
    assert message["content"][0]["text"] == "It is 1086."


async def test_where_tools_were_given_those_are_offered_and_no_others():
    assert await offered(APIS["/v1/responses"] | ASK, tools=Functions(weather)) == ["weather"]
    async with McpHost([]) as mcp:
        assert await offered(APIS["/v1/responses"] | ASK, mcp=mcp) == []


@pytest.mark.parametrize("settings", [Settings(page=False), Settings(llm=Llm(tools_enabled=False))], ids=["page", "tools"])
async def test_where_there_is_no_page_or_tools_are_switched_off_there_are_none(settings: Settings):
    assert await offered(APIS["/v1/responses"] | ASK, settings=settings) == []


async def test_a_key_gets_those_that_it_may_use():
    settings = Settings(keys={"ada": Key(hash_key("sk-ada"), tools=("calc*",))})
    assert await offered(APIS["/v1/responses"] | ASK, key="sk-ada", settings=settings) == ["calculate"]


async def test_a_request_may_limit_how_often_they_are_called():
    model = FakeModel(calls(SUM), calls(Call("calculate", {"expression": "1 + 1"}, "c2")), says("Enough."))
    async with http(create_app({"m": model})) as asking:
        body = {**APIS["/v1/responses"], **ASK, "tool_events": True, "max_tool_calls": 1}
        output = (await asking.post("/v1/responses", json=body)).json()["output"]
    assert [item["output"] for item in output if item["type"] == "mcp_call"] == ["1086", None]


async def test_they_are_listed_and_called_by_hand_only_when_asked_for():
    async with http(create_app({"m": FakeModel(says("Hm."))})) as asking:
        assert (await asking.get("/v1/tools")).json()["data"] == []
        listed = (await asking.get("/v1/tools?starter_tools=true")).json()["data"]
        assert [(item["name"], item["source"], item["needs_approval"]) for item in listed] == [
            (name, "starter", False) for name in STARTER
        ]
        call = {"arguments": dict(SUM.arguments)}
        assert (await asking.post("/v1/tools/calculate", json=call)).status_code == 404
        assert (await asking.post("/v1/tools/calculate", json=call | ASK)).json()["result"]["content"] == "1086"
