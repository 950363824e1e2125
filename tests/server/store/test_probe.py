"""Readiness includes the store: one that is full, broken or gone is told, and looked at no more often than it must be."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.routes import health
from callsmith.server.routes.health import StoreProbe
from callsmith.server.settings import Key, Settings
from callsmith.server.store import Document
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.asking import http, says


@contextmanager
def full_disk(file: Path) -> Iterator[None]:
    """No file grows beyond the size that the log of this database has, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{file}-wal").stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def broken(file: Path) -> None:
    for part in (file, Path(f"{file}-wal")):
        with part.open("r+b") as opened:
            opened.write(b"\xff" * part.stat().st_size)


def gone(file: Path) -> None:
    file.unlink()


@pytest.fixture
def looking_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "StoreProbe", lambda store: StoreProbe(store, seconds=0))


async def asked(app: Any, path: str) -> tuple[int, Any]:
    async with http(app) as asking:
        response = await asking.get(path)
    return response.status_code, response.json()


@pytest.mark.usefixtures("looking_always")
async def test_a_full_store_is_not_ready_and_one_with_room_again_is(tmp_path: Path):
    file = tmp_path / "s.db"
    with closing(SqliteStore(str(file))) as store:
        await store.put(Document("a", "b", {"c": 1}))
        app = create_app({"m": FakeModel(says("a"))}, store=store)
        assert await asked(app, "/ready") == (200, {"ready": True})
        with full_disk(file):
            assert await asked(app, "/ready") == (503, {"ready": False, "why": "store"})
            _, body = await asked(app, "/health")
        assert (body["status"], "the store failed" in body["store"]) == ("degraded", True)
        assert (await asked(app, "/ready"))[0] == 200
        assert (await asked(app, "/health"))[1]["store"] == "ok"


@pytest.mark.parametrize("harm", [broken, gone])
@pytest.mark.usefixtures("looking_always")
async def test_a_store_that_was_broken_while_it_was_open_is_not_ready(tmp_path: Path, harm: Any):
    file = tmp_path / "s.db"
    with closing(SqliteStore(str(file))) as store:
        await store.put(*(Document("a", f"b{number}", {"c": "d" * 500}) for number in range(50)))
        app = create_app({"m": FakeModel(says("a"))}, store=store)
        assert (await asked(app, "/ready"))[0] == 200
        harm(file)
        assert await asked(app, "/ready") == (503, {"ready": False, "why": "store"})
        assert (await asked(app, "/health"))[1]["status"] == "degraded"


class Counted(SqliteStore):
    """A store that counts how often it is looked at, and fails if it has to."""

    looked = 0
    fails = False

    async def check(self) -> None:
        self.looked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise Unavailable("the store failed: no luck")


async def test_the_store_is_looked_at_from_time_to_time_whoever_asks_how_often():
    store, now = Counted(), 100.0
    probe = StoreProbe(store, seconds=5, clock=lambda: now)
    assert {*await asyncio.gather(*(probe.problem() for _ in range(20)))} == {""}
    now, store.fails = 104.9, True
    assert (await probe.problem(), store.looked) == ("", 1)
    now = 105.0
    assert (await probe.problem(), store.looked) == ("the store failed: no luck", 2)


async def test_without_a_key_nobody_is_told_what_is_wrong_with_the_store():
    store = Counted()
    store.fails = True
    app = create_app({"m": FakeModel(says("a"))}, store=store, settings=Settings(keys={"a": Key(hash_key("k"))}))
    assert await asked(app, "/health") == (200, {"status": "degraded"})
    assert await asked(app, "/ready") == (503, {"ready": False, "why": "store"})
