"""The server's store: documents with versions, limits, an audit log, and what survives a kill -9."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.server.store import Document, SqliteStore, Stale, Store, StoreLimits

PROGRAM = """
import asyncio, sys
from callsmith.server.store import Document, SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    number = 0
    while True:
        number += 1
        pair = [Document("left", str(number), {"n": number}), Document("right", str(number), {"n": number})]
        await store.put(*pair)
        await store.append({"n": number})
        print(number, flush=True)

asyncio.run(main())
"""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_what_is_put_is_found_under_its_kind_and_id_with_a_version():
    store: Store = SqliteStore()
    await store.put(Document("a", "1", {"text": "naïve 東京 🐈", "n": None}), Document("b", "1", [1.5]))
    assert await store.get("a", "1", "2") == {"1": Document("a", "1", {"text": "naïve 東京 🐈", "n": None}, 1)}
    await store.put(Document("a", "1", "new"))
    assert (await store.get("a", "1"))["1"].version == 2
    assert (await store.get("b", "1"))["1"].data == [1.5]
    assert await store.get("a") == {}


async def test_half_a_surrogate_pair_is_stored():
    store, half = SqliteStore(), chr(0xD83D)
    await store.put(Document("a", "1", {half: f"é {half}"}))
    await store.append(half)
    assert (await store.get("a", "1"))["1"].data == {half: f"é {half}"}
    assert [entry.data for entry in await store.audit()] == [half]


async def test_many_more_ids_than_a_statement_takes_are_found_and_deleted():
    store = SqliteStore()
    names = [f"{number:05}" for number in range(2000)]
    await store.put(*(Document("a", name, name) for name in names))
    assert list(await store.get("a", *names)) == names
    assert await store.delete("a", *names, "none") == 2000
    assert await store.list("a") == ()


async def test_a_document_that_was_written_in_the_meantime_is_not_replaced():
    store = SqliteStore()
    await store.put(Document("a", "1", "first", version=0))
    with pytest.raises(Stale, match="a 1 is at version 1, not 0"):
        await store.put(Document("a", "2", "other"), Document("a", "1", "second", version=0))
    await store.put(Document("a", "1", "third", version=1))
    assert [document.data for document in await store.list("a")] == ["third"]


async def test_of_many_writers_of_the_same_version_one_wins(tmp_path: Path):
    path = str(tmp_path / "store.db")
    stores = [SqliteStore(path), SqliteStore(path)]  # as two processes would have it
    await stores[0].put(Document("a", "1", -1))
    claims = [stores[number % 2].put(Document("a", "1", number, version=1), durable=True) for number in range(20)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 1
    assert all(outcome is None or isinstance(outcome, Stale) for outcome in outcomes)
    for store in stores:
        store.close()


async def test_a_list_continues_after_an_id():
    store = SqliteStore()
    await store.put(*(Document("a", name, None) for name in "cabd"))
    assert [document.id for document in await store.list("a", limit=2)] == ["a", "b"]
    assert [document.id for document in await store.list("a", after="b")] == ["c", "d"]


async def test_what_has_expired_is_not_found_and_is_then_deleted():
    clock = Clock()
    store = SqliteStore(limits=StoreLimits(documents=2, age=100), clock=clock)
    await store.put(Document("a", "short", 1, expires=1010), Document("a", "long", 2))
    assert set(await store.get("a", "short", "long")) == {"short", "long"}
    clock.now = 1010
    assert set(await store.get("a", "short", "long")) == {"long"}
    clock.now = 1100
    assert await store.list("a") == ()
    await store.put(Document("a", "1", 1), Document("a", "2", 1))
    assert await store.delete("a", "short", "long") == 0


async def test_of_too_many_documents_the_oldest_of_that_kind_are_deleted():
    clock = Clock()
    store = SqliteStore(limits=StoreLimits(documents=3), clock=clock)
    await store.put(Document("other", "x", None))
    for number in range(20):
        clock.now += 1
        await store.put(Document("a", f"{number:02}", number))
    stored = [document.id for document in await store.list("a")]
    assert stored[-3:] == ["17", "18", "19"]
    assert len(stored) <= 6  # it is pruned now and then, not at every write
    assert await store.get("other", "x")


async def test_the_audit_is_numbered_read_in_order_and_never_changed(tmp_path: Path):
    clock = Clock()
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    assert [await store.append({"did": word}) for word in ("ask", "approve", "run")] == [1, 2, 3]
    first, *rest = await store.audit()
    assert (first.at, first.data) == (1000.0, {"did": "ask"})
    assert [entry.number for entry in rest] == [2, 3]
    assert [entry.data for entry in await store.audit(after=1, limit=1)] == [{"did": "approve"}]
    store.close()
    with sqlite3.connect(tmp_path / "store.db") as database, pytest.raises(sqlite3.IntegrityError, match="never changed"):
        database.execute("UPDATE audit SET data = '{}'")


async def test_of_too_long_an_audit_log_the_oldest_entries_are_deleted():
    store = SqliteStore(limits=StoreLimits(entries=3))
    for number in range(1, 11):
        await store.append(number)
    numbers = [entry.number for entry in await store.audit()]
    assert numbers[-3:] == [8, 9, 10]
    assert len(numbers) <= 6


async def test_it_is_there_after_the_store_was_closed(tmp_path: Path):
    path = str(tmp_path / "store.db")
    store = SqliteStore(path)
    await store.put(Document("a", "1", {"kept": True}))
    store.close()
    assert (await SqliteStore(path).get("a", "1"))["1"].data == {"kept": True}


async def test_after_a_kill_all_that_was_acknowledged_is_there_and_nothing_is_half_written(tmp_path: Path):
    path = str(tmp_path / "store.db")
    with subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 50:
                process.kill()
                break
        acknowledged = max([int(line), *map(int, process.stdout.read().split())])
    assert process.returncode == -signal.SIGKILL
    store = SqliteStore(path)
    left, right = await store.list("left", limit=10_000), await store.list("right", limit=10_000)
    assert {document.id for document in left} == {document.id for document in right}
    assert {str(number) for number in range(1, acknowledged + 1)} <= {document.id for document in left}
    entries = [entry.data["n"] for entry in await store.audit(limit=10_000)]
    assert entries == list(range(1, len(entries) + 1))
    assert len(entries) >= acknowledged
    await store.put(Document("left", "again", None))
    store.close()


async def test_a_full_disk_is_an_error_and_the_store_works_again_once_there_is_room(tmp_path: Path):
    store, path = SqliteStore(str(tmp_path / "store.db")), tmp_path / "store.db"
    with sqlite3.connect(path) as database:  # SQLite itself ends a transaction for which there is no room
        database.execute("CREATE TRIGGER no BEFORE INSERT ON documents BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END")
    with pytest.raises(Unavailable, match="the disk is full"):
        await store.put(Document("a", "1", None))
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER no")
    await store.put(Document("a", "2", None))
    assert list(await store.get("a", "1", "2")) == ["2"]
    store.close()


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path):
    with pytest.raises(Unavailable, match="cannot open the store"):
        SqliteStore(str(tmp_path / "none" / "store.db"))
    (tmp_path / "no.db").write_text("this is no database, however long one looks at it" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        SqliteStore(str(tmp_path / "no.db"))


def test_a_file_of_another_layout_is_left_alone(tmp_path: Path):
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(Unavailable, match="its layout is version 99"):
        SqliteStore(str(path))


async def test_what_must_not_be_lost_is_on_disk_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SqliteStore(str(tmp_path / "store.db"))

    async def written(work: Awaitable[object]) -> bool:
        statements.clear()
        await work
        return any("synchronous = FULL" in one for one in statements)

    assert await written(store.put(Document("a", "1", "x"), durable=True))
    assert not await written(store.put(Document("a", "2", "x")))
    assert await written(store.append({"event": "decided"}))
    assert await written(store.delete("a", "1"))
    store.close()
