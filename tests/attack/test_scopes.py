"""What one key may see and do of another's: an ordinary key nothing, an admin's all that is shown, an approver's decisions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from callsmith.core.errors import UsageError
from callsmith.core.ports import ModelInfo
from callsmith.server.app import create_app
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from callsmith.server.settings_sources import SettingsSource, merge_settings
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel, Sourced
from tests.server.approvals.shop import CHAT, PAY, Shop, answer, asked, listed
from tests.server.asking import HI, calls, http, says

KEYS = {
    "alice": Key(hash_key("alice"), models=("m",), tools=("pay",)),
    "bob": Key(hash_key("bob"), models=("other",), tools=("tip",)),
    "careful": Key(hash_key("careful"), approves=False),
    "ops": Key(hash_key("ops"), models=("m",), tools=("tip",), scopes=("admin",)),
    "boss": Key(hash_key("boss"), models=("other",), tools=("none",), scopes=("approver",)),
    "clerk": Key(hash_key("clerk"), scopes=("approver",), approves_for=("b*",), approves=False),
}


class Company:
    """A server with the keys above, two models and a shop, and a client for each key."""

    def __init__(self, model: FakeModel, other: FakeModel | None = None) -> None:
        self.shop, self.store = Shop(), SqliteStore()
        tools = Sourced("mcp:shop", *self.shop.functions)
        models = {"m": model, "other": other or FakeModel(says("other"))}
        self.app = create_app(models, tools=tools, settings=Settings(keys=KEYS), store=self.store)

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[httpx2.AsyncClient]:
        async with http(self.app) as client:
            client.headers["authorization"] = f"Bearer {name}"
            yield client

    async def granted(self, name: str, session: str) -> frozenset[Any]:
        """What the server lets run unasked in a session of a caller."""
        return await Approvals(self.store, name).list_granted(session)

    async def get(self, name: str, path: str) -> httpx2.Response:
        async with self.client(name) as client:
            return await client.get(path)


class Loading(FakeModel):
    info = ModelInfo(ready=False)


# What is shown


async def test_a_key_is_shown_its_own_models_and_tools_only():
    company = Company(FakeModel(calls(PAY), says("done")))
    async with company.client("alice") as alice:
        [id] = await asked(alice)
        await answer(alice, id, approve=True)
    async with company.client("bob") as bob:
        await bob.post(CHAT, json={"model": "other", "messages": HI})
    health = {name: (await company.get(name, "/health")).json() for name in ("alice", "bob", "ops")}
    expected = {"status": "ok", "tools": {"mcp:shop": 1}, "store_is_lasting": False}
    assert health["alice"] == {**expected, "models": {"m": "ready"}}
    assert health["bob"] == {**expected, "models": {"other": "ready"}}
    assert health["ops"]["models"] == {"m": "ready", "other": "ready"}
    assert health["ops"]["tools"] == {"mcp:shop": 2}
    assert health["ops"]["store"] == "ok"
    metrics = {name: (await company.get(name, "/metrics")).text for name in ("alice", "bob", "ops")}
    assert 'tool="pay"' in metrics["alice"] and 'model="m"' in metrics["alice"]
    assert 'tool="tip"' not in metrics["alice"] and "other" not in metrics["alice"]
    assert 'tool="pay"' not in metrics["bob"] and 'model="m"' not in metrics["bob"]
    assert all(name in metrics["ops"] for name in ('tool="pay"', 'tool="tip"', 'model="m"', 'model="other"'))


async def test_without_a_key_not_even_names_are_shown():
    company = Company(Loading(says("a")))
    async with http(company.app) as nobody:
        assert (await nobody.get("/health")).json() == {"status": "starting"}
        assert (await nobody.get("/ready")).json() == {"ready": False, "why": "loading"}
        assert (await nobody.get("/metrics")).status_code == 401
    assert (await company.get("ops", "/ready")).json()["why"] == "loading: m"


# Who approves


async def test_an_approver_sees_calls_of_other_keys_and_decides_on_them():
    company = Company(FakeModel(calls(PAY), says("done")))
    async with company.client("alice") as alice, company.client("boss") as boss:
        [id] = await asked(alice)
        [seen] = await listed(boss)
        assert (seen["id"], seen["caller"], seen["arguments"]) == (id, "alice", {"euros": 5})
        decided = await answer(boss, id, approve=True)  # with alice's models and tools: the boss has neither
        assert (decided["status"], decided["answer"]["text"]) == ("done", "done")
        assert (await alice.get(f"/v1/approvals/{id}")).json()["result"]["content"] == "paid 5"
    assert company.shop.paid == [("pay", 5)]
    [entry] = [record.data for record in await company.store.audit() if record.data["event"] == "decided"]
    assert (entry["subject"], entry["by"]) == ("alice", "boss")


@pytest.mark.parametrize("other", ["bob", "ops", "clerk", "careful"])
async def test_nobody_else_sees_or_decides(other):
    company = Company(FakeModel(calls(PAY), says("done")))
    async with company.client("alice") as alice, company.client(other) as client:
        [id] = await asked(alice)
        assert await listed(client, status="all") == []
        assert (await client.get(f"/v1/approvals/{id}")).status_code == 404
        assert (await client.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 404
        yes = {"type": "mcp_approval_response", "approval_request_id": id, "approve": True}
        copied = {"type": "mcp_approval_request", "id": id, "server_label": "shop", "name": "pay", "arguments": '{"euros": 5}'}
        body = {"input": [copied, yes], "tools": [{"type": "mcp", "server_label": "shop"}]}
        refused = await client.post("/v1/responses", json=body)
        assert "no approval" in refused.text
        [waiting] = await listed(alice)
    assert (waiting["status"], company.shop.paid) == ("pending", [])


async def test_an_approver_does_not_go_on_with_what_another_key_said():
    """It decides; a conversation stays its owner's."""
    company = Company(FakeModel(calls(PAY), says("done")))
    mcp = {"type": "mcp", "server_label": "shop"}
    async with company.client("alice") as alice, company.client("boss") as boss:
        first = (await alice.post("/v1/responses", json={"model": "m", "input": "Pay.", "tools": [mcp]})).json()
        assert (await boss.get(f"/v1/responses/{first['id']}")).status_code == 404
        [request] = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
        await answer(boss, request["id"], approve=True)
        again = {"model": "m", "input": "And?", "previous_response_id": first["id"], "tools": [mcp]}
        assert (await alice.post("/v1/responses", json=again)).json()["status"] == "completed"
    assert company.shop.paid == [("pay", 5)]


