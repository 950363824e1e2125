"""A soak: eight clients for an hour, with disconnects and approvals, while MCP servers, the store and the server itself are hit.

    python -m tests.attack.soak [SECONDS]        # or: make soak SECONDS=3600

The model says what it is told to, so that an answer that reaches another client is noticed, and so is a payment that was made
twice, never, or against a person's word. Figures are printed at the end; the exit status is 1 if anything of that has happened.
"""

import asyncio
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

CLIENTS = 8
PAUSE = 0.25  # seconds between two requests of a client: enough is left of the machine for other work
EVERY = {"mcp": 45.0, "store": 75.0, "server": 300.0}  # seconds between two hits
TOKEN = re.compile(r"tok-[0-9a-f]{12}")
PROGRAM = r"""
import asyncio, json, sys
from pathlib import Path

import uvicorn

from callsmith import Functions, tool
from callsmith.core.events import CallArguments, CallReady, CallStarted, Stopped, Text
from callsmith.core.values import Call, Usage
from callsmith.server.app import create_app
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.config import ServerConfig

folder, port = Path(sys.argv[1]), int(sys.argv[2])


@tool(side_effects=True)
def pay(reference: str) -> str:
    with (folder / "paid").open("a") as file:
        file.write(f"{reference}\n")
    return f"paid {reference}"


class Parrot:
    # Says the last message, word by word; "do NAME ARGUMENTS" is a call.
    async def stream(self, request):
        last = request.messages[-1]
        if last.role == "user" and last.content.startswith("do "):
            _, name, arguments = last.content.split(" ", 2)
            call = Call(name, json.loads(arguments))
            for event in (CallStarted(0, name), CallArguments(0, arguments), CallReady(0, call), Stopped("calls", Usage(9, 9))):
                yield event
            return
        for word in last.content.split(" "):
            await asyncio.sleep(0.002)
            yield Text(word + " ")
        yield Stopped("stop", Usage(9, 9))


mcp = McpHost([ServerConfig("demo", sys.executable, ("-m", "callsmith", "mcp", "--tools", "demo"), trust=True)])
app = create_app({"m": Parrot()}, tools=Functions(pay), store=SqliteStore(str(folder / "store.db")), mcp=mcp)
uvicorn.run(app, port=port, log_level="critical")
"""


@dataclass(slots=True)
class Figures:
    """What was done and what was wrong."""

    done: Counter[str] = field(default_factory=Counter[str])
    retried: Counter[str] = field(default_factory=Counter[str])
    hits: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])
    wrong: list[str] = field(default_factory=list[str])
    approved: set[str] = field(default_factory=set[str])  # and told that it was done
    perhaps: set[str] = field(default_factory=set[str])  # approved, while the answer got lost
    denied: set[str] = field(default_factory=set[str])


class Unanswered(Exception):
    """No answer, or one that says: later."""


