"""Leases on paused runs: one process at a time, and none for ever."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.approval import Approved
from callsmith.core.errors import StoreUnavailable
from callsmith.server.app import create_app
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.store import Document, Stale
from callsmith.server.store import leases as module
from callsmith.server.store.sqlite import SqliteStore
from tests.conftest import Clock
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, Shop, asked, pending
from tests.server.asking import calls, http
from tests.waiting import until


async def test_the_lease_on_a_run_is_waited_for_and_taken_when_it_is_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SqliteStore, "poll_seconds", 3600.0)
    approvals = Approvals(SqliteStore())
    await pending(approvals)
    async with AsyncExitStack() as leases:
        async with approvals.leases.take("run_1") as first:
            assert first
            waiting = asyncio.create_task(approvals.take_leases(["confirm_1"], leases))
            done, _ = await asyncio.wait({waiting}, timeout=0.05)
            assert not done
        assert await asyncio.wait_for(waiting, 30)
        assert await approvals.leases.is_taken("run_1")
    assert not await approvals.leases.is_taken("run_1")


async def test_nobody_waits_for_a_run_whose_call_somebody_else_is_running():
    approvals = Approvals(SqliteStore())
    approval = await approvals.decide(await pending(approvals), Approved())
    await approvals.write_one(approval.as_running())
    async with approvals.leases.take("run_1"), AsyncExitStack() as leases:
        assert not await approvals.take_leases(["confirm_1"], leases, unless_running=True)


async def test_a_lease_that_lapsed_and_is_anothers_is_not_taken_away_from_them(monkeypatch: pytest.MonkeyPatch):
    store = SqliteStore()
    late, other = Approvals(store), Approvals(store)
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.0)  # ours lapses at once, and is renewed too late
    monkeypatch.setattr(module.Leases, "_renew", lambda *_: asyncio.sleep(3600))
    async with AsyncExitStack() as others:
        async with late.leases.take("run_1") as first:
            monkeypatch.setattr(module, "LEASE_SECONDS", 1.0)
            second = await others.enter_async_context(other.leases.take("run_1"))
        assert (first, second, await other.leases.is_taken("run_1")) == (True, True, True)


async def test_a_run_is_held_by_one_and_a_hold_that_nobody_keeps_up_lapses(monkeypatch: pytest.MonkeyPatch, clock: Clock):
    class Counting(SqliteStore):
        puts = 0

        async def put(self, *documents: Any, durable: bool = False) -> None:
            await super().put(*documents, durable=durable)
            self.puts += 1

    monkeypatch.setattr(module, "LEASE_SECONDS", 0.3)
    store = Counting(clock=lambda: clock.now)
    approvals = Approvals(store)
    async with approvals.leases.take("r") as first, approvals.leases.take("r") as second, approvals.leases.take("other") as other:
        clock.advance(0.2)
        renewed = store.puts
        await until(lambda: store.puts >= renewed + 4)  # both leases, after the clock went on
        clock.advance(0.2)
        async with approvals.leases.take("r") as third:
            assert (first, second, third, other) == (True, False, False, True)
    async with approvals.leases.take("r") as again:
        assert again
    monkeypatch.setattr(module.Leases, "_renew", lambda *_: asyncio.sleep(60))
    async with approvals.leases.take("r"):
        clock.advance(0.4)
        async with approvals.leases.take("r") as lease:
            assert lease


async def test_whoever_lost_a_run_to_another_does_not_take_it_away_from_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.3)
    store = SqliteStore()
    approvals = Approvals(store)
    async with approvals.leases.take("r"):
        (lease,) = await store.list("held_run")
        await store.put(replace(lease, data="another's", version=None, expires=time.time() + 60))
        await asyncio.sleep(0.25)  # until the next time it would have been renewed
    assert [document.data for document in await store.list("held_run")] == ["another's"]


async def test_whoever_lost_a_run_to_another_writes_nothing_more_of_it():
    store = SqliteStore()
    approvals = Approvals(store)
    async with http(create_app({"m": FakeModel(calls(PAY))}, tools=Shop().tools, store=store)) as asking:
        await asked(asking)
    (document,) = await store.list("paused_run")
    paused = await approvals.get_run(document.id)
    assert paused is not None
    await approvals.write(paused)
    with pytest.raises(Stale):
        await approvals.write(paused)  # as it was before


async def test_two_who_want_the_same_runs_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Slow(SqliteStore):
        async def put(self, *documents: Document, durable: bool = False) -> None:
            await super().put(*documents, durable=durable)
            put.set()
            await asyncio.sleep(0.1)  # the other one is at it meanwhile

    async def resume(approvals: Approvals) -> bool:
        async with AsyncExitStack() as leases:
            return await approvals.take_leases(["confirm_1", "confirm_2"], leases)

    monkeypatch.setattr(SqliteStore, "poll_seconds", 0.01)
    put, path = asyncio.Event(), str(tmp_path / "store.db")
    slow, other = Approvals(Slow(path)), Approvals(SqliteStore(path))
    for id in ("confirm_1", "confirm_2"):
        await pending(other, id, f"run_of_{id}")
    first = asyncio.create_task(resume(slow))
    await put.wait()
    assert await asyncio.wait_for(asyncio.gather(first, resume(other)), 10) == [True, True]


async def test_a_renewal_that_fails_once_is_tried_again_and_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch):
    class Unsteady(SqliteStore):
        fails, renewed = True, 0

        async def put(self, *documents: Document, durable: bool = False) -> None:
            if documents[0].version and self.fails:
                self.fails = False
                raise StoreUnavailable("the disk is busy")
            await super().put(*documents, durable=durable)
            self.renewed += bool(documents[0].version)

    monkeypatch.setattr(module, "LEASE_SECONDS", 0.9)
    store = Unsteady()
    approvals = Approvals(store)
    async with approvals.leases.take("run_1") as first:
        await until(lambda: store.renewed)
        assert (first, store.fails, await approvals.leases.is_taken("run_1")) == (True, False, True)
