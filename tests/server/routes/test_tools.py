"""`/v1/tools`: what a caller has, and calls by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsmith.core.approval import Policy, Rule
from callsmith.core.errors import ModelError
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Request
from callsmith.runtime.execute import Limits
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.routes import tools as tools_route
from callsmith.server.settings import Key, Llm, Settings
from callsmith.tools.functions import Functions, tool
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.config import read_servers
from callsmith.tools.wrap import Confirmed
from tests.fakes import FakeModel, Sourced
from tests.server.approvals.shop import Shop
from tests.server.asking import http, says, weather
from tests.tools.mcp.trying import plain

KEYS = {
    "alice": Key(hash_key("alice"), tools=("pay",)),
    "careful": Key(hash_key("careful"), approves=False),
    "ops": Key(hash_key("ops"), scopes=("admin",)),
}


class Counting(FakeModel):
    """A model that can count: the characters of the tools' descriptions stand for tokens."""

    counted = 0

    async def count(self, request: Request) -> int:
        Counting.counted += 1
        return 10 + sum(len(tool.description) for tool in request.tools)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(count=self.count)


@asynccontextmanager
async def server(model: FakeModel | None = None, key: str = "", **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with http(create_app({"m": model or FakeModel(says("one"))}, **options)) as client:
        client.headers |= {"authorization": f"Bearer {key}"} if key else {}
        yield client


async def listed(client: httpx2.AsyncClient) -> dict[str, Any]:
    body = (await client.get("/v1/tools")).json()
    assert body["object"] == "list"
    return {entry["name"]: entry for entry in body["data"]}


async def test_tools_are_listed_with_what_a_person_wants_to_know_of_them():
    @tool(side_effects=True)
    def send(text: str) -> str:
        """Sends a text to everybody."""
        return text

    async with server(tools=Functions(weather, send)) as client:
        tools = await listed(client)
    assert tools["send"] == {
        "name": "send",
        "description": "Sends a text to everybody.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        "source": "python",
        "original": "send",
        "side_effects": True,
        "needs_approval": True,
        "tokens": None,
    }
    assert (tools["weather"]["side_effects"], tools["weather"]["needs_approval"]) == (False, False)


async def test_whether_an_approval_is_needed_is_what_the_policy_says():
    shop = Shop()
    policy = Policy((Rule("auto", "pay"), Rule("deny", "tip")), otherwise="ask")
    async with server(tools=Confirmed(Functions(*shop.functions, weather), policy)) as client:
        tools = await listed(client)
    assert {name: entry["needs_approval"] for name, entry in tools.items()} == {"pay": False, "tip": False, "weather": True}
    unasked = Settings(llm=Llm(tools_require_confirmation_for_side_effects=False))
    async with server(tools=shop.tools, settings=unasked) as client:
        assert not any(item["needs_approval"] for item in (await listed(client)).values())


async def test_a_server_without_tools_lists_none():
    async with server() as client:
        assert (await client.get("/v1/tools")).json() == {"object": "list", "data": [], "servers": []}


async def test_tokens_are_those_of_the_default_model_counted_once():
    Counting.counted = 0
    async with server(Counting(says("one")), tools=Shop().tools) as client:
        assert all(isinstance(item["tokens"], int) for item in (await listed(client)).values())
        once = Counting.counted
        await listed(client)
    assert once == Counting.counted


async def test_a_model_that_cannot_count_just_now_leaves_the_rest_as_it_is():
    class Away(Counting):
        async def count(self, request: Request) -> int:
            raise ModelError("away")

    async with server(Away(says("one")), tools=Shop().tools) as client:
        assert {item["tokens"] for item in (await listed(client)).values()} == {None}


async def test_a_key_is_shown_the_tools_it_may_call_and_no_others():
    async with server(key="alice", tools=Shop().tools, settings=Settings(keys=KEYS)) as client:
        assert list(await listed(client)) == ["pay"]
        assert (await client.post("/v1/tools/tip", json={"arguments": {"euros": 1}, "approve": True})).status_code == 404


def broken_server(tmp_path: Path) -> McpHost:
    return McpHost(read_servers({"mcpServers": {"broken": {"command": str(tmp_path / "no-such-program")}}}, {}))


@pytest.mark.parametrize(("key", "is_shown"), [("ops", True), ("careful", True), ("alice", False)])
async def test_an_mcp_server_that_fails_is_shown_with_its_error_to_an_admin(tmp_path: Path, key: str, is_shown: bool):
    async with broken_server(tmp_path) as mcp:
        await mcp.wait_until_settled()
        async with server(key=key, mcp=mcp, tools=Shop().tools, settings=Settings(keys=KEYS)) as client:
            servers = (await client.get("/v1/tools")).json()["servers"]
    assert [(item["label"], item["state"], item["tools"]) for item in servers] == ([("broken", "failed", 0)] if is_shown else [])
    assert [bool(item["error"]) for item in servers] == ([key == "ops"] if is_shown else [])


async def test_a_server_that_takes_its_time_to_start_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tools_route, "_PATIENCE", 0.05)
    slow = read_servers({"mcpServers": {"slow": {"command": "sleep", "args": ["60"]}}}, {})
    async with McpHost(slow) as mcp, server(mcp=mcp) as client:
        body = (await client.get("/v1/tools")).json()
    assert (body["data"], [(item["label"], item["state"]) for item in body["servers"]]) == ([], [("slow", "starting")])


async def test_a_call_by_hand_runs_the_tool():
    async with server(tools=Functions(weather)) as client:
        answer = await client.post("/v1/tools/weather", json={"arguments": {"city": "Bonn"}})
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert result.pop("seconds") >= 0
    assert result == {"ok": True, "content": "sun in Bonn"}


