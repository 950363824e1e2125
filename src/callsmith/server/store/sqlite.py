"""A store in a SQLite file, or in memory: `SqliteStore("callsmith.db")`. Several processes of one machine may share a file."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from callsmith.core.errors import StoreUnavailable
from callsmith.core.values import Json
from callsmith.server.store import (
    DEFAULT_LIMITS,
    AuditEntry,
    Document,
    PruningSchedule,
    Stale,
    StoreLimits,
    Watchers,
    encode,
)

T = TypeVar("T")

_LAYOUT_VERSION = 1  # of the tables; a file with another one is refused
_TABLES = """
    CREATE TABLE IF NOT EXISTS documents (
        kind TEXT NOT NULL, id TEXT NOT NULL, data TEXT NOT NULL, version INTEGER NOT NULL, written REAL NOT NULL, expires REAL,
        PRIMARY KEY (kind, id));
    CREATE INDEX IF NOT EXISTS documents_by_age ON documents (kind, written);
    CREATE INDEX IF NOT EXISTS documents_by_size ON documents (kind, written, length(CAST(data AS BLOB)));
    CREATE TABLE IF NOT EXISTS audit (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, data TEXT NOT NULL);
    CREATE TRIGGER IF NOT EXISTS audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is never changed'); END;
"""
_PROBE = "probe"  # kind and id of what `check` writes
# All but the latest that have so many bytes together.
_DELETE_BEYOND_BYTES = """
    DELETE FROM documents WHERE rowid IN (SELECT number FROM (
        SELECT rowid AS number, sum(length(CAST(data AS BLOB))) OVER (ORDER BY written DESC, rowid DESC) AS size
        FROM documents WHERE kind = ?) WHERE size > ?)
