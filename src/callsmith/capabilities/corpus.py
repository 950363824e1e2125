"""Corpora: folders of text files that can be searched, as `rag.query@1.0` and `rag.list_corpora@1.0`; full-text search by SQLite.

corpora = Corpora(Path("corpora.db"))
corpora.index("village", Path("documents"))
corpora.register(bus)
"""

import asyncio
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import Answer, CapabilityCall
from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError
from callsmith.wire.fields import Fields

SUFFIXES = frozenset({".md", ".rst", ".txt"})
MOST_PASSAGES = 20  # in one answer
_PASSAGE = 900  # characters, about
_LARGEST_FILE = 16 * 1024 * 1024
_MOST_WORDS = 32  # of a query that are looked for
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_WORD = re.compile(r"\w+")

_TABLES = """
    CREATE TABLE IF NOT EXISTS documents (
        id INTEGER PRIMARY KEY, corpus TEXT NOT NULL, title TEXT NOT NULL, cid TEXT NOT NULL, bytes INTEGER NOT NULL,
        UNIQUE (corpus, title));
    CREATE VIRTUAL TABLE IF NOT EXISTS passages USING fts5 (
        text, document UNINDEXED, number UNINDEXED, tokenize = 'unicode61 remove_diacritics 2');
"""
QUERY_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "params": {"type": "object", "properties": {"corpus": {"type": "string"}}, "required": ["corpus"]},
        "input": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": 4000},
                "k": {"type": "integer", "minimum": 1},
                "filter": {"type": "object", "properties": {"doc_title": {"type": "string"}}},
                "include_text": {"type": "boolean"},
            },
            "required": ["query"],
        },
    },
    "required": ["params", "input"],
}
_CHUNKS_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "output": {
            "type": "object",
            "properties": {"chunks": {"type": "array", "items": {"type": "object", "required": ["rank", "score", "metadata"]}}},
            "required": ["chunks"],
        }
    },
    "required": ["output"],
}
_CORPORA_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"output": {"type": "object", "properties": {"corpora": {"type": "array"}}, "required": ["corpora"]}},
    "required": ["output"],
}


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexing a folder has done: documents that were added or changed, that were the same, and that are gone."""

    changed: int
    unchanged: int
    removed: int


class Corpora:
    """Corpora in one SQLite file. They may be searched and indexed from any thread, and by several processes."""

    def __init__(self, path: Path | None = None) -> None:
        self._database = sqlite3.connect(path or ":memory:", check_same_thread=False, timeout=10.0)
        self._lock = threading.Lock()
        with self._lock, self._database:
            if path is not None:
                self._database.execute("PRAGMA journal_mode = WAL")
            self._database.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def index(self, corpus: str, folder: Path) -> Indexed:
        """Make a corpus the text files of a folder, and of those in it. Files that have not changed are left as they are."""
        if not _NAME.fullmatch(corpus):
            raise UsageError(f"{corpus!r} is no name of a corpus: letters, digits, '_', '-' and '.'", field="corpus")
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", field="folder")
        with self._lock, self._database:
            known = dict(self._database.execute("SELECT title, cid FROM documents WHERE corpus = ?", (corpus,)).fetchall())
            documents = dict(_documents(folder))
            changed = [title for title, text in documents.items() if known.get(title) != _cid(text)]
            gone = [title for title in known if title not in documents]
            for title in (*changed, *gone):
                self._remove(corpus, title)
            for title in changed:
                self._add(corpus, title, documents[title])
        return Indexed(len(changed), len(documents) - len(changed), len(gone))

    def _remove(self, corpus: str, title: str) -> None:
        where = "SELECT id FROM documents WHERE corpus = ? AND title = ?"
        self._database.execute(f"DELETE FROM passages WHERE document IN ({where})", (corpus, title))
        self._database.execute("DELETE FROM documents WHERE corpus = ? AND title = ?", (corpus, title))

    def _add(self, corpus: str, title: str, text: str) -> None:
        insert = "INSERT INTO documents (corpus, title, cid, bytes) VALUES (?, ?, ?, ?)"
        document = self._database.execute(insert, (corpus, title, _cid(text), len(text.encode()))).lastrowid
        rows = [(passage, document, number) for number, passage in enumerate(_passages(text))]
        self._database.executemany("INSERT INTO passages (text, document, number) VALUES (?, ?, ?)", rows)

    def names(self) -> list[str]:
        with self._lock:
            return [name for (name,) in self._database.execute("SELECT DISTINCT corpus FROM documents ORDER BY corpus")]

    def describe(self) -> list[dict[str, Json]]:
        """Every corpus with its size."""
        query = """
            SELECT corpus, count(*), sum(bytes), (SELECT count(*) FROM passages WHERE document IN
                (SELECT id FROM documents AS inner WHERE inner.corpus = outer.corpus))
            FROM documents AS outer GROUP BY corpus ORDER BY corpus"""
        with self._lock:
            rows = self._database.execute(query).fetchall()
        return [{"name": name, "docs": docs, "chunks": chunks, "size_bytes": size} for name, docs, size, chunks in rows]

    def search(self, corpus: str, query: str, k: int = 5, title: str = "") -> list[dict[str, Json]]:
        """The passages that fit best, the best first; `title`: of this document alone."""
        words = list(dict.fromkeys(_WORD.findall(query.lower())))[:_MOST_WORDS]
        if not words:
            return []
        expression = " OR ".join(f'"{word}"' for word in words)
        statement = """
            SELECT passages.text, bm25(passages), documents.cid, documents.title, passages.number
            FROM passages JOIN documents ON documents.id = passages.document
            WHERE passages MATCH ? AND documents.corpus = ? AND (? = '' OR documents.title = ?)
            ORDER BY bm25(passages) LIMIT ?"""
        with self._lock:
            rows = self._database.execute(statement, (expression, corpus, title, title, k)).fetchall()
        return [
            {
                "rank": rank,
                "score": -score,
                "text": text,
                "metadata": {"doc_cid": cid, "doc_title": name, "chunk_id": f"{cid[:16]}_{number}"},
            }
            for rank, (text, score, cid, name, number) in enumerate(rows, 1)
        ]

    def register(self, bus: CapabilityBus) -> Callable[[], None]:
        """Offer the corpora on a bus. Calling what is returned withdraws them."""
        offered = {"corpus": list[Json](self.names())}
        query = Descriptor(
            "rag.query",
            request_schema=QUERY_SCHEMA,
            response_schema=_CHUNKS_SCHEMA,
            description="Search a corpus for passages about a question",
            params=offered,
            idempotent=True,
        )
        listing = Descriptor(
            "rag.list_corpora",
            response_schema=_CORPORA_SCHEMA,
            description="List the corpora that can be searched",
            idempotent=True,
        )
        with ExitStack() as withdrawals:  # both of them, or none
            withdrawals.callback(bus.register(query, self._answer_query))
            withdrawals.callback(bus.register(listing, self._answer_list))
            return withdrawals.pop_all().close

    async def _answer_query(self, call: CapabilityCall) -> Answer:
        arguments: Mapping[str, Json] = call.input
        k = arguments.get("k", 5)
        if k > MOST_PASSAGES:
            raise BusError("bad_request", f"k may be at most {MOST_PASSAGES}, got {k}")
        only = Fields(arguments).object("filter")
        title = (only.text("doc_title") if only else None) or ""
        chunks = await asyncio.to_thread(self.search, call.params["corpus"], arguments["query"], k, title)
        if arguments.get("include_text") is False:
            chunks = [{key: value for key, value in chunk.items() if key != "text"} for chunk in chunks]
        return {"output": {"chunks": chunks}, "meta": {"corpus": call.params["corpus"]}}

    async def _answer_list(self, call: CapabilityCall) -> Answer:
        return {"output": {"corpora": await asyncio.to_thread(self.describe)}, "meta": {}}


def _documents(folder: Path) -> Iterator[tuple[str, str]]:
    """The text files of a folder: name and content. Links are not followed out of it."""
    root = folder.resolve()
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() not in SUFFIXES or not path.is_file() or not path.resolve().is_relative_to(root):
            continue
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path} has more than {_LARGEST_FILE // 2**20} MiB: split it, or move it away", field="folder")
        yield path.relative_to(root).as_posix(), path.read_text("utf-8", "replace")


def _cid(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _passages(text: str) -> Iterator[str]:
    """The text in passages: paragraphs together until they are long enough, and long ones in pieces. A heading stays with what
    follows it."""
    gathered = ""
    for paragraph in re.split(r"\n\s*\n", text):
        for piece in _pieces(paragraph.strip()):
            if gathered and len(gathered) + len(piece) > _PASSAGE and not gathered.rsplit("\n", 1)[-1].startswith("#"):
                yield gathered
                gathered = ""
            gathered = f"{gathered}\n\n{piece}" if gathered else piece
    if gathered:
        yield gathered


def _pieces(paragraph: str) -> Iterator[str]:
    while len(paragraph) > _PASSAGE:
        cut = paragraph.rfind(" ", 0, _PASSAGE) + 1 or _PASSAGE
        yield paragraph[:cut].strip()
        paragraph = paragraph[cut:]
    if paragraph:
        yield paragraph