async def test_arguments_that_do_not_fit_come_back_as_a_failed_result():
    async with server(tools=Functions(weather)) as client:
        result = (await client.post("/v1/tools/weather", json={"arguments": {"town": "Bonn"}})).json()["result"]
    assert (result["ok"], result["code"]) == (False, "bad_request")
    assert "city" in result["content"]


async def test_a_call_that_needs_approval_runs_only_with_it_and_the_audit_says_who_gave_it():
    shop = Shop()
    async with server(key="ops", tools=shop.tools, settings=Settings(keys=KEYS)) as client:
        refused = await client.post("/v1/tools/pay", json={"arguments": {"euros": 5}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "confirmation_required")
        assert shop.paid == []
        allowed = await client.post("/v1/tools/pay", json={"arguments": {"euros": 5}, "approve": True})
        assert allowed.json()["result"]["content"] == "paid 5"
        entries = (await client.get("/v1/audit")).json()["data"]
    assert shop.paid == [("pay", 5)]
    assert [(entry["event"], entry["name"], entry["subject"], entry["approved_by"]) for entry in entries] == [
        ("started", "pay", "ops", "ops"),
        ("executed", "pay", "ops", "ops"),
    ]


async def test_a_key_that_may_not_approve_cannot_do_so_by_hand_either():
    shop = Shop()
    async with server(key="careful", tools=shop.tools, settings=Settings(keys=KEYS)) as client:
        assert (await client.post("/v1/tools/pay", json={"arguments": {"euros": 5}, "approve": True})).status_code == 403
    assert shop.paid == []


async def test_what_the_policy_denies_no_approval_allows():
    shop = Shop()
    async with server(tools=Confirmed(shop.tools, Policy((Rule("deny", "pay", reason="never"),)))) as client:
        result = (await client.post("/v1/tools/pay", json={"arguments": {"euros": 5}, "approve": True})).json()["result"]
    assert (result["ok"], result["code"], shop.paid) == (False, "denied", [])


async def test_a_call_by_hand_is_under_the_limits_of_the_server():
    async def sleep() -> str:
        await asyncio.sleep(60)
        return "awake"

    async with server(tools=Functions(sleep), settings=Settings(limits=Limits(seconds=0.05))) as client:
        result = (await client.post("/v1/tools/sleep", json={})).json()["result"]
    assert (result["ok"], result["code"]) == (False, "timeout")


async def test_a_background_tool_becomes_a_job_of_the_caller():
    @tool(background=True)
    async def bake() -> str:
        await asyncio.sleep(0.05)
        return "bread"

    async with server(key="ops", tools=Sourced("kitchen", bake), settings=Settings(keys=KEYS)) as client:
        result = (await client.post("/v1/tools/bake", json={})).json()["result"]
        assert (result["ok"], result["code"]) == (True, "accepted")
        [job] = (await client.get("/v1/jobs")).json()["data"]
    assert job["tool"] == "bake" and job["id"] in result["content"]


@pytest.mark.parametrize("body", [[], {"arguments": 1}, {"approve": "yes"}, {"arguments": {"city": "B"}, "approve": 1}])
async def test_a_body_of_another_shape_is_refused(body: Any):
    async with server(tools=Functions(weather)) as client:
        answer = await client.post("/v1/tools/weather", json=body)
    assert answer.status_code == 400 and "expected" in answer.json()["error"]["message"]


@asynccontextmanager
async def with_prompts(key: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    plain_server = plain(options={"material": {}, "tools": ["echo"]})
    broken = plain("broken", options={"exit": 1})
    keys = {**KEYS, "prompted": Key(hash_key("prompted"), tools=("plain_get_prompt",))} if key else {}
    async with McpHost([plain_server, broken]) as mcp:
        await mcp.wait_until_settled()
        async with server(key=key, mcp=mcp, settings=Settings(keys=keys)) as client:
            yield client


@pytest.mark.processes
async def test_prompts_of_mcp_servers_are_listed_and_made():
    async with with_prompts() as client:
        listing = (await client.get("/v1/prompts")).json()
        assert listing["data"] == [{"server": "plain", "name": "prompts0-0", "description": "", "arguments": []}]
        ((server_name, message),) = [(item["server"], item["message"]) for item in listing["errors"]]
        assert server_name == "broken"
        assert "not running" in message
        made = await client.post("/v1/prompts/plain/prompts0-0", json={"arguments": {"city": "Bonn"}})
        assert made.json() == {"messages": [{"role": "user", "content": '{"city": "Bonn"}'}]}
        wrong = await client.post("/v1/prompts/plain/prompts0-0", json={"arguments": {"city": 5}})
        assert (wrong.status_code, "arguments.city" in wrong.json()["error"]["message"]) == (400, True)
        assert (await client.post("/v1/prompts/nobody/x", json={})).status_code == 404
        assert (await client.post("/v1/prompts/broken/x", json={})).status_code == 503


@pytest.mark.processes
async def test_a_key_that_has_only_some_tools_has_prompts_only_if_it_says_so():
    async with with_prompts("alice") as client:
        assert (await client.get("/v1/prompts")).json() == {"object": "list", "data": [], "errors": []}
        assert (await client.post("/v1/prompts/plain/prompts0-0", json={})).status_code == 404
    async with with_prompts("prompted") as client:
        assert [item["server"] for item in (await client.get("/v1/prompts")).json()["data"]] == ["plain"]
        assert (await client.post("/v1/prompts/plain/prompts0-0", json={})).status_code == 200
