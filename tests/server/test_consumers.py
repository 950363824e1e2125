"""What is built on the tools of a server: its page, phones, callers over a WebSocket, and those who watch it."""

import json
from typing import Any

import pytest

from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.tools.functions import Functions
from tests.capabilities.chatting import called, scripted_model
from tests.server.asking import http
from tests.server.routes.bus.calling import envelope, send, socket_to
from tests.serving import served


def find_neighbour() -> str:
    """Who is there?"""
    return "ann and bob"


def village(**llm: Any) -> Any:
    _, model = scripted_model(called(("find_neighbour", {})), "Ann and Bob.", "Nobody.")
    return create_app({"m": model}, tools=Functions(find_neighbour), settings=Settings(llm=Llm(**llm)))


@pytest.mark.req("R211")
async def test_page_and_phone_are_served_what_asks_and_the_tools_it_may_use():
    async with http(village()) as client:
        page = await client.get("/", headers={"accept": "text/html"})
        assert page.headers["content-type"].startswith("text/html")
        assert '<meta name="viewport" content="width=device-width' in page.text
        assert [entry["name"] for entry in (await client.get("/v1/tools")).json()["data"]] == ["find_neighbour"]
        answer = await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Wer ist da?"}]})
    assert answer.json()["choices"][0]["message"]["content"] == "Ann and Bob."


@pytest.mark.req("R211")
async def test_a_chat_over_a_websocket_gets_results_and_is_told_by_telemetry_metrics_and_trace():
    app = village()
    tool = {"name": "find_neighbour", "description": "Who is there?", "parameters_schema": {"type": "object"}}
    body = {"input": {"messages": [{"role": "user", "content": "Wer ist da?"}], "tools": [tool]}}
    async with served(app) as url, socket_to(url) as socket:
        await send(socket, type="call", envelope=envelope(body=body, stream=True))
        frames: list[Any] = []
        while not frames or frames[-1]["event"] not in ("done", "error"):
            frames.append(json.loads(await socket.recv()))
            if frames[-1]["event"] == "tool_call":
                await send(socket, type="tool_result", tool_call_id=frames[-1]["data"]["id"], body="ann and bob")
    assert [frame["event"] for frame in frames if frame["event"] not in ("token", "tool_call_delta")] == ["tool_call", "done"]
    assert "".join(frame["data"]["text"] for frame in frames if frame["event"] == "token") == "Ann and Bob."
    async with http(app) as client:
        telemetry = (await client.get("/v1/telemetry")).json()
        metrics = (await client.get("/metrics")).text
        trace = (await client.get("/bus/v1/trace")).json()
    assert "find_neighbour" in json.dumps(telemetry["tools"])
    assert 'callsmith_bus_calls_total{capability="llm.chat",result="ok"} 1' in metrics
    assert "llm.chat" in json.dumps(trace)


@pytest.mark.req("R211")
async def test_the_configuration_says_whether_there_are_tools():
    async with http(village(tools_enabled=False)) as client:
        assert (await client.get("/v1/tools")).json()["data"] == []
