"""The store in PostgreSQL: the contract of all stores on a real server, several processes, and a server that goes away."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from callsmith.core.approval import Approved
from callsmith.core.errors import StoreUnavailable
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.store import Document, Stale
from callsmith.server.store.leases import wait_until
from callsmith.server.store.postgres import PostgresStore, database
from callsmith.server.store.postgres import store as store_module
from tests.postgres import Database, running_database
from tests.server.approvals.shop import pending
from tests.server.store.contract import Open, StoreContract
from tests.waiting import until

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with running_database() as running:
        yield running


@pytest.fixture
def url(server: Database) -> str:
    return server.schema_url()


@pytest.fixture
def open(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens stores that prune as often as they should, however slow the machine is."""
    monkeypatch.setattr("callsmith.server.store.postgres.store._SLOW", 60.0)
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(closing(PostgresStore(url, **options)))


class TestPostgres(StoreContract):
    pass


async def test_the_audit_is_never_changed(open: Open, server: Database, url: str):
    await open().append({"did": "ask"})
    with pytest.raises(subprocess.CalledProcessError):
        server.sql(f"SET search_path = {url.rpartition('=')[2]}", "UPDATE callsmith_audit SET data = '{}'")


async def test_audit_entries_of_many_processes_are_numbered_in_the_order_in_which_they_can_be_read(open: Open):
    stores, seen = [open() for _ in range(3)], list[int]()

    async def read() -> None:
        while len(seen) < 60:
            seen.extend([entry.number for entry in await stores[0].audit(after=seen[-1] if seen else 0)])

    reading = asyncio.create_task(read())
    await asyncio.gather(*(stores[number % 3].append(number) for number in range(60)))
    await asyncio.wait_for(reading, 60)
    assert seen == list(range(1, 61))


async def test_many_who_start_at_once_make_the_tables_once(open: Open):
    stores = [open() for _ in range(8)]
    await asyncio.gather(*(store.put(Document("a", str(number), number)) for number, store in enumerate(stores)))
    assert len(await stores[0].list("a")) == 8


async def test_tables_of_an_older_layout_are_upgraded_once_by_many_who_start_at_once(
    open: Open, server: Database, url: str, monkeypatch: pytest.MonkeyPatch
):
    old = open()
    await old.put(Document("a", "1", "stays"))
    monkeypatch.setattr(
        store_module, "LAYOUTS", (*store_module.LAYOUTS, "ALTER TABLE callsmith_documents ADD COLUMN more integer")
    )
    stores = [open() for _ in range(6)]
    results = await asyncio.gather(*(store.get("a", "1") for store in stores))
    assert [item["1"].data for item in results] == ["stays"] * 6
    schema = url.rpartition("=")[2]
    assert server.sql(f"SELECT string_agg(version::text, ' ') FROM {schema}.callsmith_layout") == "1 2"
    await old.put(Document("a", "2", "an older server still works"))


async def test_tables_of_a_newer_layout_are_left_alone(open: Open, server: Database, url: str):
    await open().check()
    server.sql(f"INSERT INTO {url.rpartition('=')[2]}.callsmith_layout VALUES (99)")
    with pytest.raises(StoreUnavailable, match="version 99, and only 1 is known here"):
        open().open()


