"""Clients that behave badly, on a real socket: they leave, stall, send garbage or far too much. The server stays as it was."""

import asyncio
import gc
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.events import ModelEvent
from callsmith.core.values import Request
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.settings import Requests, Settings
from tests.serving import served

pytestmark = pytest.mark.processes

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/api/generate")
AT_ONCE = 20


class Counted:
    """A model that knows how many of its answers are being given."""

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        self.open = 0
        self.begun = 0

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.open += 1
        self.begun += 1
        try:
            async for event in self.model.stream(request):
                yield event
        finally:
            self.open -= 1
            requests: list[Any] = self.model.engine.asked  # type: ignore[attr-defined]
            requests.clear()  # the fake remembers what it was asked: the only memory that is meant to grow


def scripted_model() -> Counted:
    engine = Scripted(["Some words, and then some more of them. " * 5], chunk=4, repeat=True)
    return Counted(LocalModel(engine, format_named("hermes"), Template(CHATML)))


def head(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n".encode()


def body_of(path: str, *, stream: bool) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    body: dict[str, Any] = {"/v1/responses": {"input": "hi", "store": False}, "/api/generate": {"prompt": "hi"}}.get(
        path, {"messages": messages, "max_tokens": 1000}
    )
    return json.dumps({"model": "m", "stream": stream, **body}).encode()


class Client:
    """One that behaves as chance has it."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.port = port
        self.chance = chance

    async def behave(self) -> None:
        kinds = (self.good, self.good, self.leaves, self.leaves, self.stalls, self.garbage, self.half, self.huge, self.no_http)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await self.chance.choice(kinds)(self.chance.choice(PATHS))
        except ConnectionError:
            pass  # the server may well hang up on one of these
        finally:
            self.writer.transport.abort() if self.chance.random() < 0.5 else self.writer.close()

    async def good(self, path: str) -> None:
        content = body_of(path, stream=self.chance.random() < 0.7)
        self.writer.write(head(path, len(content)) + content)
        answer = await asyncio.wait_for(self.reader.read(-1), 60)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
        assert b"more of them" in answer or b"data: " in answer or b'"done":true' in answer

    async def leaves(self, path: str) -> None:
        content = body_of(path, stream=self.chance.random() < 0.8)
        self.writer.write(head(path, len(content)) + content)
        await self.reader.read(self.chance.choice((1, 100, 1000)))

    async def stalls(self, path: str) -> None:
        """Asks, and does not read."""
        content = body_of(path, stream=True)
        self.writer.write(head(path, len(content)) + content)
        await asyncio.sleep(self.chance.random() * 0.2)

    async def garbage(self, path: str) -> None:
        content = self.chance.choice((self.chance.randbytes(200), b"[" * 5000, b'{"model": 7}', body_of(path, stream=True)[:-7]))
        self.writer.write(head(path, len(content)) + content)
        assert (await self.reader.read(-1)).startswith((b"HTTP/1.1 400", b"HTTP/1.1 422"))

    async def half(self, path: str) -> None:
        """Announces more than it sends, and stalls."""
        self.writer.write(head(path, 500) + b'{"model": ')
        await asyncio.sleep(self.chance.random() * 0.05)

    async def huge(self, path: str) -> None:
        self.writer.write(head(path, 10 * 1024 * 1024))
        piece = b" " * 65536
        for _ in range(160):  # 10 MB, or until the server has had enough
            self.writer.write(piece)
            await self.writer.drain()
        answer = await self.reader.read(-1)
        assert not answer or b" 413 " in answer[:20]

    async def no_http(self, _: str) -> None:
        self.writer.write(self.chance.randbytes(100) + b"\r\n\r\n")
        await self.reader.read(-1)


async def storm(port: int, requests: int, seed: int) -> None:
    """So many requests, some of them at a time."""
    chance, left = random.Random(seed), requests

    async def worker(number: int) -> None:
        nonlocal left
        own = random.Random(chance.random() + number)
        while left > 0:
            left -= 1
            await Client(port, own).behave()

    await asyncio.gather(*map(worker, range(AT_ONCE)))


async def settled(model: Counted) -> None:
    async with asyncio.timeout(60):
        while model.open:
            await asyncio.sleep(0.02)


def resident() -> int:
    """Bytes of memory this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def check(requests: int, growth: int) -> None:
    model = scripted_model()
    app = create_app({"m": model}, settings=Settings(requests=Requests(body_bytes=1024 * 1024), queue=AT_ONCE * 4))
    async with served(app, force=True, timeout_keep_alive=1) as url:
        port = int(url.rpartition(":")[2])
        await storm(port, requests // 5, seed=1)  # until everything that is loaded late is loaded
        await settled(model)
        tasks, before = len(asyncio.all_tasks()), resident()
        await storm(port, requests, seed=2)
        await settled(model)
        await asyncio.sleep(0.5)
        assert model.begun > requests // 10
        assert resident() - before < growth
        assert len(asyncio.all_tasks()) <= tasks + 2
        client = Client(port, random.Random(3))
        for path in PATHS:  # nothing is in the way of those who behave
            client.reader, client.writer = await asyncio.open_connection("127.0.0.1", port)
            await client.good(path)
            client.writer.close()
        health = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        client.reader, client.writer = await asyncio.open_connection("127.0.0.1", port)
        client.writer.write(health)
        told_of = json.loads((await client.reader.read(-1)).split(b"\r\n\r\n", 1)[1])
        client.writer.close()
        assert told_of["status"] == "ok"
        assert told_of["answering"] == 0  # no place is lost


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_a_storm_of_bad_clients_leaves_the_server_as_it_was():
    await check(500, growth=24 * 1024 * 1024)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_a_long_storm_of_bad_clients_leaves_the_server_as_it_was():
    await check(10_000, growth=32 * 1024 * 1024)
