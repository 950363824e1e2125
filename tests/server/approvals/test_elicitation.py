"""A server that asks a person something in the middle of a call is answered where approvals are."""

import asyncio
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp")

from callsmith.core.ports import Context
from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.approvals.elicitations import Elicitations
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.elicitation import ClientFeatures
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, http, says
from tests.tools.mcp.trying import call, plain

CHAT = {"model": "m", "messages": HI}


async def pending(asking: httpx2.AsyncClient) -> dict[str, Any]:
    """The question, once there is one."""
    async with asyncio.timeout(20):
        while not (waiting := (await asking.get("/v1/approvals")).json()["data"]):
            await asyncio.sleep(0.05)
    return waiting[0]


@pytest.mark.parametrize(
    ("word", "content"),
    [
        ({"approve": True, "arguments": {"name": "Ada"}}, '"content": {"name": "Ada", "size": 7}'),
        ({"approve": False}, '"action": "decline"'),
    ],
)
async def test_what_a_server_wants_to_know_is_answered_over_http(word: dict[str, Any], content: str) -> None:
    store = SqliteStore()
    model = FakeModel(calls(Call("elicit", {}, "1")), says("So."))
    config = plain(approval=(("*", "auto"),))
    async with McpHost([config], features=ClientFeatures(Elicitations(store, 60).ask)) as host:
        asking = http(create_app({"m": model}, store=store, mcp=host))
        answering = asyncio.create_task(asking.post("/v1/chat/completions", json=CHAT, timeout=60))
        question = await pending(asking)
        assert (question["reason"], question["source"], question["tool"]) == ("Who?", "mcp:plain", "elicit")
        assert "name" in question["asks"]["schema"]["properties"]
        answered = await asking.post(f"/v1/approvals/{question['id']}", json=word)
        assert answered.status_code == 200, answered.text
        assert (await answering).json()["choices"][0]["message"]["content"] == "So."
    assert content in model.asked[1].messages[-1].content


async def test_so_is_what_it_wants_to_know_in_a_call_by_hand() -> None:
    store = SqliteStore()
    config = plain(approval=(("*", "auto"),))
    async with McpHost([config], features=ClientFeatures(Elicitations(store, 60).ask)) as host:
        asking = http(create_app({"m": FakeModel()}, store=store, mcp=host))
        listed = (await asking.get("/v1/tools")).json()
        assert ("elicit", "mcp:plain", False) in [
            (entry["name"], entry["source"], entry["needs_approval"]) for entry in listed["data"]
        ]
        assert [(server["label"], server["state"]) for server in listed["servers"]] == [("plain", "ready")]
        calling = asyncio.create_task(asking.post("/v1/tools/elicit", json={}, timeout=60))
        question = await pending(asking)
        word = {"approve": True, "arguments": {"name": "Ada"}}
        await asking.post(f"/v1/approvals/{question['id']}", json=word)
        result = (await calling).json()["result"]
    assert result["ok"] and '"content": {"name": "Ada", "size": 7}' in result["content"]


async def test_a_question_nobody_waits_for_any_more_is_withdrawn() -> None:
    store = SqliteStore()
    async with McpHost([plain()], features=ClientFeatures(Elicitations(store, 60).ask)) as host:
        asking = http(create_app({"m": FakeModel()}, store=store, mcp=host))

        async def made() -> None:
            async for _ in host.call(Call("elicit", {}, "1"), Context()):
                pass

        calling = asyncio.create_task(made())
        await pending(asking)
        calling.cancel()
        async with asyncio.timeout(20):
            while (await asking.get("/v1/approvals")).json()["data"]:
                await asyncio.sleep(0.05)


async def test_a_question_nobody_answers_is_given_up() -> None:
    store = SqliteStore()
    async with McpHost([plain()], features=ClientFeatures(Elicitations(store, 0.3).ask)) as host:
        assert '"action": "cancel"' in (await call(host, "elicit")).text