async def test_a_role_that_may_not_create_tables_can_use_them(open: Open, server: Database, url: str):
    await open().check()
    role, schema = f"r{time.monotonic_ns()}", url.rpartition("=")[2]
    server.sql(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    with closing(PostgresStore(url.replace("tester@", f"{role}@"))) as store:
        store.open()
        await store.put(Document("a", "1", 1, version=0))
        assert await store.append("x") == 1


def test_a_database_that_refuses_is_an_error_at_once_and_says_why(server: Database):
    with (
        closing(PostgresStore(server.url.replace("/postgres", "/nowhere"))) as store,
        pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'),
    ):
        store.open()


async def test_one_that_is_not_there_yet_is_waited_for(server: Database, caplog: pytest.LogCaptureFixture):
    with closing(PostgresStore("postgresql://tester@127.0.0.1:9/postgres")) as store:
        store.open()
        with pytest.raises(StoreUnavailable, match="the store is unreachable"):
            await store.get("a", "1")
    assert caplog.records[0].message.startswith("the store is unreachable: ")


# --- several processes --------------------------------------------------------------------------------------------------------


async def test_a_decision_in_another_process_wakes_whoever_waits(open: Open, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PostgresStore, "poll_seconds", 3600.0)  # nobody would see it by looking now and then
    here, there, looks = Approvals(open()), Approvals(open()), list[int]()
    approval = await pending(here)

    async def check() -> str | None:
        looks.append(1)
        stored = (await here.get("confirm_1"))["confirm_1"]
        return stored.status if stored.decision else None

    waiting = asyncio.create_task(wait_until(here.store, ["confirm_1"], check))
    await until(lambda: len(looks) >= 2)  # it listens
    await there.decide(approval, Approved())
    assert await asyncio.wait_for(waiting, 30) == "approved"


async def test_a_lease_does_not_depend_on_the_clocks_of_the_processes(open: Open, monkeypatch: pytest.MonkeyPatch):
    here, there, clock = Approvals(open()), Approvals(open()), time.time
    async with here.leases.take("run_1") as mine:
        monkeypatch.setattr(time, "time", lambda: clock() + 3600)  # the other one is an hour ahead
        async with there.leases.take("run_1") as theirs:
            assert (mine, theirs) == (True, False)


PROGRAM = """
import asyncio, sys
from callsmith.server.store import Document
from callsmith.server.store.postgres import PostgresStore

async def main():
    store, number = PostgresStore(sys.argv[1]), 0
    while True:
        number += 1
        await store.put(Document("left", str(number), {"n": number}), Document("right", str(number), {"n": number}, version=0))
        await store.append({"n": number})
        print(number, flush=True)

asyncio.run(main())
"""


async def test_after_a_kill_all_that_was_acknowledged_is_there_and_nothing_is_half_written(open: Open, url: str):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 50:
                process.kill()
                break
        acknowledged = max([int(line), *map(int, process.stdout.read().split())])
    store = open()
    left, right = await store.list("left", limit=10_000), await store.list("right", limit=10_000)
    assert {document.id for document in left} == {document.id for document in right}
    assert {str(number) for number in range(1, acknowledged + 1)} <= {document.id for document in left}
    entries = [entry.data["n"] for entry in await store.audit(limit=10_000)]
    assert entries == list(range(1, len(entries) + 1))
    assert len(entries) >= acknowledged


# --- a database that goes away ------------------------------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[Database]:
    """A server that a test may stop."""
    with running_database() as running:
        yield running


async def back(store: Any) -> None:
    """Wait until the store works again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.check()
            except StoreUnavailable:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_one_that_is_stopped_or_killed_is_away_until_it_is_back(own: Database, way: str, caplog: pytest.LogCaptureFixture):
    with closing(PostgresStore(own.url)) as store:
        await store.put(Document("a", "1", "before"))
        number = await store.append("before")
        getattr(own, way)()
        for _ in range(20):  # one by one, and at once
            with pytest.raises(StoreUnavailable) as away:
                await store.get("a", "1")
        outcomes = await asyncio.gather(*(store.put(Document("a", "2", n, version=0)) for n in range(50)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        assert away.value.message == "the store is unreachable"  # addresses and names are not for clients
        with pytest.raises(StoreUnavailable):
            await store.ensure()
        own.start()
        await back(store)
        await store.ensure()
        assert (await store.get("a", "1", "2")) == {"1": Document("a", "1", "before", 1)}
        assert await store.append("behind") > number
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the store is unreachable",
        "the store is reachable again",
    ]


async def test_one_that_hangs_is_away_within_its_deadline(own: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "WORK_SECONDS", 0.5)
    with closing(PostgresStore(own.url)) as store:
        await store.put(Document("a", "1", "before"))
        with own.hung():
            outcomes = await asyncio.gather(*(store.get("a", "1") for _ in range(20)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        await back(store)
        assert (await store.get("a", "1"))["1"].data == "before"


async def test_writers_go_on_when_it_is_back_and_no_version_is_written_twice(own: Database):
    """A counter that is increased by compare-and-set while the database is killed: nothing acknowledged is lost or done twice."""
    increased, attempts = 0, 0
    with closing(PostgresStore(own.url)) as first, closing(PostgresStore(own.url)) as other:
        await first.put(Document("a", "counter", 0))

        async def count(store: PostgresStore) -> None:
            nonlocal increased, attempts
            while increased < 300:
                try:
                    now = (await store.get("a", "counter"))["counter"]
                    attempts += 1
                    await store.put(Document("a", "counter", now.data + 1, version=now.version))
                    increased += 1
                except Stale:
                    pass
                except StoreUnavailable:
                    await asyncio.sleep(0.05)

        counting = asyncio.gather(*(count(store) for store in (first, other) * 2))
        for at in (60, 150, 240):
            await until(lambda at=at: increased > at)
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
        await asyncio.wait_for(counting, 60)
        stored = (await first.get("a", "counter"))["counter"]
    assert stored.version == stored.data + 1
    assert increased <= stored.data <= attempts  # more than was acknowledged only where the acknowledgement was lost


async def test_who_listens_does_so_again_when_it_is_back(own: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PostgresStore, "poll_seconds", 3600.0)
    with closing(PostgresStore(own.url)) as here, closing(PostgresStore(own.url)) as there:
        await here.check()
        with here.watch("1") as changed:
            await asyncio.wait_for(changed.wait(), 30)  # it listens
            changed.clear()
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            await asyncio.wait_for(changed.wait(), 30)  # it listens again, and looks
            changed.clear()
            await back(there)
            await there.put(Document("a", "1", None, version=0))
            await asyncio.wait_for(changed.wait(), 30)
