"""Servers that are started by a fork, as often and as fast as tests kill them: those of tests/journeys/gateways.py.

A line on standard input, as JSON, starts one, and its process id is printed:

    {"role": "upstream", "port": 4711}
    {"role": "gateway", "port": 4712, "folder": "…", "store": "postgresql://…", "upstreams": ["http://…"], "die_at": [3, true]}
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg  # noqa: F401  (imported once, for all)
import uvicorn

from callsmith import Functions, open_model, tool
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Request, Usage
from callsmith.server.app import create_app
from callsmith.server.store import Document, leases
from callsmith.server.store.postgres import PostgresStore


class Parrot:
    """Says the last message, word by word; "do NAME ARGUMENTS" is a call."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        if last.role == "user" and last.content.startswith("do "):
            _, name, arguments = last.content.split(" ", 2)
            call = Call(name, json.loads(arguments))
            for event in (CallStarted(0, name, call.id), CallArguments(0, arguments), CallReady(0, call)):
                yield event
            yield Stopped("calls", Usage(9, 9))
            return
        for word in last.content.split(" "):
            await asyncio.sleep(0.005)
            yield Text(word + " ")
        yield Stopped("stop", Usage(9, 9))


class DyingStore(PostgresStore):
    """A store that kills its server at one of the writes: before it, or behind."""

    die_at: tuple[int, bool] | None = None
    writes = 0

    async def put(self, *documents: Document, durable: bool = False) -> None:
        mine = self.die_at is not None and self.writes == self.die_at[0]
        self.writes += 1
        if mine and self.die_at and not self.die_at[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().put(*documents, durable=durable)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)


def upstream(**_: Any) -> Any:
    return create_app({"m": Parrot()})


def gateway(folder: str, store: str, upstreams: list[str], die_at: tuple[int, bool] | None = None, **_: Any) -> Any:
    """The application: its tool writes what it pays into a file; slowly, or it hangs then, by the kind of the reference."""
    leases.LEASE_SECONDS = 1.0

    @tool(side_effects=True)
    async def pay(reference: str) -> str:
        slow = reference.startswith("slow")
        await asyncio.sleep(slow)
        with (Path(folder) / "paid").open("a") as file:
            file.write(f"{reference}\n")
        await asyncio.sleep(60 if reference.startswith("hang") else slow)
        return f"paid {reference}"

    shared = DyingStore(store)
    shared.die_at = die_at
    model = open_model(f"{','.join(f'{url}/v1' for url in upstreams)}#m")
    return create_app({"m": model}, tools=Functions(pay), store=shared)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    open_model("http://127.0.0.1:9/v1#m")  # what is imported late is imported here, once for all
    uvicorn.Config(upstream()).load()
    for line in sys.stdin:
        message = json.loads(line)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            make = upstream if message["role"] == "upstream" else gateway
            uvicorn.run(make(**message), port=message["port"], log_level="critical")
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
