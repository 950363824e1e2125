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


async def soak(seconds: float, *, faults: str = "", clients: int = CLIENTS, small: bool = False) -> list[World]:
    """Run it. `faults` are those of the server itself, for whoever wants to see that they are found; `small`: with SQLite alone
    and without the page."""
    with tempfile.TemporaryDirectory() as folder:
        async with _worlds(Path(folder), faults, small) as worlds:
            await asyncio.gather(*(world.server.ready() for world in worlds))
            await _run(worlds, seconds, clients, small)
            for world in worlds:
                await world.server.ready()
                await settle(world.server.url, world.ledger)
                world.ledger.check_calls(world.server.folder)
            return worlds


async def _run(worlds: list[World], seconds: float, clients: int, small: bool) -> None:
    until = time.monotonic() + seconds
    work: list[Coroutine[Any, Any, None]] = []
    for number in range(clients):
        world = worlds[number % len(worlds)]
        work.append(Client(world.server.url, world.ledger, until, number).run())
    async with AsyncExitStack() as stack:
        if small or (reason := page.why_not()):
            print(f"without the page: {'not asked for' if small else reason}")
        else:
            for world in worlds:
                work.append((await stack.enter_async_context(page.visiting(world.server, world.ledger, until))).run())
        watching = [asyncio.create_task(world.server.watch()) for world in worlds]
        faults = (Faults(world.server, world.ledger, world.liar, world.database, seconds) for world in worlds)
        await asyncio.gather(*work, *(each.run() for each in faults))
    for task in watching:
        task.cancel()


@asynccontextmanager
async def _worlds(folder: Path, faults: str, small: bool) -> AsyncIterator[list[World]]:
    """The servers: with a SQLite file and, where it is installed, with PostgreSQL."""
    async with AsyncExitStack() as stack:
        stores: dict[str, Database | None] = {"SQLite": None}
        if small or (reason := why_not()):
            print(f"without PostgreSQL: {'not asked for' if small else reason}")
        else:
            stores["PostgreSQL"] = stack.enter_context(running_database())
        worlds: list[World] = []
        for name, database in stores.items():
            own = folder / name
            (own / "store").mkdir(parents=True)
            liar = await stack.enter_async_context(lying())
            server = Server(own, database.url if database else str(own / "store" / "store.db"), liar.url, faults)
            stack.callback(server.kill)
            worlds.append(World(name, server, liar, database))
        yield worlds
