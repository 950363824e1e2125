"""PostgreSQL under faults: requests fail clearly and soon, go on by themselves, and nothing that was acknowledged is lost."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import httpx2
import pytest

from callsmith.server.app import create_app
from callsmith.server.store import Document
from callsmith.server.store.postgres import PostgresStore, database
from tests.fakes import FakeModel
from tests.postgres import Database, running_database
from tests.server.asking import HI, http, says

pytestmark = pytest.mark.postgres

MOST = 8.0  # seconds that a request may take to fail: the store's patience of 5, and a busy machine
OURS = "FROM pg_stat_activity WHERE application_name = 'callsmith'"


@pytest.fixture
def own() -> Iterator[Database]:
    """A server that a test may stop."""
    with running_database() as running:
        yield running


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    with closing(PostgresStore(url)) as store:
        async with http(create_app({"m": FakeModel(*[says("Hello.")] * 1000)}, store=store)) as asking:
            yield asking


async def respond(asking: httpx2.AsyncClient) -> str:
    """Have a response stored: its id, or nothing where that failed as it has to."""
    began = time.monotonic()
    answer = await asking.post("/v1/responses", json={"model": "m", "input": "hi"})
    assert time.monotonic() - began < MOST
    if answer.status_code == 200:
        return answer.json()["id"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable"), answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert "127.0.0.1" not in answer.text and "tester" not in answer.text
    return ""


async def all_there(asking: httpx2.AsyncClient, ids: set[str]) -> None:
    for id in ids - {""}:
        response = await asking.get(f"/v1/responses/{id}")
        assert (response.status_code, response.json()["status"]) == (200, "completed")


@contextmanager
def never_blocked() -> Iterator[None]:
    """The event loop goes on all the time."""
    longest, last = 0.0, time.monotonic()

    async def beat() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
    assert longest < 0.5


async def works(asking: httpx2.AsyncClient) -> None:
    """Wait until what has to be stored is."""
    async with asyncio.timeout(20):
        while not await respond(asking):
            await asyncio.sleep(0.2)


async def test_connections_lost_in_the_middle_of_statements(own: Database):
    ids, over = set[str](), False

    async def ask() -> None:
        while not over:
            ids.add(await respond(asking))

    async with serving(own.url) as asking:
        await works(asking)
        with never_blocked():
            tasks = [asyncio.create_task(ask()) for _ in range(6)]
            for _ in range(15):
                await asyncio.sleep(0.1)
                await asyncio.to_thread(own.sql, f"SELECT pg_terminate_backend(pid) {OURS}")
            over = True
            await asyncio.gather(*tasks)
        assert len(ids) > 15
        await works(asking)
        await all_there(asking, ids)


async def test_a_server_that_is_restarted_between_requests_is_not_noticed(own: Database):
    async with serving(own.url) as asking:
        ids = {await respond(asking) for _ in range(3)}
        for way in (own.stop, own.kill):
            await asyncio.to_thread(way)
            await asyncio.to_thread(own.start)
            ids |= set(await asyncio.gather(*(respond(asking) for _ in range(12))))
        assert "" not in ids
        await all_there(asking, ids)


async def test_a_server_that_is_gone_for_good(own: Database):
    async with serving(own.url) as asking:
        await respond(asking)
        await asyncio.to_thread(own.kill)
        with never_blocked():
            assert set(await asyncio.gather(*(respond(asking) for _ in range(60)))) == {""}
            began = time.monotonic()
            chat = await asking.post("/v1/chat/completions", json={"model": "m", "messages": HI})
            health = await asking.get("/health")
            ready = await asking.get("/ready")
        assert time.monotonic() - began < 3
        assert (chat.status_code, health.json()["status"], ready.status_code) == (200, "degraded", 503)


@contextmanager
def locked(own: Database) -> Iterator[None]:
    """Somebody has locked the tables: every statement hangs until they let go."""
    statements = "BEGIN; LOCK TABLE callsmith_documents, callsmith_audit; SELECT 'locked';\n"
    command = ["psql", "-qAtX", own.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as held:
        assert held.stdin is not None and held.stdout is not None
        held.stdin.write(statements)
        held.stdin.flush()
        assert held.stdout.readline().strip() == "locked"
        try:
            yield
        finally:
            held.stdin.close()  # it ends, and its transaction with it


async def test_statements_that_hang_fail_in_time_and_leave_nothing_behind_in_the_database(
    own: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "WORK_SECONDS", 1.0)
    async with serving(own.url) as asking:
        ids = {await respond(asking)}
        with locked(own), never_blocked():
            for _ in range(4):
                assert set(await asyncio.gather(*(respond(asking) for _ in range(16)))) == {""}
            began = time.monotonic()
            assert (await asking.get("/health")).json()["status"] == "degraded"
            assert time.monotonic() - began < 3
            await asyncio.sleep(1.5)
            assert int(own.sql(f"SELECT count(*) {OURS} AND state = 'active' AND query NOT LIKE 'LISTEN%'")) == 0
        await works(asking)
        await all_there(asking, ids)


REASONS = {"locked": "it did not answer in time", "hung": "it did not answer in time", "cut off": "terminating connection"}


@pytest.mark.parametrize("how", REASONS)
async def test_the_log_says_why_it_is_unreachable_and_not_what_the_driver_makes_of_it(
    own: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
):
    monkeypatch.setattr(database, "WORK_SECONDS", 1.0)
    with closing(PostgresStore(own.url)) as store:
        await store.put(Document("a", "1", "before"))
        with own.hung() if how == "hung" else locked(own):
            writing = [asyncio.create_task(store.put(Document("a", str(number), "later"))) for number in range(4)]
            await asyncio.sleep(0.3)
            if how == "cut off":
                await asyncio.to_thread(own.sql, f"SELECT pg_terminate_backend(pid) {OURS}")
            outcomes: list[Any] = await asyncio.gather(*writing, return_exceptions=True)
    assert {type(outcome).__name__ for outcome in outcomes} == {"StoreUnavailable"}
    told = [record.getMessage() for record in caplog.records] + [outcome.hint for outcome in outcomes]
    assert len(told) == 5
    assert [text for text in told if REASONS[how] not in text] == []


async def test_a_write_that_was_refused_is_not_done_later(own: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "WORK_SECONDS", 1.0)
    with closing(PostgresStore(own.url)) as store:
        await store.put(Document("a", "1", "before"))
        with locked(own):
            outcomes: list[Any] = await asyncio.gather(
                store.put(Document("a", "1", "later")), store.delete("a", "1"), store.append("late"), return_exceptions=True
            )
            assert [type(outcome).__name__ for outcome in outcomes] == ["StoreUnavailable"] * 3
            await asyncio.sleep(1.5)
        await asyncio.sleep(0.5)
        assert (await store.get("a", "1"))["1"] == Document("a", "1", "before", 1)
        assert await store.audit() == ()
