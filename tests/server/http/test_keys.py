"""Keys: who is let in, to which models and tools, and as whom."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest

from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.server.app import create_app
from callsmith.server.http.keys import find_key, hash_key, new_key
from callsmith.server.settings import Key, Settings
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, http, says

ALICE, BOB = "sk-alice", "sk-bob"
KEYS = {"alice": Key(hash_key(ALICE)), "bob": Key(hash_key(BOB), models=("m*",), tools=("clock",))}
KEYS_ALIKE = {"alice": Key(hash_key(ALICE)), "bob": Key(hash_key(BOB))}
SETTINGS = Settings(keys=KEYS)
ASK = {"model": "m", "messages": HI}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def clock() -> str:
    return "noon"


async def safe() -> str:
    return "open"


class Witness:
    """Remembers for whom it was called."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def tools(self) -> list[Tool]:
        return [Tool("clock")]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Result]:
        self.subjects.append(context.subject)
        yield Result(call.id, call.name, "noon")


def test_a_new_key_is_found_by_its_hash_alone():
    key, digest = new_key()
    assert digest == sha256(key.encode()).hexdigest()
    assert len(key) > 43
    assert new_key()[0] != key
    assert find_key(key, {"other": Key("0" * 64), "me": Key(digest)}) == "me"
    assert find_key(key + "x", {"me": Key(digest)}) is None
    assert find_key(digest, {"me": Key(digest)}) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer("sk-nobody"), 401),
        ({"authorization": "Basic c2stYWxpY2U="}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"x-api-key": "käse".encode("latin-1")}, 401),
        (bearer(hash_key(ALICE)), 401),
        (bearer(ALICE), 200),
        ({"authorization": f"bearer  {ALICE}"}, 200),
        ({"x-api-key": ALICE}, 200),
    ],
)
async def test_only_who_has_a_key_is_answered(headers: dict[str, Any], status: int):
    async with http(create_app({"m": FakeModel(says("a"))}, settings=SETTINGS)) as asking:
        answer = await asking.post("/v1/chat/completions", json=ASK, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_refusal_is_told_in_the_callers_dialect():
    async with http(create_app({"m": FakeModel(says("a"))}, settings=SETTINGS)) as asking:
        refused = await asking.post("/v1/messages", json={**ASK, "max_tokens": 9})
        other = await asking.post("/v1/messages", json={**ASK, "model": "n", "max_tokens": 9}, headers={"x-api-key": ALICE})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"
    assert refused.json()["type"] == "error"
    assert other.status_code == 404


async def test_a_key_opens_only_its_models():
    app = create_app({"m1": FakeModel(says("a")), "secret": FakeModel(says("b"))}, settings=SETTINGS)
    async with http(app) as asking:
        listed = await asking.get("/v1/models", headers=bearer(BOB))
        mine = await asking.post("/v1/chat/completions", json={**ASK, "model": "m1"}, headers=bearer(BOB))
        theirs = await asking.post("/v1/chat/completions", json={**ASK, "model": "secret"}, headers=bearer(BOB))
        response = await asking.get("/v1/models/secret", headers=bearer(BOB))
        anthropic = await asking.post(
            "/v1/messages", json={**ASK, "model": "secret", "max_tokens": 9}, headers={"x-api-key": BOB}
        )
        all_of_them = await asking.get("/v1/models", headers=bearer(ALICE))
    assert [entry["id"] for entry in listed.json()["data"]] == ["m1"]
    assert [answer.status_code for answer in (mine, theirs, response, anthropic)] == [200, 403, 403, 403]
    assert anthropic.json()["error"]["type"] == "permission_error"
    assert len(all_of_them.json()["data"]) == 2


async def test_who_may_use_no_model_sees_an_empty_list_in_every_dialect():
    async with http(create_app({"secret": FakeModel(says("a"))}, settings=SETTINGS)) as asking:
        openai = await asking.get("/v1/models", headers=bearer(BOB))
        anthropic = await asking.get("/v1/models", headers={**bearer(BOB), "anthropic-version": "2023-06-01"})
        ollama = await asking.get("/api/tags", headers=bearer(BOB))
    assert openai.json() == {"object": "list", "data": []}
    assert anthropic.json() == {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert ollama.json() == {"models": []}


@pytest.mark.parametrize(("key", "tools"), [(ALICE, ["clock", "safe"]), (BOB, ["clock"])])
async def test_a_key_opens_only_its_tools(key: str, tools: list[str]):
    model = FakeModel(calls(Call("safe", {}, "c1")), says("Done."))
    async with http(create_app({"m": model}, tools=Functions(clock, safe), settings=SETTINGS)) as asking:
        await asking.post("/v1/chat/completions", json=ASK, headers=bearer(key))
    assert [tool.name for tool in model.asked[0].tools] == tools
    (result,) = [message.content for message in model.asked[1].messages if message.role == "tool"]
    assert (result == "open") is ("safe" in tools)


async def test_the_name_of_the_key_is_the_subject_tools_run_for():
    witness = Witness()
    model = FakeModel(calls(Call("clock", {}, "c1")), says("a"), calls(Call("clock", {}, "c1")), says("b"))
    async with http(create_app({"m": model}, tools=witness, settings=SETTINGS)) as asking:
        for key, path in ((ALICE, "chat/completions"), (BOB, "messages")):
            await asking.post(f"/v1/{path}", json={**ASK, "max_tokens": 9}, headers=bearer(key))
    assert witness.subjects == ["alice", "bob"]


async def test_what_waits_for_one_caller_is_not_what_waits_for_another():
    @tool(side_effects=True)
    async def pay() -> None: ...

    app = create_app({"m": FakeModel(calls(Call("pay", {}, "p1")))}, tools=Functions(pay), settings=Settings(keys=KEYS_ALIKE))
    ids: list[str] = []
    async with http(app) as asking:
        for key in (ALICE, BOB):
            answer = await asking.post("/v1/chat/completions", json={**ASK, "session_id": "s"}, headers=bearer(key))
            ids.append(answer.json()["callsmith"]["approvals"][0]["id"])
    assert ids[0] != ids[1]


async def test_watchers_need_no_key_and_are_told_less_without_one():
    async with http(create_app({"m": FakeModel(says("a"))}, settings=SETTINGS)) as asking:
        assert (await asking.get("/ready")).status_code == 200
        assert (await asking.get("/health")).json() == {"status": "ok"}
        assert (await asking.get("/health", headers=bearer(ALICE))).json()["models"] == {"m": "ready"}
        assert (await asking.get("/metrics")).status_code == 401
        assert (await asking.get("/metrics", headers=bearer(ALICE))).status_code == 200


async def test_a_websocket_is_closed_where_keys_are_needed():
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    await create_app({"m": FakeModel(says("a"))}, settings=SETTINGS)(scope, receive, send)
    assert [(event["type"], event["code"]) for event in sent] == [("websocket.close", 1008)]
