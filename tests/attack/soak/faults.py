"""What a soak does to servers: MCP servers, upstreams and stores go away, and servers are killed, each in its own time."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from itertools import cycle
from pathlib import Path

from tests.attack.soak.ledger import Ledger
from tests.attack.soak.server import Server
from tests.attack.soak.upstream import Liar
from tests.postgres import Database

EVERY = {"MCP servers killed": 45.0, "upstream gone": 110.0, "store": 75.0, "server killed": 180.0}  # seconds between two
AWAY = 4.0  # seconds that something is away

Fault = Callable[[], Awaitable[None]]


class Faults:
    """What is done to one server. It is killed in the first half only, so that its last life is a long one."""

    def __init__(self, server: Server, ledger: Ledger, liar: Liar, database: Database | None, seconds: float) -> None:
        self._server, self._ledger, self._liar = server, ledger, liar
        self._began, self._seconds = time.monotonic(), seconds
        self._stores = cycle(_database_faults(database) if database else _file_faults(server))

    async def run(self) -> None:
        every = {kind: min(seconds, self._seconds / 8) for kind, seconds in EVERY.items()}
        due = {kind: time.monotonic() + seconds for kind, seconds in every.items()}
        while self._left() > 20:
            await asyncio.sleep(0.5)
            for kind in [kind for kind, at in due.items() if time.monotonic() >= at]:
                due[kind] = time.monotonic() + every[kind]
                await self._do(kind)
            if self._server.process.poll() is not None:
                self._ledger.wrong.append(f"the server ended by itself: {self._server.process.returncode}")
                await self._server.ready()

    async def _do(self, kind: str) -> None:
        if kind == "server killed" and self._left() < self._seconds / 2:
            return
        if kind in ("server killed", "store"):
            self._server.trouble = time.monotonic() + 60  # for as long as it lasts
        if kind == "server killed":
            await self._server.restart()
        elif kind == "upstream gone":
            await self._liar.go_away()
            await asyncio.sleep(AWAY)
            await self._liar.listen()
        elif kind == "store":
            kind, fault = next(self._stores)
            await fault()
            self._server.trouble = time.monotonic()
        else:
            for pid in self._server.children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._ledger.faults[kind] += 1

    def _left(self) -> float:
        return self._began + self._seconds - time.monotonic()


def _file_faults(server: Server) -> list[tuple[str, Fault]]:
    folder = server.folder / "store"

    async def lock() -> None:
        await asyncio.to_thread(_lock, folder / "store.db")

    async def fill() -> None:
        server.limit_files(256 * 1024)
        await asyncio.sleep(AWAY)
        server.limit_files(-1)

    async def move() -> None:
        away = folder.rename(folder.with_name("away"))
        await asyncio.sleep(AWAY)
        away.rename(folder)

    return [("store locked", lock), ("disk full", fill), ("store's folder moved away", move)]


def _lock(file: Path) -> None:
    """Let nobody else write to the store for a while."""
    with closing(sqlite3.connect(file, timeout=30)) as store:
        store.execute("BEGIN EXCLUSIVE")
        time.sleep(AWAY)


def _database_faults(database: Database) -> list[tuple[str, Fault]]:
    async def stop() -> None:
        await asyncio.to_thread(database.stop)
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(database.start)

    async def kill() -> None:
        await asyncio.to_thread(database.kill)
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(database.start)

    async def hang() -> None:
        with database.hung():
            await asyncio.sleep(AWAY)

    async def disconnect() -> None:
        statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'callsmith'"
        for _ in range(5):
            await asyncio.to_thread(database.sql, statement)
            await asyncio.sleep(0.2)

    return [
        ("database restarted", stop),
        ("database killed", kill),
        ("database hung", hang),
        ("database's connections cut", disconnect),
    ]
