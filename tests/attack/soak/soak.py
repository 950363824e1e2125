"""A soak as a whole: servers with their stores, clients and page, and what is done to them."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.attack.soak import page
from tests.attack.soak.client import Client
from tests.attack.soak.faults import Faults
from tests.attack.soak.ledger import Ledger
from tests.attack.soak.server import Server
from tests.attack.soak.settling import settle
from tests.attack.soak.upstream import Liar, lying
from tests.postgres import Database, running_database, why_not

CLIENTS = 8


@dataclass(slots=True)
class World:
    """A server with its store and its upstream, and what its clients were promised."""

    name: str
    server: Server
    liar: Liar
    database: Database | None = None
    ledger: Ledger = field(default_factory=Ledger)

    async def settle(self) -> None:
        """Hold what was promised against what is there now."""
        await self.server.ready()
        await settle(self.server.url, self.ledger)
        self.ledger.check_calls(self.server.folder)
        self.ledger.raised = self.server.raised()


async def soak(seconds: float) -> list[World]:
    """Run it with every store that is installed."""
    async with AsyncExitStack() as stack:
        worlds = [await stack.enter_async_context(open_world())]
        if reason := why_not():
            print(f"without PostgreSQL: {reason}")
        else:
            database = stack.enter_context(running_database())
            worlds.append(await stack.enter_async_context(open_world("PostgreSQL", database)))
        await _run(worlds, seconds)
        for world in worlds:
            await world.settle()
        return worlds


async def _run(worlds: list[World], seconds: float) -> None:
    until = time.monotonic() + seconds
    work: list[Coroutine[Any, Any, None]] = []
    for number in range(CLIENTS):
        world = worlds[number % len(worlds)]
        work.append(Client(world.server.url, world.ledger, until, number).run())
    async with AsyncExitStack() as stack:
        if reason := page.why_not():
            print(f"without the page: {reason}")
        else:
            for world in worlds:
                work.append((await stack.enter_async_context(page.visiting(world.server, world.ledger, until))).run())
        watching = [asyncio.create_task(world.server.watch()) for world in worlds]
        watching.append(asyncio.create_task(_tell(worlds)))
        faults = (Faults(world.server, world.ledger, world.liar, world.database, seconds) for world in worlds)
        await asyncio.gather(*work, *(each.run() for each in faults))
    for task in watching:
        task.cancel()


async def _tell(worlds: list[World]) -> None:
    """Say now and then how it goes."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(300)
        states = (f"{world.name} {world.ledger.done.total()} done, {len(world.ledger.wrong)} wrong" for world in worlds)
        print(f"{(time.monotonic() - began) / 60:.0f} min: {'; '.join(states)}", flush=True)


@asynccontextmanager
async def open_world(name: str = "SQLite", database: Database | None = None, faults: str = "") -> AsyncIterator[World]:
    """A server that is ready, with a SQLite file or a database. `faults` are its own, for whoever wants to see that they are
    found."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        store.mkdir()
        async with lying() as liar:
            server = Server(Path(folder), database.url if database else str(store / "store.db"), liar.url, faults)
            try:
                await server.ready()
                yield World(name, server, liar, database)
            finally:
                server.kill()
