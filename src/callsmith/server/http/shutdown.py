"""Ending a server in good order: what is still being answered is told so, in a response that is whole."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callsmith.core.errors import Unavailable
from callsmith.core.values import Json
from callsmith.server.http.dialects import dialect_of
from callsmith.wire.sse import write_frame

DISCONNECTED = 499  # what the application answers when it takes its client for gone
DRAINING = "callsmith.draining"  # in a request's scope: the server takes no further work


class GracefulShutdown:
    """An ASGI application that can be told to stop.

    From `leave` on it says that it is not ready for more. From `stop` on the application within finds its clients gone, and gives
    up its work as it does for any client that leaves. The clients, who are still there, get a last frame in a stream that has
    begun, and a 503 otherwise, in their own dialect.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._leaving = False
        self._stop = asyncio.Event()

    def drain(self) -> None:
        """Take no further work."""
        self._leaving = True

    def stop(self) -> None:
        """End all answers."""
        self._leaving = True
        self._stop.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, DRAINING: self._leaving}
        exchange = _StoppableRequest(scope, receive, send, self._stop)
        await self._app(scope, exchange.receive, exchange.send)
        await exchange.finish()


class _StoppableRequest:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, stop: asyncio.Event) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._stop = stop
        self._begun = False
        self._kind = b""  # the content type of what has begun
        self._ended = False
        self._refused = False

    async def receive(self) -> Message:
        """What the client sends; that it is gone, once we are to stop."""
        arriving, stopping = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({arriving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return arriving.result() if arriving.done() else {"type": "http.disconnect"}
        finally:
            arriving.cancel()
            stopping.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._refused = self._stop.is_set() and message["status"] == DISCONNECTED
            self._begun = not self._refused
            self._kind = dict(message.get("headers", ())).get(b"content-type", b"")
        if self._refused:
            return
        self._ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def finish(self) -> None:
        """Say the last word, if we were told to stop before the application could."""
        if not self._stop.is_set() or self._ended:
            return
        failure = dialect_of(Request(self._scope)).write_error(Unavailable("the server is shutting down", retryable=True))
        body = msgspec.json.encode(failure.body)
        if not self._begun:
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await self._send({"type": "http.response.start", "status": failure.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": self._last(body, failure.body) if self._begun else body})

    def _last(self, body: bytes, told: dict[str, Json]) -> bytes:
        """The last words of a stream. Where a dialect's events have names, they are also in their bodies."""
        if self._kind.startswith(b"text/event-stream"):
            return write_frame(body, str(told.get("type", "")).encode())
        return body + b"\n"
