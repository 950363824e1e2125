"""Graceful shutdown: requests that are still being answered get a complete last response."""

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callsmith.core.errors import Unavailable
from callsmith.server.http.errors import dialect_of
from callsmith.server.http.streams import DIRECT_SEND, encode

DISCONNECTED = 499  # the status with which the application answers a client that has disconnected
DRAINING = "callsmith.draining"  # in a scope: an event that is set once the server is shutting down


class GracefulShutdown:
    """An ASGI application around another one that can be shut down.

    From `drain` on it reports that it is not ready for more. From `stop` on the application inside finds that its clients have
    disconnected, and cancels its work as it does for any such client. The clients, which are still connected, get an error in
    their own dialect: a last frame in a stream that has begun, and a 503 otherwise.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._leaving = asyncio.Event()
        self._requests: set[_StoppableRequest] = set()
        self._is_stopped = False

    def drain(self) -> None:
        """Report from now on that the server is not ready."""
        self._leaving.set()

    def stop(self) -> None:
        """End all answers."""
        self._leaving.set()
        self._is_stopped = True
        for request in self._requests:
            request.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, DRAINING: self._leaving}
        if scope["type"] != "http":  # a WebSocket ends itself, as soon as it has answered
            await self._app(scope, receive, send)
            return
        request = _StoppableRequest(scope, receive, send, is_stopped=self._is_stopped)
        scope[DIRECT_SEND] = send
        self._requests.add(request)
        try:
            await self._app(scope, request.receive, request.send)
        finally:
            self._requests.discard(request)
        await request.finish()


class _StoppableRequest:
    """One request and its response, which can be cut off by `stop`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, is_stopped: bool) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_stopped = is_stopped
        self._arriving: asyncio.Future[Message] | None = None
        self._begun = False
        self._kind = b""  # the content type of what has begun
        self._ended = False
        self._refused = False

    async def receive(self) -> Message:
        """The next message of the client, or a disconnect once the server stops."""
        arriving = self._arriving = asyncio.ensure_future(self._receive())
        if self._is_stopped:
            arriving.cancel()
        try:
            return await arriving
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_stopped or (task is not None and task.cancelling()):
                raise
            return {"type": "http.disconnect"}

    def stop(self) -> None:
        """Let the application find that its client has disconnected."""
        self._is_stopped = True
        if self._arriving is not None:
            self._arriving.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._refused = self._is_stopped and message["status"] == DISCONNECTED
            self._begun = not self._refused
            self._kind = dict(message.get("headers", ())).get(b"content-type", b"")
        if self._refused:
            return
        self._ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def finish(self) -> None:
        """Send the last frame or response, if the server stopped before the application had ended its own."""
        if not self._is_stopped or self._ended:
            return
        dialect, error = dialect_of(Request(self._scope)), Unavailable("the server is shutting down", retryable=True)
        failure = dialect.write_error(error)
        body = encode(failure.body)
        if self._begun:
            body = dialect.write_failure_frame(error) if self._kind.startswith(b"text/event-stream") else body + b"\n"
        else:
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await self._send({"type": "http.response.start", "status": failure.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
