"""Waiting for documents to change: woken at once inside a process, by polling across processes."""

import asyncio
from pathlib import Path

import pytest

from callsmith.core.approval import Approved
from callsmith.core.errors import StoreUnavailable
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.store import Document, leases
from callsmith.server.store.leases import wait_until
from callsmith.server.store.sqlite import SqliteStore
from tests.server.approvals.shop import pending
from tests.waiting import until


def decided(approvals: Approvals, looks: list[str]):
    async def check() -> str | None:
        looks.append("look")
        stored = (await approvals.get("confirm_1"))["confirm_1"]
        return stored.status if stored.decision else None

    return check


async def test_a_decision_in_the_same_process_wakes_whoever_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SqliteStore, "poll_seconds", 3600.0)  # nobody would see it by looking now and then
    approvals, looks = Approvals(SqliteStore()), list[str]()
    approval = await pending(approvals)
    waiting = asyncio.create_task(wait_until(approvals.store, ["confirm_1"], decided(approvals, looks)))
    while not looks:
        await asyncio.sleep(0)
    await approvals.decide(approval, Approved())
    assert await asyncio.wait_for(waiting, 30) == "approved"
    assert len(looks) == 2


async def test_a_decision_of_another_process_is_found_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SqliteStore, "poll_seconds", 0.01)
    here, there = Approvals(SqliteStore(str(tmp_path / "s.db"))), Approvals(SqliteStore(str(tmp_path / "s.db")))
    approval, looks = await pending(here), list[str]()
    waiting = asyncio.create_task(wait_until(here.store, ["confirm_1"], decided(here, looks)))
    while not looks:
        await asyncio.sleep(0)
    await there.decide(approval, Approved())
    assert await asyncio.wait_for(waiting, 30) == "approved"


async def test_an_outage_ends_nobody_s_waiting(monkeypatch: pytest.MonkeyPatch):
    class Unsteady(SqliteStore):
        is_unreachable = False

        async def get(self, kind: str, *ids: str) -> dict[str, Document]:
            if self.is_unreachable:
                raise StoreUnavailable("the database is unreachable")
            return await super().get(kind, *ids)

    monkeypatch.setattr(SqliteStore, "poll_seconds", 0.01)
    store, looks = Unsteady(), list[str]()
    approvals = Approvals(store)
    approval = await pending(approvals)
    waiting = asyncio.create_task(wait_until(approvals.store, ["confirm_1"], decided(approvals, looks)))
    await until(lambda: looks)
    store.is_unreachable = True
    before = len(looks)
    await until(lambda: len(looks) > before + 2)
    store.is_unreachable = False
    await approvals.decide(approval, Approved())
    assert await asyncio.wait_for(waiting, 30) == "approved"


async def test_a_store_that_stays_unreachable_ends_the_waiting(monkeypatch: pytest.MonkeyPatch):
    async def check() -> None:
        raise StoreUnavailable("the database is unreachable")

    monkeypatch.setattr(leases, "OUTAGE_SECONDS", 0.05)
    monkeypatch.setattr(SqliteStore, "poll_seconds", 0.01)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(wait_until(SqliteStore(), ["confirm_1"], check), 30)
