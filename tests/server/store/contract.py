"""What every store keeps: subclass `StoreContract`, give it `open`, and the tests below are yours."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.approval import Approved
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.jobs.job import Job, JobChanged, JobLimits
from callsmith.server.approvals.approvals import AlreadyAnswered, Approvals
from callsmith.server.jobs import StoredJobs
from callsmith.server.store import Document, Stale, Store, StoreLimits, leases
from tests.server.approvals.shop import pending

Open = Callable[..., Store]


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class StoreContract:
    """Give `open(**options)`: a store in one and the same place, empty at the beginning of a test, as a process opens it.

    What it opened is closed behind the test. Options are `limits` and `clock`.
    """

    @pytest.fixture
    def store(self, open: Open) -> Store:
        return open()

    async def test_what_is_put_is_found_under_its_kind_and_id_with_a_version(self, store: Store):
        await store.put(Document("a", "1", {"text": "naïve 東京 🐈", "n": None}), Document("b", "1", [1.5]))
        assert await store.get("a", "1", "2") == {"1": Document("a", "1", {"text": "naïve 東京 🐈", "n": None}, 1)}
        await store.put(Document("a", "1", "new"))
        assert (await store.get("a", "1"))["1"].version == 2
        assert (await store.get("b", "1"))["1"].data == [1.5]
        assert await store.get("a") == {}

    async def test_it_is_there_for_the_next_process(self, open: Open):
        first = open()
        await first.put(Document("a", "1", {"stored": True}))
        await first.append("done")
        first.close()
        second = open()
        assert (await second.get("a", "1"))["1"].data == {"stored": True}
        assert [entry.data for entry in await second.audit()] == ["done"]

    @pytest.mark.parametrize("data", [None, True, 0, -1.5e300, "", "\x00\x01", [[]], {"": {"\x00": "\\u0000"}}, 10**30])
    async def test_any_json_is_stored(self, store: Store, data: Any):
        await store.put(Document("a", "1", data))
        assert (await store.get("a", "1"))["1"].data == data

    async def test_half_a_surrogate_pair_is_stored(self, store: Store):
        half = chr(0xD83D)
        await store.put(Document("a", "1", {half: f"é {half}"}))
        await store.append(half)
        assert (await store.get("a", "1"))["1"].data == {half: f"é {half}"}
        assert [entry.data for entry in await store.audit()] == [half]

    async def test_the_latest_come_first_and_page_by_page(self, open: Open):
        clock = Clock()
        store = open(clock=clock)
        for id in ("b", "c", "a"):
            clock.now += 1
            await store.put(Document("x", id, id), Document("y", f"other {id}", 0))
        assert [document.data for document in await store.latest("x")] == ["a", "c", "b"]
        clock.now += 1
        await store.put(Document("x", "b", "written anew"), Document("x", "d", "at once"))
        assert [document.id for document in await store.latest("x")] == ["d", "b", "a", "c"]
        assert [document.id for document in await store.latest("x", limit=2)] == ["d", "b"]
        assert [document.id for document in await store.latest("x", after="d", limit=2)] == ["b", "a"]
        assert [document.id for document in await store.latest("x", after="a")] == ["c"]
        assert await store.latest("x", after="c") == await store.latest("x", after="gone") == await store.latest("z") == ()

    async def test_what_has_expired_is_not_among_the_latest(self, open: Open):
        clock = Clock()
        store = open(clock=clock)
        await store.put(Document("x", "a", 1, expires=1005), Document("x", "b", 2))
        clock.now = 1006
        assert [document.id for document in await store.latest("x")] == ["b"]

    @pytest.mark.parametrize("id", ["a\x00b", "\\x", "\\", "''; --", "é" * 5000, "東京"])
    async def test_whatever_a_client_calls_it_it_is_found_listed_and_deleted(self, store: Store, id: str):
        await store.put(Document("a", id, 1, version=0), Document("a", "z", 2))
        with pytest.raises(Stale):
            await store.put(Document("a", id, 3, version=0))
        assert (await store.get("a", id, "none"))[id].id == id
        assert {document.id for document in await store.list("a")} == {id, "z"}
        assert await store.delete("a", id) == 1
        assert list(await store.get("a", id, "z")) == ["z"]

    async def test_many_more_ids_than_a_statement_takes_are_found_and_deleted(self, store: Store):
        names = [f"{number:05}" for number in range(2000)]
        await store.put(*(Document("a", name, name) for name in names))
        assert sorted(await store.get("a", *names)) == names
        assert await store.delete("a", *names, "none") == 2000
        assert await store.list("a") == ()

    async def test_a_document_that_was_written_in_the_meantime_is_not_replaced(self, store: Store):
        await store.put(Document("a", "1", "first", version=0))
        with pytest.raises(Stale, match="a 1 is at version 1, not 0"):
            await store.put(Document("a", "2", "other"), Document("a", "1", "second", version=0))
        with pytest.raises(Stale, match="a 3 is at version 0, not 4"):
            await store.put(Document("a", "3", "none", version=4))
        await store.put(Document("a", "1", "third", version=1))
        assert [document.data for document in await store.list("a")] == ["third"]

    async def test_of_many_writers_of_the_same_version_one_wins(self, open: Open):
        stores = [open(), open()]  # as two processes would have it
        await stores[0].put(Document("a", "1", -1))
        for version in (1, 0):  # one that is there, and one that is not
            id = str(version)
            claims = [stores[number % 2].put(Document("a", id, number, version=version), durable=True) for number in range(20)]
            outcomes = await asyncio.gather(*claims, return_exceptions=True)
            assert sum(outcome is None for outcome in outcomes) == 1
            assert all(outcome is None or isinstance(outcome, Stale) for outcome in outcomes)

    async def test_writers_of_the_same_documents_in_any_order_do_not_block_each_other(self, open: Open):
        stores, names = [open(), open()], [str(number) for number in range(10)]
        puts = [
            stores[turn % 2].put(*(Document("a", name, turn) for name in (names if turn % 3 else reversed(names))))
            for turn in range(20)
        ]
        await asyncio.gather(*puts)
        documents = await stores[0].get("a", *names)
        assert {item.version for item in documents.values()} == {20}
        assert len({item.data for item in documents.values()}) == 1

    async def test_a_list_continues_after_an_id(self, store: Store):
        await store.put(*(Document("a", name, None) for name in ("c", "a", "B", "b", "d")))
        assert [document.id for document in await store.list("a", limit=3)] == ["B", "a", "b"]
        assert [document.id for document in await store.list("a", after="b")] == ["c", "d"]

    async def test_what_has_expired_is_not_found_and_is_then_deleted(self, open: Open):
        clock = Clock()
        store = open(limits=StoreLimits(documents=2, age=100), clock=clock)
        await store.put(Document("a", "short", 1, expires=1010), Document("a", "long", 2))
        assert {document.id: document.expires for document in await store.list("a")} == {"short": 1010.0, "long": None}
        clock.now = 1010
        assert set(await store.get("a", "short", "long")) == {"long"}
        clock.now = 1100
        assert await store.list("a") == ()
        await store.put(Document("a", "1", 1), Document("a", "2", 1))
        assert await store.delete("a", "short", "long") == 0

    async def test_what_has_expired_is_replaced_at_its_version_only(self, open: Open):
        clock = Clock()
        store = open(clock=clock)
        await store.put(Document("a", "1", "first", expires=1010))
        clock.now = 1011
        assert await store.get("a", "1") == {}
        with pytest.raises(Stale) as stale:
            await store.put(Document("a", "1", "second", version=0))
        await store.put(Document("a", "1", "second", version=stale.value.found))
        assert (await store.get("a", "1"))["1"].version == 2

    async def test_of_too_many_documents_the_oldest_of_that_kind_are_deleted(self, open: Open):
        clock = Clock()
        store = open(limits=StoreLimits(documents=3), clock=clock)
        await store.put(Document("other", "x", None))
        for number in range(20):
            clock.now += 1
            await store.put(Document("a", f"{number:02}", number))
        stored = [document.id for document in await store.list("a")]
        assert stored[-3:] == ["17", "18", "19"]
        assert len(stored) <= 6  # it is pruned now and then, not at every write
        assert await store.get("other", "x")

    async def test_of_too_many_bytes_the_oldest_of_that_kind_are_deleted(self, open: Open):
        clock = Clock()
        store = open(limits=StoreLimits(bytes=10_000), clock=clock)
        await store.put(Document("other", "x", "y" * 5000))
        for number in range(40):
            clock.now += 1
            await store.put(Document("a", f"{number:02}", "é" * 500))
        stored = [document.id for document in await store.list("a")]
        assert stored[-1] == "39"
        assert 9 <= len(stored) <= 13
        assert await store.get("other", "x")

    async def test_the_audit_is_numbered_and_read_in_order(self, open: Open):
        store = open(clock=Clock())
        assert [await store.append({"did": word}) for word in ("ask", "approve", "run")] == [1, 2, 3]
        first, *rest = await store.audit()
        assert (first.at, first.data) == (1000.0, {"did": "ask"})
        assert [entry.number for entry in rest] == [2, 3]
        assert [entry.data for entry in await store.audit(after=1, limit=1)] == [{"did": "approve"}]
        assert await store.append("several", "at", "once") == 6
        assert [(entry.number, entry.data) for entry in await store.audit(after=3)] == [(4, "several"), (5, "at"), (6, "once")]

    async def test_of_too_long_an_audit_log_the_oldest_entries_are_deleted(self, open: Open):
        store = open(limits=StoreLimits(entries=3))
        for number in range(1, 11):
            await store.append(number)
        numbers = [entry.number for entry in await store.audit()]
        assert numbers[-3:] == [8, 9, 10]
        assert len(numbers) <= 6

    async def test_whoever_watches_is_woken_by_a_write_and_by_a_deletion(self, store: Store):
        with store.watch("1", "2") as changed:
            await store.put(Document("a", "2", None))
            await asyncio.wait_for(changed.wait(), 10)
            await store.check()
            changed.clear()
            await store.delete("a", "1")
            await asyncio.wait_for(changed.wait(), 10)

    async def test_of_decisions_that_come_at_once_in_several_processes_one_counts(self, open: Open):
        here, there = Approvals(open()), Approvals(open())
        approval = await pending(here)
        decisions = [who.decide(approval, Approved({"euros": n})) for n, who in enumerate((here, there) * 4)]
        outcomes = await asyncio.gather(*decisions, return_exceptions=True)
        assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, AlreadyAnswered) for outcome in outcomes) == 7
        assert [entry.data["event"] for entry in await here.store.audit()] == ["decided"]

    async def test_a_job_is_one_process_s_at_a_time_and_another_notices_its_end(self, open: Open):
        here, there = (StoredJobs(open(), JobLimits()) for _ in range(2))
        new = Job("job_1", Call("draw", {"what": "a cat"}, "c1"), Tool("draw"), "ada", "talk", 1.0, decision=Approved(by="boss"))
        async with here.lease(new) as is_ours:
            job = await here.write(new)
            assert await there.get("ada", "job_1") == job
            assert (await there.get("", "job_1"), await there.list("bob")) == (None, [])
            async with there.lease(job) as is_theirs:
                assert (is_ours, is_theirs) == (True, False)
            waiting = asyncio.create_task(there.wait_for_end(job))
            ended = await here.write(replace(job, status="done", ended=time.time(), result=Result("c1", "draw", "cat.png")))
            assert await asyncio.wait_for(waiting, 20) == ended
        with pytest.raises(JobChanged):
            await there.write(replace(job, status="cancelled", ended=time.time()))
        await there.delete(ended)
        assert await here.wait_for_end(ended) is None

    async def test_a_lease_is_one_process_s_at_a_time_and_can_be_had_once_it_lapsed(
        self, open: Open, clock: Any, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(leases.Leases, "_renew", lambda *_: asyncio.sleep(3600))  # they are gone
        monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)
        here, there = (Approvals(open(clock=lambda: clock.now)) for _ in range(2))
        async with here.leases.take("run_1") as mine, there.leases.take("run_1") as theirs:
            assert (mine, theirs) == (True, False)
            clock.advance(11)
            async with there.leases.take("run_1") as later:
                assert later
        async with here.leases.take("run_1") as again:
            assert again

    async def test_a_store_that_works_says_so(self, store: Store):
        await store.check()
        await store.ensure()
