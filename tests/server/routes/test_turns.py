"""`/v1/turns` and `/v1/telemetry`: a caller's own turns, all of them for an admin, and no more than so many."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from callsmith.runtime.telemetry.turns import TurnRecord
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from callsmith.tools.functions import Functions
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, calls, http, says, weather

CHAT = "/v1/chat/completions"
KEYS = {
    "alice": Key(hash_key("alice")),
    "bob": Key(hash_key("bob")),
    "ops": Key(hash_key("ops"), scopes=("admin",)),
}


@asynccontextmanager
async def clients(model: FakeModel, *names: str, **settings: Any) -> AsyncIterator[list[httpx2.AsyncClient]]:
    app = create_app({"m": model}, tools=Functions(weather), settings=Settings(**settings))
    async with http(app) as first, http(app) as two, http(app) as three:
        for name, client in zip(names, (first, two, three), strict=False):
            client.headers["authorization"] = f"Bearer {name}"
        yield [first, two, three]


async def turns(client: httpx2.AsyncClient, **query: Any) -> list[Any]:
    return (await client.get("/v1/turns", params=query)).json()["data"]


async def test_a_turn_is_shown_with_its_calls_and_without_what_was_said():
    async with clients(FakeModel(calls(BONN), says("secret"))) as (client, *_):
        answer = await client.post(CHAT, json={"messages": HI})
        [turn] = await turns(client)
    assert (turn["model"], turn["reason"], turn["answers"]) == ("m", "stop", 2)
    assert turn["request_id"] == answer.headers["x-request-id"]
    assert turn["usage"] == {"prompt": 14, "completion": 6, "cached": 2, "reasoning": 1}
    [call] = turn["calls"]
    assert (call["tool"], call["outcome"], call["keys"], call["arguments"]) == ("weather", "ok", ["city"], None)
    assert call["seconds"] >= 0 and call["at"] >= 0
    assert "secret" not in str(turn) and "Bonn" not in str(turn)


async def test_telemetry_sums_them_up():
    async with clients(FakeModel(calls(BONN), says("done"))) as (client, *_):
        await client.post(CHAT, json={"messages": HI})
        body = (await client.get("/v1/telemetry")).json()
        few = (await client.get("/v1/telemetry?minutes=2")).json()
    [tool] = body["tools"]
    assert {name: tool[name] for name in ("name", "calls", "ok", "failed", "invalid")} == {
        "name": "weather",
        "calls": 1,
        "ok": 1,
        "failed": 0,
        "invalid": 0,
    }
    assert tool["p50"] == tool["p95"] >= 0
    assert (len(body["minutes"]), len(few["minutes"])) == (60, 2)
    assert [sum(minute[name] for minute in body["minutes"]) for name in ("turns", "calls", "tokens")] == [1, 1, 6]


async def test_nobody_sees_the_turns_of_another_caller_but_an_admin():
    async with clients(FakeModel(says("one")), "alice", "bob", "ops", keys=KEYS) as (alice, bob, ops):
        for _ in range(2):
            await alice.post(CHAT, json={"messages": HI})
        await bob.post(CHAT, json={"messages": HI})
        assert [turn["caller"] for turn in await turns(alice)] == ["alice", "alice"]
        assert [turn["caller"] for turn in await turns(bob)] == ["bob"]
        assert [turn["caller"] for turn in await turns(ops)] == ["bob", "alice", "alice"]
        minutes = (await bob.get("/v1/telemetry")).json()["minutes"]
        assert sum(minute["turns"] for minute in minutes) == 1


async def test_of_each_caller_the_latest_are_remembered_and_nobody_pushes_out_anothers():
    async with clients(FakeModel(says("one")), "alice", "bob", keys=KEYS, recent_turns=2) as (alice, bob, _):
        await bob.post(CHAT, json={"messages": HI})
        ids = [(await alice.post(CHAT, json={"messages": HI})).headers["x-request-id"] for _ in range(5)]
        assert [turn["request_id"] for turn in await turns(alice)] == ids[:-3:-1]
        assert len(await turns(bob)) == 1


async def test_none_are_remembered_where_none_are_wanted():
    async with clients(FakeModel(says("one")), recent_turns=0) as (client, *_):
        await client.post(CHAT, json={"messages": HI})
        assert await turns(client) == []


def records() -> int:
    gc.collect()
    return sum(isinstance(known, TurnRecord) for known in gc.get_objects())


async def test_no_others_are_kept_in_memory():
    before = records()
    async with clients(FakeModel(says("one")), recent_turns=2) as (client, *_):
        for _ in range(5):
            await client.post(CHAT, json={"messages": HI})
        assert records() == before + 2


async def test_the_latest_come_first_and_only_as_many_as_are_asked_for():
    async with clients(FakeModel(says("one"))) as (client, *_):
        ids = [(await client.post(CHAT, json={"messages": HI})).headers["x-request-id"] for _ in range(4)]
        assert [turn["request_id"] for turn in await turns(client, limit=3)] == ids[:0:-1]


@pytest.mark.parametrize(
    "path", ["turns?limit=0", "turns?limit=1001", "turns?limit=x", "telemetry?minutes=0", "telemetry?minutes=1441"]
)
async def test_numbers_out_of_bounds_are_refused(path: str):
    async with clients(FakeModel(says("one"))) as (client, *_):
        answer = await client.get(f"/v1/{path}")
    assert answer.status_code == 400 and "a number from 1 to" in answer.json()["error"]["message"]
