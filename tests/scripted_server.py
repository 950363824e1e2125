"""A server that gives scripted answers on a real socket, as others' servers send them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from callsmith.engines.upstream import RetryPolicy

QUICK = RetryPolicy(connect=2, begin=2, silence=2, pause=0.01, longest_pause=0.2)
Speak = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Scripted:
    """A server that says something else at each request; the last again and again. `asked` are the bodies, `paths` the paths."""

    says: list[bytes | Speak]
    asked: list[Any] = field(default_factory=list[Any])
    paths: list[str] = field(default_factory=list[str])
    headers: list[str] = field(default_factory=list[str])
    left: int = 0  # clients that went away before the end
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            sizes = [line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
            body = await reader.readexactly(int(sizes[0])) if sizes else b""
            self.paths.append(head.split(" ")[1])
            self.headers.append(head.lower())
            self.asked.append(json.loads(body) if body else None)
            answer = self.says.pop(0) if len(self.says) > 1 else self.says[0]
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left += 1
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*says: bytes | Speak) -> AsyncIterator[Scripted]:
    """Such a server, until the block is left."""
    served = Scripted(list(says))
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    """A response with this body."""
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}connection: close\r\n\r\n".encode()
        + body
    )
