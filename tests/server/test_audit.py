"""The audit log of a server: a record of every execution, durable before anything with side effects happens."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.capability.execution import Execution, hash_arguments
from callsmith.core.errors import StoreUnavailable
from callsmith.core.values import Call, Json
from callsmith.server.app import create_app
from callsmith.server.settings import AuditLevel, Settings
from callsmith.server.store.audit_log import AuditLog
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, http, says


def desk() -> Functions:
    @tool(side_effects=True)
    def pay(euros: int) -> str:
        return f"paid {euros}"

    def look(where: str) -> str:
        return f"looked at {where}"

    return Functions(pay, look)


async def entries(settings: Settings, query: str = "") -> list[Json]:
    """What is on record after one turn in which `look` was called, and `pay` after a person agreed."""
    model = FakeModel(calls(Call("look", {"where": "here"}, "c1")), calls(Call("pay", {"euros": 5}, "c2")), says("Done."))
    async with http(create_app({"m": model}, tools=desk(), settings=settings)) as client:
        body = {"model": "m", "messages": HI, "session_id": "talk"}
        answer = (await client.post("/v1/chat/completions", json=body, headers={"x-request-id": "req-1"})).json()
        (question,) = answer["callsmith"]["approvals"]
        await client.post(f"/v1/approvals/{question['id']}", json={"approve": True}, headers={"x-request-id": "req-2"})
        return (await client.get(f"/v1/audit{query}")).json()["data"]


async def test_every_execution_is_on_record_with_hashes_for_arguments():
    by_event = {(entry["event"], entry.get("name")): entry for entry in await entries(Settings())}
    assert {event for event, _ in by_event} == {"executed", "decided", "started", "answered"}
    looked, began, paid = by_event["executed", "look"], by_event["started", "pay"], by_event["executed", "pay"]
    assert (looked["outcome"], looked["conversation"], looked["trace_id"]) == ("ok", "talk", "req-1")
    assert looked["approved"] is looked["side_effects"] is False
    assert (paid["outcome"], paid["approved"], paid["trace_id"], paid["source"]) == ("ok", True, "req-2", "python")
    assert paid["arguments"] == hash_arguments({"euros": 5})
    assert began["id"] == paid["id"]
    assert began["number"] < paid["number"]


@pytest.mark.parametrize(
    ("level", "query", "names"),
    [
        ("all", "?event=executed", {"look", "pay"}),
        ("side_effects", "?event=executed", {"pay"}),
        ("off", "?event=executed", set()),
    ],
)
async def test_the_levels(level: AuditLevel, query: str, names: set[str]):
    assert {entry["name"] for entry in await entries(Settings(audit=level), query)} == names


async def test_pages_and_filters():
    everything = await entries(Settings())
    assert await entries(Settings(), "?tool=look&limit=1000") != []
    assert {entry.get("name") or entry["tool"] for entry in await entries(Settings(), "?tool=pay")} == {"pay"}
    assert len(await entries(Settings(), "?limit=2")) == 2
    assert len(await entries(Settings(), "?after=2")) == len(everything) - 2
    async with http(create_app({"m": FakeModel()}, tools=desk())) as client:
        assert (await client.get("/v1/audit?limit=0")).status_code == 400
        assert (await client.get("/v1/audit?after=x")).status_code == 400


class Away(SqliteStore):
    """A store that is unreachable for a while."""

    away = True

    async def append(self, *entries: Json) -> int:
        if self.away:
            raise StoreUnavailable("it is unreachable")
        return await super().append(*entries)


async def test_what_a_store_that_is_away_does_not_take_is_written_when_it_is_back():
    store = Away()
    log = AuditLog(store)
    for number in range(3):
        await log(Execution(f"e{number}", "capability", "rag.query", "", 1.0, outcome="ok"))
    with pytest.raises(StoreUnavailable):
        await log.flush()
    with pytest.raises(StoreUnavailable):
        await log(Execution("e4", "tool", "pay", "", 1.0, side_effects=True))
    store.away = False
    await asyncio.sleep(1.2)
    assert [record.data["id"] for record in await store.audit()] == ["e0", "e1", "e2"]
    await log.close()


PROGRAM = """
import asyncio, sys, time
from callsmith import Functions, tool
from callsmith.core.values import Call
from callsmith.core.ports import Context
from callsmith.server.store.audit_log import AuditLog
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.wrap import Audited

@tool(side_effects=True)
def pay(euros: int) -> str:
    print("paying", flush=True)
    time.sleep(60)

async def main():
    tools = Audited(Functions(pay), AuditLog(SqliteStore(sys.argv[1])))
    async for _ in tools.call(Call("pay", {"euros": 5}, "c1"), Context(subject="ada")):
        pass

asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
async def test_what_a_killed_server_was_doing_is_on_record(tmp_path: Path):
    file = str(tmp_path / "audit.db")
    with subprocess.Popen([sys.executable, "-c", PROGRAM, file], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "paying\n"
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    records: list[Any] = [record.data for record in await SqliteStore(file).audit()]
    assert [(record["event"], record["name"], record["subject"]) for record in records] == [("started", "pay", "ada")]
