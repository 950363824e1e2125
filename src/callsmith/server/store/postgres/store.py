"""The store in PostgreSQL. Documents are replaced at the version they were read at, in one transaction a `put`.

All times are those of the database's clock: servers whose clocks differ agree on when a lease lapses. Every commit is as durable
as the database is set up to make it, `durable` or not.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from math import inf
from secrets import token_hex
from typing import Any

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
from callsmith.server.store.postgres.database import Database, Notices, UnfitDatabase, mark

# Keys of advisory locks: for the tables, for numbers of audit entries in the order of their commits, and for pruning.
LAYOUT_LOCK, AUDIT_LOCK, PRUNING_LOCK = 0x63616C6C736D01, 0x63616C6C736D02, 0x63616C6C736D03

# One script a version of the layout: tables of an older one are upgraded by those behind it. Servers of the version before still
# run while that is done, so that a script may add, and may not take away what they use.
#
# `key` is the id of a document, or a hash of an id that PostgreSQL does not take as a key; then `id` has it as JSON.
LAYOUTS = (
    """
    CREATE TABLE callsmith_documents (
        kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, id text, data text NOT NULL, version bigint NOT NULL,
        written double precision NOT NULL, expires double precision, PRIMARY KEY (kind, key));
    CREATE INDEX callsmith_documents_by_age ON callsmith_documents (kind, written);
    CREATE INDEX callsmith_documents_written ON callsmith_documents (written);
    CREATE INDEX callsmith_documents_expiring ON callsmith_documents (expires) WHERE expires IS NOT NULL;
    CREATE TABLE callsmith_audit (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at double precision NOT NULL, data text NOT NULL);
    CREATE FUNCTION callsmith_audit_stays() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit is never changed'; END $$;
    CREATE TRIGGER callsmith_audit_stays BEFORE UPDATE ON callsmith_audit
        FOR EACH ROW EXECUTE FUNCTION callsmith_audit_stays();
    """,
)

_log = logging.getLogger(__name__)

_PROBE = "probe"  # kind and id of what `check` writes
_LONGEST_KEY = 1000  # bytes: an entry of an index may not have many more
_SLOW = 0.05  # seconds; a pruning that takes longer is not repeated before twenty times that

_NOW = "coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8)"
_SELECT = f"""
    SELECT key, id, data, version, expires - {_NOW} AS lasts FROM callsmith_documents
    WHERE kind = $2 AND (expires IS NULL OR expires > {_NOW}) AND written > {_NOW} - $3
"""
_GET = f"{_SELECT} AND key = ANY($4::text[])"
_LIST = f"{_SELECT} AND key > $4 ORDER BY key LIMIT $5"
_LATEST = f"{_SELECT} ORDER BY written DESC, key DESC LIMIT $4"
_LATEST_BEHIND = f"""{_SELECT}
    AND (written, key) < (SELECT written, key FROM callsmith_documents WHERE kind = $2 AND key = $5)
    ORDER BY written DESC, key DESC LIMIT $4
"""
_INSERT = f"""
    INSERT INTO callsmith_documents AS old (kind, key, id, data, version, written, expires)
    VALUES ($2, $3, $4, $5, 1, {_NOW}, {_NOW} + $6::float8) ON CONFLICT (kind, key)
"""
_PUT_ANY = f"""{_INSERT} DO UPDATE
    SET data = excluded.data, version = old.version + 1, written = excluded.written, expires = excluded.expires
"""
_PUT_NEW = f"{_INSERT} DO NOTHING RETURNING version"
_PUT_NEXT = f"""
    UPDATE callsmith_documents SET id = $4, data = $5, version = version + 1, written = {_NOW}, expires = {_NOW} + $6::float8
    WHERE kind = $2 AND key = $3 AND version = $7 RETURNING version
"""
_VERSION = "SELECT version FROM callsmith_documents WHERE kind = $1 AND key = $2"
# What others are just writing is left alone: nobody waits for anybody.
_DELETE_OLD = f"""
    DELETE FROM callsmith_documents WHERE (kind, key) IN (
        SELECT kind, key FROM callsmith_documents WHERE expires <= {_NOW} OR written <= {_NOW} - $2::float8
        FOR UPDATE SKIP LOCKED)
