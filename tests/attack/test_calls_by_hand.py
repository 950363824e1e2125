"""What a hostile caller tries at `/v1/tools` and `/v1/turns`: tools, jobs and turns of others, floods, forged requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Requests, Settings
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.approvals.shop import CHAT, PAY, Shop, listed
from tests.server.asking import HI, calls, http, listening, says
from tests.waiting import until


def keys() -> dict[str, Key]:
    return {
        "alice": Key(hash_key("alice"), tools=("pay", "bake", "job_result")),
        "bob": Key(hash_key("bob"), tools=("tip", "bake", "job_result")),
        "slow": Key(hash_key("slow"), requests_per_minute=1),
        "boss": Key(hash_key("boss"), scopes=("approver",)),
    }


@tool(background=True)
async def bake() -> str:
    return "bread"


class World:
    """A server with a shop, and a client for each key."""

    def __init__(self, **settings: Any) -> None:
        self.shop, self.keys = Shop(), keys()
        functions = Functions(*self.shop.functions, bake)
        self.model = FakeModel(says("one"))
        self.app = create_app({"m": self.model}, tools=functions, settings=Settings(keys=self.keys, **settings))

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[httpx2.AsyncClient]:
        async with http(self.app) as client:
            client.headers["authorization"] = f"Bearer {name}"
            yield client


async def test_a_tool_of_others_cannot_be_told_from_one_that_does_not_exist():
    world = World()
    async with world.client("bob") as bob:
        hidden = await bob.post("/v1/tools/pay", json={"arguments": {"euros": 5}, "approve": True})
        nowhere = await bob.post("/v1/tools/nope", json={"arguments": {"euros": 5}, "approve": True})
    assert hidden.status_code == nowhere.status_code == 404
    assert hidden.json()["error"]["message"].replace("pay", "nope") == nowhere.json()["error"]["message"]
    assert world.shop.paid == []


@pytest.mark.parametrize("name", ["..%2Fpay", "pay%00", "%2e%2e", "pay/", "x" * 5000, "p%61y%2f", "*", "pa?"])
async def test_names_that_are_none_run_nothing(name: str):
    world = World()
    async with world.client("alice") as alice:
        answer = await alice.post(f"/v1/tools/{name}", json={"arguments": {"euros": 5}, "approve": True})
    assert answer.status_code in (307, 404)
    assert world.shop.paid == []


async def test_the_job_of_another_caller_is_not_read_by_hand():
    world = World()
    async with world.client("alice") as alice, world.client("bob") as bob:
        await alice.post("/v1/tools/bake", json={})
        [job] = (await alice.get("/v1/jobs")).json()["data"]
        stolen = (await bob.post("/v1/tools/job_result", json={"arguments": {"job": job["id"]}})).json()["result"]
        own = (await alice.post("/v1/tools/job_result", json={"arguments": {"job": job["id"], "seconds": 5}})).json()["result"]
    assert (stolen["ok"], stolen["code"]) == (False, "not_found")
    assert own["content"].startswith("bread")


async def test_calls_by_hand_count_against_the_limits_of_the_key():
    world = World()
    async with world.client("slow") as slow:
        first, second = [await slow.post("/v1/tools/tip", json={"arguments": {"euros": 1}, "approve": True}) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 429)
    assert world.shop.paid == [("tip", 1)]


async def test_a_body_that_is_too_large_is_not_read():
    world = World(requests=Requests(body_bytes=1000))
    async with world.client("alice") as alice:
        answer = await alice.post("/v1/tools/pay", json={"arguments": {"euros": "x" * 10_000}, "approve": True})
    assert answer.status_code == 413
    assert world.shop.paid == []


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
async def test_a_web_page_of_somebody_else_cannot_have_a_browser_call_a_tool(kind: str):
    shop = Shop()
    async with http(create_app({"m": FakeModel(says("one"))}, tools=shop.tools)) as browser:
        headers = {"origin": "https://evil.example", "content-type": kind}
        body = json.dumps({"arguments": {"euros": 5}, "approve": True})
        assert (await browser.post("/v1/tools/pay", content=body, headers=headers)).status_code == 403
        assert (await browser.get("/v1/turns", headers={"host": "evil.example"})).status_code in (403, 421)
    assert shop.paid == []


@pytest.mark.parametrize("path", ["/v1/tools", "/v1/turns", "/v1/telemetry", "/v1/conversations"])
async def test_nothing_is_shown_without_a_key(path: str):
    async with http(World().app) as nobody:
        answer = await nobody.get(path)
    assert answer.status_code == 401 and set(answer.json()) == {"error", "request_id"}


async def test_a_key_that_is_withdrawn_ends_what_it_begins_and_begins_nothing_more():
    shop, own = Shop(), keys()
    model = FakeModel(calls(PAY), says("All done."))
    settings = Settings(keys=own)
    async with (
        listening(model, tools=shop.tools, settings=settings) as url,
        httpx2.AsyncClient(base_url=url, headers={"authorization": "Bearer alice"}) as alice,
        httpx2.AsyncClient(base_url=url, headers={"authorization": "Bearer boss"}) as boss,
    ):
        lines: list[str] = []

        async def read() -> None:
            body = {"model": "m", "messages": HI, "stream": True, "wait_for_approval": True}
            async with alice.stream("POST", CHAT, json=body) as response:
                async for line in response.aiter_lines():
                    lines.append(line)

        reading = asyncio.create_task(read())
        await until(lambda: any("confirm_" in line for line in lines))
        (waiting,) = await listed(boss)
        del own["alice"]
        refused = await alice.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})
        assert (refused.status_code, "not known" in refused.json()["error"]["message"]) == (401, True)
        for path in ("/v1/tools", "/v1/turns", "/v1/approvals"):
            assert (await alice.get(path)).status_code == 401
        assert await listed(boss) == []  # nobody decides for a key that is gone
        assert (await boss.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})).status_code == 404
        assert not reading.done()  # it waits until the approval expires, or its client leaves
        reading.cancel()
        await asyncio.wait({reading})
    assert shop.paid == []
