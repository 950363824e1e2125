"""Results that are cached on a server: within a conversation, for its caller, and only where that was asked for."""

from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, http, says


class Desk:
    """Two tools that count how often they are called."""

    def __init__(self) -> None:
        self.looked: list[str] = []

    def tools(self) -> Functions:
        @tool(idempotent=True, cache_seconds=60)
        def rate(currency: str) -> int:
            self.looked.append(currency)
            return len(self.looked)

        @tool(idempotent=True)
        def clock() -> int:
            self.looked.append("clock")
            return len(self.looked)

        return Functions(rate, clock)


def call(name: str, id: str) -> Call:
    return Call(name, {"currency": "EUR"} if name == "rate" else {}, id)


async def ask(settings: Settings, name: str, *sessions: str) -> tuple[int, list[Any], Any]:
    """Ask once for each session; how often the tool ran, what each was told of it, and the counters of the tool."""
    desk = Desk()
    model = FakeModel(*(turn for number, _ in enumerate(sessions) for turn in (calls(call(name, f"c{number}")), says("There."))))
    results = list[Any]()
    async with http(create_app({"m": model}, tools=desk.tools(), settings=settings)) as client:
        for session in sessions:
            body = {"model": "m", "messages": HI, "session_id": session, "tool_events": True}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
            results += [event for event in answer["callsmith"]["events"] if event["event"] == "tool_finished"]
        metrics = (await client.get("/metrics")).text
    return len(desk.looked), results, [line for line in metrics.splitlines() if line.startswith("callsmith_tool_cached_total")]


@pytest.mark.req("R218")
async def test_a_tool_that_says_so_is_answered_from_the_cache_in_its_conversation_and_the_hit_is_seen():
    ran, results, counted = await ask(Settings(), "rate", "one", "one", "two")
    assert ran == 2
    assert [result.get("code") for result in results] == [None, "cached", None]
    assert [result["content"] for result in results] == ["1", "1", "2"]
    assert 'callsmith_tool_cached_total{tool="rate"} 1.0' in counted


@pytest.mark.req("R218")
@pytest.mark.parametrize(
    ("llm", "name", "runs"),
    [
        (Llm(), "clock", 2),
        (Llm(tools_cache_seconds=60), "clock", 1),
        (Llm(tools_cache=False, tools_cache_seconds=60), "clock", 2),
        (Llm(tools_cache=False), "rate", 2),
    ],
)
async def test_the_switches(llm: Llm, name: str, runs: int):
    assert (await ask(Settings(llm=llm), name, "one", "one"))[0] == runs
