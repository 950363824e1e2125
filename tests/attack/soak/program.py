"""The server of a soak, in a process of its own: `python -m tests.attack.soak.program FOLDER PORT STORE UPSTREAM [FAULTS]`.

FAULTS are for whoever wants to see that the soak finds them: `pays-twice`, `forgets`, `mixes`, with a comma in between.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Request, Usage
from callsmith.models.opening import open_model
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from callsmith.server.store import Document, Store
from callsmith.server.store.opening import open_store
from callsmith.tools.functions import Functions, tool
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.config import ServerConfig
from tests.attack.ticking import Latencies, ticking

SECONDS = 20.0  # that an answer may take
_WORD = 0.002
_SLOW_WORD = 0.05


class Parrot:
    """Says the last message, word by word, and what begins with "slowly" slowly; "do NAME ARGUMENTS" is a call."""

    def __init__(self, *, mixes: bool = False) -> None:
        self._mixes = mixes
        self._before = ""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        if last.role == "user" and last.content.startswith("do "):
            _, name, arguments = last.content.split(" ", 2)
            call = Call(name, json.loads(arguments))
            for event in (CallStarted(0, name), CallArguments(0, arguments), CallReady(0, call), Stopped("calls", Usage(9, 9))):
                yield event
            return
        said, self._before = (self._before if self._mixes and self._before else last.content), last.content
        for word in said.split(" "):
            await asyncio.sleep(_SLOW_WORD if said.startswith("slowly") else _WORD)
            yield Text(word + " ")
        yield Stopped("stop", Usage(9, 9))


def tools_of(folder: Path, *, pays_twice: bool) -> Functions:
    """Tools that note in files what they have done."""

    def note(name: str, reference: str) -> None:
        with (folder / name).open("a") as file:
            file.write(f"{reference}\n")

    @tool(side_effects=True)
    def pay(reference: str) -> str:
        for _ in range(2 if pays_twice else 1):
            note("paid", reference)
        return f"paid {reference}"

    @tool(side_effects=True, background=True)
    async def ship(reference: str, seconds: float) -> str:
        note("shipped", reference)
        await asyncio.sleep(seconds)
        return f"shipped {reference}"

    @tool(background=True)
    async def build(reference: str, seconds: float) -> str:
        note("built", reference)
        await asyncio.sleep(seconds)
        return f"built {reference}"

    return Functions(pay, ship, build)


def forget(store: Store) -> None:
    """Let the store forget every third response soon after it has stored it."""
    put: Any = store.put
    count = 0

    async def forgetful(*documents: Document, durable: bool = False) -> None:
        nonlocal count
        await put(*documents, durable=durable)
        for document in documents:
            if document.kind == "response":
                count += 1
                if count % 3 == 0:
                    await store.delete("response", document.id)

    store.put = forgetful  # type: ignore[method-assign]


async def main(folder: Path, port: int, where: str, upstream: str, faults: str) -> None:
    latencies = Latencies()
    measuring = asyncio.create_task(ticking(latencies.add))
    store = open_store(where)
    if "forgets" in faults:
        forget(store)
    models: dict[str, Any] = {"m": Parrot(mixes="mixes" in faults), "liar": open_model(f"{upstream}/v1#liar")}
    mcp = McpHost([ServerConfig("demo", sys.executable, ("-m", "callsmith", "mcp", "--tools", "demo"), trust=True)])
    tools = tools_of(folder, pays_twice="pays-twice" in faults)
    app = create_app(models, tools=tools, store=store, mcp=mcp, settings=Settings(request_seconds=SECONDS))

    async def state(_: HttpRequest) -> JSONResponse:
        return JSONResponse({"latencies": latencies.counts, "tasks": len(asyncio.all_tasks())})

    app.router.routes.insert(0, Route("/soak", state))
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical")).serve()
    measuring.cancel()


if __name__ == "__main__":
    _folder, _port, _store, _upstream, *_faults = sys.argv[1:]
    asyncio.run(main(Path(_folder), int(_port), _store, _upstream, ",".join(_faults)))