async def test_a_key_that_may_not_approve_its_own_calls_can_only_decline_them():
    company = Company(FakeModel(calls(PAY), says("done"), calls(PAY), says("fine")))
    mcp = {"type": "mcp", "server_label": "shop"}
    async with company.client("careful") as careful, company.client("boss") as boss:
        first = (await careful.post("/v1/responses", json={"model": "m", "input": "Pay.", "tools": [mcp]})).json()
        [request] = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
        refused = await careful.post(f"/v1/approvals/{request['id']}", json={"approve": True})
        assert (refused.status_code, "approver" in refused.text) == (403, True)
        yes = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        body: Any = {"model": "m", "input": [yes], "previous_response_id": first["id"], "tools": [mcp]}
        assert "may not approve" in (await careful.post("/v1/responses", json=body)).text
        assert company.shop.paid == []
        await answer(boss, request["id"], approve=True)
        assert company.shop.paid == [("pay", 5)]
        [id] = await asked(careful)
        assert (await answer(careful, id, approve=False))["status"] == "denied"
    assert company.shop.paid == [("pay", 5)]


async def test_what_an_approver_grants_for_good_is_the_askers_and_not_the_approvers():
    company = Company(FakeModel(calls(PAY), says("done")), FakeModel(calls(PAY), says("done")))
    async with company.client("alice") as alice, company.client("boss") as boss:
        [id] = await asked(alice, session_id="s")
        await answer(boss, id, approve=True, remember=True)
        assert await company.granted("alice", "s")
        assert not await company.granted("boss", "s")


def test_a_scope_that_does_not_exist_is_an_error():
    with pytest.raises(UsageError, match="unknown scope 'root'; expected one of admin, approver"):
        Key(hash_key("k"), scopes=("root",))
    values = {"keys.a.sha256": hash_key("k"), "keys.a.scopes": ["root"]}
    with pytest.raises(UsageError, match=r"keys\.a\.scopes"):
        merge_settings(SettingsSource("a file", values))


async def test_only_an_admin_reads_the_audit_log():
    company = Company(FakeModel(calls(PAY), says("Done.")))
    async with company.client("alice") as alice:
        (id,) = await asked(alice)
        await answer(alice, id, approve=True)
    for name in ("alice", "bob", "boss", "clerk"):
        assert (await company.get(name, "/v1/audit")).status_code == 403
    body = (await company.get("ops", "/v1/audit?event=executed")).json()["data"]
    assert [(item["name"], item["subject"], item["approved_by"]) for item in body] == [("pay", "alice", "alice")]


async def test_a_server_that_is_open_to_everybody_shows_its_audit_log_to_nobody():
    async with http(create_app({"m": FakeModel()}, settings=Settings(open=True, host="0.0.0.0"))) as client:
        assert (await client.get("/v1/audit")).status_code == 403
