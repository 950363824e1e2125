"""A WebSocket connection to an application, in process."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette

_LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_PATIENCE = 20.0


class Socket:
    """The client's end of a connection."""

    def __init__(self) -> None:
        self.to_server: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_server: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.to_server.put_nowait({"type": "websocket.connect"})

    def send(self, **message: Any) -> None:
        """Send a request."""
        self.send_text(json.dumps({"type": "response.create", "model": "m", "input": "hi", **message}))

    def send_text(self, text: str) -> None:
        self.to_server.put_nowait({"type": "websocket.receive", "text": text})

    async def receive(self) -> Any:
        """The next event."""
        message = await asyncio.wait_for(self.from_server.get(), _PATIENCE)
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def answer(self, **message: Any) -> list[Any]:
        """Send a request, and return the events of its answer."""
        self.send(**message)
        return await self.events()

    async def events(self) -> list[Any]:
        """All events up to the next end of an answer."""
        events = [await self.receive()]
        while events[-1]["type"] not in _LAST:
            events.append(await self.receive())
        return events


@asynccontextmanager
async def connected(app: Starlette, path: str = "/v1/responses", **headers: str) -> AsyncIterator[Socket]:
    """A connection that was accepted, and is closed when the block is left."""
    async with connecting(app, path, **headers) as (socket, first):
        assert first["type"] == "websocket.accept", first
        yield socket


@asynccontextmanager
async def connecting(app: Starlette, path: str = "/v1/responses", **headers: str) -> AsyncIterator[tuple[Socket, dict[str, Any]]]:
    """A connection, and what the server first said to it."""
    socket = Socket()
    sent_headers = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {
        "type": "websocket",
        "path": path,
        "headers": sent_headers,
        "query_string": b"",
        "extensions": {"websocket.http.response": {}},
    }
    serving = asyncio.create_task(app(scope, socket.to_server.get, socket.from_server.put))
    try:
        yield socket, await asyncio.wait_for(socket.from_server.get(), _PATIENCE)
    finally:
        socket.to_server.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(serving, _PATIENCE)