class Server:
    """The server's process, which is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        log = (self.folder / "log").open("ab")
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.folder), str(self.port)], stderr=log)

    def restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def memory(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


class Client:
    """One client: a request of some kind after the other."""

    def __init__(self, server: Server, figures: Figures, until: float, seed: int) -> None:
        self.server, self.figures, self.until, self.random = server, figures, until, random.Random(seed)
        self.http = httpx2.AsyncClient(base_url=server.url, timeout=60)

    async def run(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.chat, self.messages, self.leave, self.approve, self.approve, self.deny, self.stored, self.background, self.tool,
            self.socket,
        ]  # fmt: skip
        while time.monotonic() < self.until:
            kind = self.random.choice(kinds)
            began = time.monotonic()
            try:
                await kind()
                self.figures.done[kind.__name__] += 1
                self.figures.seconds.append(time.monotonic() - began)
            except (httpx2.HTTPError, OSError, EOFError, ConnectionClosed, Unanswered) as error:
                self.figures.retried[f"{kind.__name__}: {type(error).__name__} {str(error)[:60]}"] += 1
                await asyncio.sleep(0.5)
            except Exception as error:
                self.figures.wrong.append(f"{kind.__name__}: {type(error).__name__}: {error}")
            await asyncio.sleep(PAUSE)

    async def post(self, path: str, **body: Any) -> Any:
        answer = await self.http.post(path, json={"model": "m", **body} if "approvals" not in path else body)
        if answer.status_code in (429, 503):
            raise Unanswered(str(answer.status_code))
        if answer.status_code >= 400:
            self.figures.wrong.append(f"{path}: {answer.status_code} {answer.text[:200]}")
            raise Unanswered(str(answer.status_code))
        return answer.json()

    def own(self, token: str, text: str) -> None:
        """Only this client's words may stand in the text, and they do."""
        if set(TOKEN.findall(text)) != {token}:
            self.figures.wrong.append(f"{token} was answered with {text[:200]!r}")

    async def chat(self) -> None:
        token = _token()
        async with self.http.stream("POST", "/v1/chat/completions", json=_asking(token, stream=True)) as answer:
            text = (await answer.aread()).decode()
        if answer.status_code in (429, 503):
            raise Unanswered(str(answer.status_code))
        self.own(token, text)

    async def messages(self) -> None:
        token = _token()
        answer = await self.post("/v1/messages", max_tokens=50, messages=[{"role": "user", "content": f"say {token} please"}])
        self.own(token, json.dumps(answer))

    async def leave(self) -> None:
        async with self.http.stream("POST", "/v1/chat/completions", json=_asking(f"{_token()} " * 50, stream=True)) as answer:
            async for _ in answer.aiter_bytes():
                if self.random.random() < 0.3:
                    return

    async def approve(self) -> None:
        token, id = await self.asked()
        self.figures.perhaps.add(token)
        answer = await self.decided(id, approve=True)
        if answer["status"] == "done" and (answer["result"] or {}).get("ok"):
            self.figures.perhaps.discard(token)
            self.figures.approved.add(token)

    async def deny(self) -> None:
        token, id = await self.asked()
        self.figures.denied.add(token)
        await self.decided(id, approve=False, reason="no")

    async def asked(self) -> tuple[str, str]:
        token = _token()
        answer = await self.post("/v1/chat/completions", messages=[{"role": "user", "content": _doing("pay", reference=token)}])
        return token, answer["callsmith"]["approvals"][0]["id"]

    async def decided(self, id: str, **decision: Any) -> Any:
        """Decide, and find out what came of it, however often the server is away."""
        for _ in range(40):
            try:
                answer = await self.http.post(f"/v1/approvals/{id}", json=decision)
                if answer.status_code == 200:
                    return answer.json()
                if answer.status_code == 409:
                    body = (await self.http.get(f"/v1/approvals/{id}")).json()
                    if body["status"] in ("done", "denied"):
                        return body
                elif answer.status_code not in (429, 503):
                    self.figures.wrong.append(f"deciding: {answer.status_code} {answer.text[:200]}")
                    break
            except (httpx2.HTTPError, OSError):
                pass
            await asyncio.sleep(1)
        raise Unanswered("no decision")

    async def stored(self) -> None:
        token = _token()
        first = await self.post("/v1/responses", input=f"say {token}")
        second = await self.post("/v1/responses", input=f"again {token}", previous_response_id=first["id"])
        body = (await self.http.get(f"/v1/responses/{second['id']}")).json()
        self.own(token, json.dumps(body))
        await self.http.delete(f"/v1/responses/{first['id']}")

    async def background(self) -> None:
        token = _token()
        created = await self.post("/v1/responses", input=f"say {token}", background=True)
        if self.random.random() < 0.3:
            await self.http.post(f"/v1/responses/{created['id']}/cancel")
            return
        for _ in range(100):
            response = await self.http.get(f"/v1/responses/{created['id']}")
            if response.status_code == 200 and response.json()["status"] == "completed":
                self.own(token, response.text)
                return
            await asyncio.sleep(0.1)
        raise Unanswered("still in the background")

    async def tool(self) -> None:
        messages = [{"role": "user", "content": _doing("calculate", expression="17 * 23")}]
        await self.post("/v1/chat/completions", messages=messages)

    async def socket(self) -> None:
        token = _token()
        async with connect(f"ws://127.0.0.1:{self.server.port}/v1/responses") as connection:
            await connection.send(json.dumps({"type": "response.create", "model": "m", "input": f"say {token}"}))
            async for frame in connection:
                event = json.loads(frame)
                if event["type"] in ("response.completed", "response.failed", "error"):
                    break
            else:
                raise Unanswered("the connection was closed")
        if event["type"] != "response.completed":
            raise Unanswered(event["type"])
        self.own(token, str(frame))