"""
_MAX_IDS = 500  # in one statement: SQLite limits them


class SqliteStore:
    """A store in a SQLite file, or in memory. One worker thread does all the work."""

    poll_seconds = 1.0

    def __init__(
        self, path: str = ":memory:", *, limits: StoreLimits = DEFAULT_LIMITS, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self.is_lasting = path != ":memory:"
        self._limits = limits
        self._clock = clock
        self._pruning = PruningSchedule(limits)
        self._watchers = Watchers()
        self.watch = self._watchers.watch
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="callsmith-store")
        try:
            self._connection = self._worker.submit(_open_database, path).result()
        except (sqlite3.Error, OSError) as error:
            self._worker.shutdown()
            raise StoreUnavailable(f"cannot open the store {path}: {error}", hint="Choose another file.") from error

    def close(self) -> None:
        """Finish pending work and close the file. The store cannot be used afterwards."""
        with suppress(RuntimeError):  # it is closed already
            self._worker.submit(self._connection.close)
        self._worker.shutdown()

    async def get(self, kind: str, *ids: str) -> dict[str, Document]:
        def work() -> dict[str, Document]:
            documents: dict[str, Document] = {}
            for chosen, names in _batches(ids):
                documents |= {document.id: document for document in self._select(kind, chosen, names)}
            return documents

        return await self._do(work) if ids else {}

    async def list(self, kind: str, *, after: str = "", limit: int = 100) -> tuple[Document, ...]:
        return await self._do(lambda: self._select(kind, "id > ? ORDER BY id LIMIT ?", (after, limit)))

    async def latest(self, kind: str, *, after: str = "", limit: int = 100) -> tuple[Document, ...]:
        behind = "(written, id) < (SELECT written, id FROM documents WHERE kind = ? AND id = ?)" if after else "1"
        condition, values = f"{behind} ORDER BY written DESC, id DESC LIMIT ?", (kind, after) if after else ()
        return await self._do(lambda: self._select(kind, condition, (*values, limit)))

    async def put(self, *documents: Document, durable: bool = False) -> None:
        texts = [encode(document.data) for document in documents]

        def work() -> None:
            with self._transaction(durable):
                for document, text in zip(documents, texts, strict=True):
                    self._write(document, text)
            self._prune(len(documents), sum(map(len, texts)))

        await self._do(work)
        self._watchers.notify(*(document.id for document in documents))

    async def delete(self, kind: str, *ids: str) -> int:
        def work() -> int:
            with self._transaction(durable=True):  # deleted documents never come back
                return sum(
                    self._connection.execute(f"DELETE FROM documents WHERE kind = ? AND {chosen}", (kind, *names)).rowcount
                    for chosen, names in _batches(ids)
                )

        deleted = await self._do(work)
        self._watchers.notify(*ids)
        return deleted

    async def append(self, *entries: Json) -> int:
        texts, insert = [encode(entry) for entry in entries], "INSERT INTO audit (at, data) VALUES (?, ?)"

        def work() -> int:
            with self._transaction(durable=True):
                numbers = [self._connection.execute(insert, (self._clock(), text)).lastrowid or 0 for text in texts]
            self._prune(len(texts), 0)
            return max(numbers, default=0)

        return await self._do(work)

    async def audit(self, *, after: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        def work() -> tuple[AuditEntry, ...]:
            rows = self._connection.execute(
                "SELECT number, at, data FROM audit WHERE number > ? ORDER BY number LIMIT ?", (after, limit)
            )
            return tuple(AuditEntry(number, at, json.loads(data)) for number, at, data in rows)

        return await self._do(work)

    async def check(self) -> None:
        probe = Document(_PROBE, _PROBE, None)

        def work() -> None:
            with self._transaction(durable=True):
                self._write(probe, encode(self._clock()))
            if self._path != ":memory:":  # another connection has nothing in its cache: it sees what became of the file
                with closing(sqlite3.connect(f"{Path(self._path).absolute().as_uri()}?mode=rw", uri=True, timeout=1)) as other:
                    row = other.execute("SELECT data FROM documents WHERE kind = ? AND id = ?", (_PROBE, _PROBE)).fetchone()
                    if row is None:
                        raise sqlite3.DatabaseError("what was written is not in the file")

        await self._do(work)

    async def ensure(self) -> None:
        """A file does not go away for a while: what fails, fails when it is used."""

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the store failed: {error}", hint="Is the disk full?") from error

    def _select(self, kind: str, condition: str, values: Sequence[str | int]) -> tuple[Document, ...]:
        rows = self._connection.execute(
            "SELECT id, data, version, expires FROM documents WHERE kind = ?"
            f" AND (expires IS NULL OR expires > ?) AND written > ? AND {condition}",
            (kind, self._clock(), self._oldest(), *values),
        )
        return tuple(Document(kind, id, json.loads(data), version, expires) for id, data, version, expires in rows)

    def _oldest(self) -> float:
        """The time before which documents are too old."""
        return -1.0 if self._limits.age is None else self._clock() - self._limits.age

    def _write(self, document: Document, text: str) -> None:
        known = (document.kind, document.id)
        row = self._connection.execute("SELECT version FROM documents WHERE kind = ? AND id = ?", known).fetchone()
        current: int = row[0] if row else 0
        if document.version is not None and document.version != current:
            raise Stale(document, current)
        self._connection.execute(
            "INSERT OR REPLACE INTO documents (kind, id, data, version, written, expires) VALUES (?, ?, ?, ?, ?, ?)",
            (*known, text, current + 1, self._clock(), document.expires),
        )

    @contextmanager
    def _transaction(self, durable: bool) -> Generator[None, None, None]:
        """Run the block in a transaction; `durable`: it is on disk when the block ends."""
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            self._connection.rollback()  # if it is still open: SQLite may have ended it by itself

    def _prune(self, writes: int, size: int) -> None:
        """From time to time, delete what is too old or too much."""
        limits = self._limits
        if not self._pruning.is_due(writes, size):
            return
        with self._transaction(durable=False):
            self._connection.execute("DELETE FROM documents WHERE expires <= ? OR written <= ?", (self._clock(), self._oldest()))
            for kind, count in self._connection.execute("SELECT kind, count(*) FROM documents GROUP BY kind").fetchall():
                self._connection.execute(
                    "DELETE FROM documents WHERE rowid IN"
                    " (SELECT rowid FROM documents WHERE kind = ? ORDER BY written, rowid LIMIT ?)",
                    (kind, max(0, count - limits.documents)),
                )
                self._connection.execute(_DELETE_BEYOND_BYTES, (kind, limits.bytes))
            self._connection.execute("DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?", (limits.entries,))


def _open_database(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout not in (0, _LAYOUT_VERSION):
            raise sqlite3.DatabaseError(f"its layout is version {layout}, and only {_LAYOUT_VERSION} is known here")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version = {_LAYOUT_VERSION}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _batches(ids: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """SQL conditions that select these ids in batches, each with its ids."""
    batches = [tuple(ids[start : start + _MAX_IDS]) for start in range(0, len(ids), _MAX_IDS)]
    return [(f"id IN ({', '.join('?' * len(names))})", names) for names in batches]
