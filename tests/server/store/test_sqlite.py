"""The store in SQLite: the contract of all stores, and what survives a kill -9, a full disk and other files."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.server.store import Document
from callsmith.server.store.sqlite import SqliteStore
from tests.server.store.contract import Open, StoreContract

PROGRAM = """
import asyncio, sys
from callsmith.server.store import Document
from callsmith.server.store.sqlite import SqliteStore

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


class TestSqlite(StoreContract):
    @pytest.fixture
    def open(self, tmp_path: Path) -> Iterator[Open]:
        with ExitStack() as opened:
            path = str(tmp_path / "store.db")
            yield lambda **options: opened.enter_context(closing(SqliteStore(path, **options)))


async def test_the_audit_is_never_changed(tmp_path: Path):
    store = SqliteStore(str(tmp_path / "store.db"))
    await store.append({"did": "ask"})
    store.close()
    with sqlite3.connect(tmp_path / "store.db") as database, pytest.raises(sqlite3.IntegrityError, match="never changed"):
        database.execute("UPDATE audit SET data = '{}'")


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
        return any("synchronous = FULL" in statement for statement in statements)

    assert await written(store.put(Document("a", "1", "x"), durable=True))
    assert not await written(store.put(Document("a", "2", "x")))
    assert await written(store.append({"event": "decided"}))
    assert await written(store.delete("a", "1"))
    store.close()