def _token() -> str:
    return f"tok-{uuid4().hex[:12]}"


def _asking(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": f"say {text} please"}], **more}


def _doing(name: str, **arguments: Any) -> str:
    return f"do {name} {json.dumps(arguments)}"


async def hit(server: Server, figures: Figures, until: float) -> None:
    """Kill MCP servers, lock the store, and kill the server itself, each in its own time."""
    due = {kind: time.monotonic() + every for kind, every in EVERY.items()}
    while time.monotonic() < until - 20:
        await asyncio.sleep(1)
        for kind in [kind for kind, at in due.items() if time.monotonic() >= at]:
            due[kind] = time.monotonic() + EVERY[kind]
            figures.hits[kind] += 1
            if kind == "mcp":
                for pid in server.children():
                    os.kill(pid, signal.SIGKILL)
            elif kind == "server":
                await asyncio.to_thread(server.restart)
            else:
                await asyncio.to_thread(_lock, server.folder / "store.db")
        if server.process.poll() is not None:
            figures.wrong.append(f"the server ended by itself: {server.process.returncode}")
            await asyncio.to_thread(server.restart)


def _lock(file: Path, seconds: float = 3.0) -> None:
    """Let nobody else write to the store for a while."""
    with closing(sqlite3.connect(file, timeout=30)) as store:
        store.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)


async def soak(seconds: float) -> Figures:
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name))
        try:
            await _listening(server)
            until = time.monotonic() + seconds
            clients = [Client(server, figures, until, number).run() for number in range(CLIENTS)]
            memory = asyncio.create_task(_memory(server, until))
            await asyncio.gather(hit(server, figures, until), *clients)
            _check_payments(figures, Path(name) / "paid")
            _show(figures, seconds, await memory)
        finally:
            server.process.kill()
            server.process.wait()
    return figures


async def _listening(server: Server) -> None:
    async with httpx2.AsyncClient() as client:
        for _ in range(200):
            try:
                if (await client.get(f"{server.url}/ready")).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            await asyncio.sleep(0.2)
    raise RuntimeError("the server did not come up")


async def _memory(server: Server, until: float) -> list[int]:
    sizes: list[int] = []
    while time.monotonic() < until:
        await asyncio.sleep(15)
        sizes += [server.memory()] if server.process.poll() is None else []
    return sizes


def _check_payments(figures: Figures, file: Path) -> None:
    paid = Counter(file.read_text().split()) if file.exists() else Counter[str]()
    figures.wrong += [f"{token} was paid {times} times" for token, times in paid.items() if times > 1]
    figures.wrong += [f"{token} was approved and done, but not paid" for token in figures.approved - paid.keys()]
    figures.wrong += [f"{token} was denied, and paid" for token in figures.denied & paid.keys()]
    figures.wrong += [f"{token} was paid unasked" for token in paid.keys() - figures.approved - figures.perhaps]


def _show(figures: Figures, seconds: float, memory: list[int]) -> None:
    ordered = sorted(figures.seconds)
    print(f"{seconds:g} s, {CLIENTS} clients, {sum(figures.done.values())} requests done: {dict(figures.done)}")
    print(
        f"hit: {dict(figures.hits)}; to be tried again: {sum(figures.retried.values())} {dict(figures.retried.most_common(12))}"
    )
    print(f"paid once each: {len(figures.approved)}, denied: {len(figures.denied)}, answer lost: {len(figures.perhaps)}")
    if ordered:
        print(f"seconds a request: median {ordered[len(ordered) // 2]:.3f}, p99 {ordered[int(len(ordered) * 0.99)]:.3f}")
    print(f"memory, MB: {memory[:: max(1, len(memory) // 12)]}")
    print(f"wrong: {len(figures.wrong)} {figures.wrong[:10]}")


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(soak(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0)).wrong else 0)
