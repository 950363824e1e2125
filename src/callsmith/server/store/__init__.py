"""The store of a server: what must outlive a request. SQLite in a file or in memory, or PostgreSQL for several servers.

    store = SqliteStore("callsmith.db")
    await store.put(Document("response", "resp_1", {"status": "completed"}))
    documents = await store.get("response", "resp_1")          # documents["resp_1"].version == 1

`Store` is the port: JSON documents by kind and id, each with a version, and an append-only audit log. `open_store` (`opening.py`)
makes the one that the settings name.
"""

import asyncio
import json
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from callsmith.core.errors import CallsmithError
from callsmith.core.values import Json

DAY = 24 * 60 * 60.0
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON document. `version` counts how often it was written.

    In a `put` it is the version to replace: 0 for a document that must be new, None for any version.
    `expires`, in seconds since the epoch, is when the document is deleted.
    """

    kind: str
    id: str
    data: Json
    version: int | None = None
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log; `at` is in seconds since the epoch."""

    number: int
    at: float
    data: Json


class Stale(CallsmithError):
    """A document is not at the expected version, because it was written in the meantime; nothing was put."""

    def __init__(self, document: Document, found: int) -> None:
        super().__init__(f"{document.kind} {document.id} is at version {found}, not {document.version}")
        self.found = found


class Store(Protocol):
    """Stores what must outlive a request. An unreachable store raises `StoreUnavailable`, after some seconds at the latest.

    What was put survives a kill -9 of the server; what was put with `durable`, and the audit log, also a loss of power.
    """

    poll_seconds: float  # between two looks at what `watch` may not have noticed
    is_lasting: bool  # whether what it has is still there when the process has ended

    async def get(self, kind: str, *ids: str) -> dict[str, Document]:
        """The documents with these ids, as far as there are any."""
        ...

    async def put(self, *documents: Document, durable: bool = False) -> None:
        """Write all of the documents or, if one is not at the expected version (`Stale`), none.

        After a `StoreUnavailable` they may have been written all the same, if the store broke off at that moment.
        """
        ...

    async def delete(self, kind: str, *ids: str) -> int:
        """Delete documents, and return how many there were."""
        ...

    async def list(self, kind: str, *, after: str = "", limit: int = 100) -> tuple[Document, ...]:
        """Documents of a kind in the order of their ids, from the first one after `after`."""
        ...

    async def latest(self, kind: str, *, after: str = "", limit: int = 100) -> tuple[Document, ...]:
        """Documents of a kind, the one written last first; from behind the one with the id `after`, none if that is not there."""
        ...

    def watch(self, *ids: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when this process writes or deletes a document with one of these ids.

        A store may notice other processes too; nobody can rely on it, and what expires is not noticed: look every `poll_seconds`.
        """
        ...

    async def append(self, *entries: Json) -> int:
        """Add entries to the audit log, all of them or none, and return the number of the last."""
        ...

    async def audit(self, *, after: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Entries of the audit log in order, from the first one after `after`."""
        ...

    async def check(self) -> None:
        """Write something and read it back; a `StoreUnavailable` says why that cannot be done."""
        ...

    async def ensure(self) -> None:
        """Raise `StoreUnavailable` if the store is known to be unreachable and still is: costs nothing as long as it works."""
        ...

    def close(self) -> None:
        """Finish pending work, and let go of what is open. The store cannot be used afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much is stored: documents of each kind and their bytes, their age in seconds, entries of the audit log.

    The oldest are deleted. Each caller has kinds of its own, so that nobody's documents make room for another's.
    """

    documents: int = 100_000
    bytes: int = 128 * 1024 * 1024
    age: float | None = 30 * DAY
    entries: int = 1_000_000


DEFAULT_LIMITS = StoreLimits()
_WRITES_BETWEEN_PRUNINGS = 256


class PruningSchedule:
    """When what is too old or too much is deleted: after so many writes, or so many characters, of this process."""

    def __init__(self, limits: StoreLimits) -> None:
        self._writes_between = min(_WRITES_BETWEEN_PRUNINGS, limits.documents, limits.entries)
        self._size_between = limits.bytes // 8
        self._writes, self._size = 0, 0

    def is_due(self, count: int, size: int) -> bool:
        """Whether to prune now, behind a write of so many documents or entries and their characters."""
        self._writes += count
        self._size += size
        if self._writes < self._writes_between and self._size < self._size_between:
            return False
        self._writes, self._size = 0, 0
        return True


class Watchers:
    """Those who wait, in this process, for documents to change."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextmanager
    def watch(self, *ids: str) -> Generator[asyncio.Event, None, None]:
        watcher = asyncio.get_running_loop(), asyncio.Event()
        for id in ids:
            self._waiting.setdefault(id, []).append(watcher)
        try:
            yield watcher[1]
        finally:
            for id in ids:
                self._waiting[id].remove(watcher)
                if not self._waiting[id]:
                    del self._waiting[id]

    def notify(self, *ids: str) -> None:
        """Wake whoever watches one of these."""
        self._wake(watcher for id in ids for watcher in tuple(self._waiting.get(id, ())))

    def notify_all(self) -> None:
        self._wake(watcher for waiting in tuple(self._waiting.values()) for watcher in tuple(waiting))

    def _wake(self, waiting: Iterable[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        for loop, event in waiting:
            with suppress(RuntimeError):  # its loop was closed meanwhile
                loop.call_soon_threadsafe(event.set)


def caller_kind(name: str, subject: str) -> str:
    """The kind of one caller's documents: nobody can as much as name what belongs to another."""
    return f"{name}/{subject}" if subject else name


async def list_all(store: Store, kind: str) -> list[Document]:
    """All documents of a kind, in the order of their ids."""
    documents, after = list[Document](), ""
    while page := await store.list(kind, after=after, limit=_PAGE):
        documents += page
        after = page[-1].id
    return documents


def encode(data: Json) -> str:
    """JSON text that databases take: half a surrogate pair, which a model may write, is not valid UTF-8 and is escaped."""
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data)
    return text