"""
_TOO_LARGE = "SELECT kind FROM callsmith_documents GROUP BY kind HAVING count(*) > $1 OR sum(octet_length(data)) > $2"
_DELETE_BEYOND = """
    DELETE FROM callsmith_documents WHERE kind = $1 AND key IN (
        SELECT key FROM callsmith_documents WHERE kind = $1 AND key IN (
            SELECT key FROM (
                SELECT key, row_number() OVER latest AS place, sum(octet_length(data)) OVER latest AS size
                FROM callsmith_documents WHERE kind = $1 WINDOW latest AS (ORDER BY written DESC, key DESC)) AS ordered
            WHERE place > $2 OR size > $3)
        FOR UPDATE SKIP LOCKED)
"""


async def prepare(connection: Any) -> None:
    """Create or upgrade the tables, if they are not there as this version needs them. Others who want to wait for it."""
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise UnfitDatabase(f"the database has the encoding {encoding}, and UTF8 is needed")
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LAYOUT_LOCK)
        # Asked first: a role that may use the tables need not be one that may create any.
        if await connection.fetchval("SELECT to_regclass('callsmith_layout') IS NULL"):
            await connection.execute("CREATE TABLE callsmith_layout (version integer NOT NULL)")
        layout = await connection.fetchval("SELECT max(version) FROM callsmith_layout") or 0
        if layout > len(LAYOUTS):
            raise UnfitDatabase(f"the layout of its tables is version {layout}, and only {len(LAYOUTS)} is known here")
        for version in range(layout, len(LAYOUTS)):
            await connection.execute(LAYOUTS[version])
            await connection.execute("INSERT INTO callsmith_layout VALUES ($1)", version + 1)


class PostgresStore:
    """A store in a PostgreSQL database. What is asked of it is done over several connections, opened when they are needed.

    Nothing is reached before it is used, or `open` is called. `clock` takes the place of the database's clock.
    """

    poll_seconds = 3.0
    is_lasting = True

    def __init__(
        self,
        url: str,
        *,
        limits: StoreLimits = DEFAULT_LIMITS,
        connections: int = 8,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._pruning, self._next_pruning = PruningSchedule(limits), 0.0
        self._watchers = Watchers()
        self._database = Database(url, connections, prepare)
        self._notices = Notices(self._database, self._watchers)

    def open(self) -> None:
        """Reach the database: an error if it cannot be used as it is. An unreachable one may come later."""
        self._database.open()

    def close(self) -> None:
        self._database.close()

    async def get(self, kind: str, *ids: str) -> dict[str, Document]:
        return {document.id: document for document in await self._select(kind, _GET, list(map(_key, ids)))} if ids else {}

    async def list(self, kind: str, *, after: str = "", limit: int = 100) -> tuple[Document, ...]:
        return await self._select(kind, _LIST, _key(after) if after else "", limit)

    async def latest(self, kind: str, *, after: str = "", limit: int = 100) -> tuple[Document, ...]:
        return await (self._select(kind, _LATEST_BEHIND, limit, _key(after)) if after else self._select(kind, _LATEST, limit))

    async def put(self, *documents: Document, durable: bool = False) -> None:
        ordered = sorted(
            documents, key=lambda document: (document.version is None, document.kind, _key(document.id))
        )  # whoever waits, waits in one order
        rows = [(self._row(document), document) for document in ordered]
        any_version = [row for row, document in rows if document.version is None]
        # What processes wait for is replaced at a version.
        marks = [mark(document.id) for document in ordered if document.version is not None]

        async def work(connection: Any) -> None:
            async with connection.transaction():
                for row, document in rows:
                    if document.version is not None:
                        await _replace(connection, row, document)
                if any_version:
                    await connection.executemany(_PUT_ANY, any_version)
            self._notices.send(*marks)

        await self._database.run(work)
        self._watchers.notify(*(mark(document.id) for document in ordered))
        await self._prune(len(rows), sum(len(row[4]) for row, _ in rows))

    async def delete(self, kind: str, *ids: str) -> int:
        async def work(connection: Any) -> int:
            keys = list(map(_key, ids))
            done = await connection.execute(
                "DELETE FROM callsmith_documents WHERE kind = $1 AND key = ANY($2::text[])", kind, keys
            )
            self._notices.send(*map(mark, ids))
            return int(done.rpartition(" ")[2])

        deleted = await self._database.run(work) if ids else 0
        self._watchers.notify(*map(mark, ids))
        return deleted

    def watch(self, *ids: str) -> AbstractContextManager[asyncio.Event]:
        self._notices.listen()
        return self._watchers.watch(*map(mark, ids))

    async def append(self, *entries: Json) -> int:
        texts = [encode(entry) for entry in entries]

        async def work(connection: Any) -> int:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", AUDIT_LOCK)
                insert = f"INSERT INTO callsmith_audit (at, data) VALUES ({_NOW}, $2) RETURNING number"
                if len(texts) > 1:
                    await connection.executemany(insert, [(self._now(), text) for text in texts[:-1]])
                return await connection.fetchval(insert, self._now(), texts[-1])

        number = await self._database.run(work)
        await self._prune(len(texts), 0)
        return number

    async def audit(self, *, after: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        query = "SELECT number, at, data FROM callsmith_audit WHERE number > $1 ORDER BY number LIMIT $2"
        rows = await self._database.run(lambda connection: connection.fetch(query, after, limit))
        return tuple(AuditEntry(number, at, json.loads(data)) for number, at, data in rows)

    async def check(self) -> None:
        row = self._row(Document(_PROBE, _PROBE, token_hex(8)))
        await self._database.run(lambda connection: connection.execute(_PUT_ANY, *row))

    async def ensure(self) -> None:
        if self._database.is_unreachable:
            await self.check()

    async def _select(self, kind: str, query: str, *values: Any) -> tuple[Document, ...]:
        age = inf if self._limits.age is None else self._limits.age
        rows = await self._database.run(lambda connection: connection.fetch(query, self._now(), kind, age, *values))
        here = self._here()
        return tuple(
            Document(kind, key if id is None else json.loads(id), json.loads(data), version, lasts and here + lasts)
            for key, id, data, version, lasts in rows
        )

    def _row(self, document: Document) -> tuple[Any, ...]:
        """The values of a statement: `expires` is seconds from now, for the database's clock may be another."""
        key = _key(document.id)
        id = None if key == document.id else json.dumps(document.id)
        lasts = None if document.expires is None else document.expires - self._here()
        return self._now(), document.kind, key, id, encode(document.data), lasts

    def _now(self) -> float | None:
        return self._clock() if self._clock else None

    def _here(self) -> float:
        return self._clock() if self._clock else time.time()

    async def _prune(self, count: int, size: int) -> None:
        """From time to time, delete what is too old or too much. What was written before stays written, even if this fails."""
        if not self._pruning.is_due(count, size) or time.monotonic() < self._next_pruning:
            return
        began = time.monotonic()
        try:
            await self._database.run(self._delete_old)
        except StoreUnavailable as error:
            _log.warning("the store could not be pruned: %s", error)
        seconds = time.monotonic() - began
        self._next_pruning = time.monotonic() + (20 * seconds if seconds > _SLOW else 0.0)

    async def _delete_old(self, connection: Any) -> None:
        limits = self._limits
        async with connection.transaction():
            if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", PRUNING_LOCK):
                return  # another server is just doing it
            await connection.execute(_DELETE_OLD, self._now(), inf if limits.age is None else limits.age)
            for (kind,) in await connection.fetch(_TOO_LARGE, limits.documents, limits.bytes):
                await connection.execute(_DELETE_BEYOND, kind, limits.documents, limits.bytes)
            await connection.execute(
                "DELETE FROM callsmith_audit WHERE number <= (SELECT max(number) FROM callsmith_audit) - $1", limits.entries
            )


async def _replace(connection: Any, row: Sequence[Any], document: Document) -> None:
    """Write a document over the version that it expects."""
    if document.version == 0:
        version = await connection.fetchval(_PUT_NEW, *row)
    else:
        version = await connection.fetchval(_PUT_NEXT, *row, document.version)
    if version is None:
        raise Stale(document, await connection.fetchval(_VERSION, row[1], row[2]) or 0)


def _key(id: str) -> str:
    """The id, or a hash of one that cannot be a key: PostgreSQL takes no NUL, no half surrogate pairs, and no long ones."""
    try:
        plain = "\0" not in id and not id.startswith("\\") and len(id.encode()) <= _LONGEST_KEY
    except UnicodeEncodeError:
        plain = False
    return id if plain else "\\" + sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
