"""Waiting for documents to change: woken at once inside a process, by polling across processes."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.core.approval import Approved
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Call
from callsmith.server.approvals import approvals as module
from callsmith.server.approvals.approvals import Approval, Approvals
from callsmith.server.store import SqliteStore


async def pending(approvals: Approvals, id: str = "confirm_1", run: str = "run_1") -> Approval:
    return await approvals.write_one(approvals.new(ConfirmationNeeded(id, Call("pay", {}, "c1")), run, "", ""))


def decided(approvals: Approvals, looks: list[str]):
    async def check() -> str | None:
        looks.append("look")
        found = (await approvals.get("confirm_1"))["confirm_1"]
        return found.status if found.decision else None

    return check


async def test_a_decision_in_the_same_process_wakes_whoever_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 3600.0)  # nobody would see it by looking now and then
    approvals, looks = Approvals(SqliteStore()), list[str]()
    approval = await pending(approvals)
    waiting = asyncio.create_task(approvals.wait(["confirm_1"], decided(approvals, looks)))
    while not looks:
        await asyncio.sleep(0)
    await approvals.decide(approval, Approved())
    assert await asyncio.wait_for(waiting, 30) == "approved"
    assert len(looks) == 2


async def test_a_decision_of_another_process_is_found_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    here, there = Approvals(SqliteStore(str(tmp_path / "s.db"))), Approvals(SqliteStore(str(tmp_path / "s.db")))
    approval, looks = await pending(here), list[str]()
    waiting = asyncio.create_task(here.wait(["confirm_1"], decided(here, looks)))
    while not looks:
        await asyncio.sleep(0)
    await there.decide(approval, Approved())
    assert await asyncio.wait_for(waiting, 30) == "approved"


async def test_the_lease_on_a_run_is_waited_for_and_taken_when_it_is_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 3600.0)
    approvals = Approvals(SqliteStore())
    await pending(approvals)
    async with AsyncExitStack() as leases:
        async with approvals.lease("run_1") as first:
            assert first
            waiting = asyncio.create_task(approvals.take_leases(["confirm_1"], leases))
            done, _ = await asyncio.wait({waiting}, timeout=0.05)
            assert not done
        assert await asyncio.wait_for(waiting, 30)
        assert await approvals.is_leased("run_1")
    assert not await approvals.is_leased("run_1")


async def test_nobody_waits_for_a_run_whose_call_somebody_else_is_running():
    approvals = Approvals(SqliteStore())
    approval = await approvals.decide(await pending(approvals), Approved())
    await approvals.write_one(replace(approval, status="running"))
    async with approvals.lease("run_1"), AsyncExitStack() as leases:
        assert not await approvals.take_leases(["confirm_1"], leases, unless_running=True)


async def test_a_lease_that_lapsed_and_is_anothers_is_not_taken_away_from_them(monkeypatch: pytest.MonkeyPatch):
    store = SqliteStore()
    late, other = Approvals(store), Approvals(store)
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.0)  # ours lapses at once, and is renewed too late
    monkeypatch.setattr(Approvals, "_renew", lambda *_: asyncio.sleep(3600))
    async with AsyncExitStack() as held:
        async with late.lease("run_1") as first:
            monkeypatch.setattr(module, "LEASE_SECONDS", 3600.0)
            second = await held.enter_async_context(other.lease("run_1"))
        assert (first, second, await other.is_leased("run_1")) == (True, True, True)
