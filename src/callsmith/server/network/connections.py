"""Connections have bounds: how many there are, and how long a client may take for its headers, its body and its answer.

A new connection is let in as long as another one waits for its client: that one gives way. Of several it is one that has shown no
key, of whoever has the most, and of these the oldest.

    uvicorn.Config(app, http=limited_http(settings), ws=patient_websocket(5.0))

The protocols are uvicorn's own, whichever is installed; what is added costs a few comparisons for each piece that arrives.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from callsmith.server.settings import Settings

_MOST_HEADER_BYTES = 64 * 1024
_LEAST_BYTES = 16 * 1024  # of a body, in `body_seconds`
_CALLER = "callsmith.caller"  # in the state of a scope: whose key came with the request
_CLOSED = "HTTP/1.1 {}\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{}"


def show_caller(scope: MutableMapping[str, Any], name: str) -> None:
    """Tell the connection of a request whose key came with it."""
    scope.setdefault("state", {})[_CALLER] = name


class _LimitedConnection(asyncio.Protocol):
    """A connection that is refused if there are too many, gives way to others, and is closed if its client takes too long."""

    limits: ClassVar[Settings]
    # Those of uvicorn's protocols that are used here.
    transport: asyncio.Transport
    connections: set[Any]
    client: tuple[str, int] | None
    scope: Any
    cycle: Any
    flow: Any

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None  # while the client does not read
    _since = 0.0  # when it was made, or its last answer was complete
    _known: Any = None  # the last request whose headers are complete
    _head_bytes = 0  # of headers that are not complete
    _body_bytes = 0  # since the last look

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._since = asyncio.get_running_loop().time()
        if not self._has_room():
            self._close("503 Service Unavailable", "there are too many connections; try again later")
        else:
            self._wait(self.limits.header_seconds, self._check_headers)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self.cycle
        if cycle is not self._known:
            self._known, self._head_bytes, self._body_bytes = cycle, 0, 0
            self._stop_waiting()
            if cycle.more_body:
                self._wait(self.limits.body_seconds, self._check_body)
        elif self.transport.get_protocol() is not self:  # it is a WebSocket from now on
            self._stop_waiting()
        elif self.scope is not None and (cycle is None or self.scope is not cycle.scope):  # in the middle of headers
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEADER_BYTES:
                self._close("431 Request Header Fields Too Large", f"the headers are longer than {_MOST_HEADER_BYTES} bytes")
            elif self._timer is None:
                self._wait(self.limits.header_seconds, self._check_headers)
        elif not self._is_answering:
            if self._timer is None:
                self._wait(self.limits.header_seconds, self._check_headers)
        elif cycle.more_body:
            self._body_bytes += len(data)
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._since = asyncio.get_running_loop().time()
        cast(Any, super()).on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_reading(None)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_checking()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_checking()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_waiting(self) -> bool:
        """Whether nothing goes on before the client sends more."""
        cycle = self.cycle
        is_sending = self._is_answering and cycle.more_body and not cycle.response_started and not self.flow.read_paused
        return is_sending or not self._is_answering

    def _has_room(self) -> bool:
        """Whether there is room for this connection; if need be, another one gives way."""
        limits = self.limits
        if len(self.connections) <= min(limits.connections_per_address, limits.connections):
            return True
        there = [connection for connection in self.connections if not connection.transport.is_closing()]
        own = [connection for connection in there if _owner(connection) == _owner(self)]
        crowd = own if len(own) > limits.connections_per_address else there if len(there) > limits.connections else ()
        if not crowd:
            return True
        number = Counter(map(_owner, there))
        waiting = [other for other in crowd if other is not self and isinstance(other, _LimitedConnection) and other.is_waiting]
        if not waiting:
            return False
        min(waiting, key=lambda other: (bool(_caller(other)), -number[_owner(other)], other._since)).transport.abort()
        return True

    def _wait(self, seconds: float, check: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, check)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_reading(self, before: int | None) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent == before:
            self.transport.abort()
        else:
            loop = asyncio.get_running_loop()
            self._unread = loop.call_later(self.limits.stalled_seconds, self._check_reading, unsent)

    def _stop_checking(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _check_headers(self) -> None:
        self._timer = None
        if self._is_answering:  # an earlier request
            self._wait(self.limits.header_seconds, self._check_headers)
            return
        self._close("408 Request Timeout", f"the headers did not come within {self.limits.header_seconds:g} s")

    def _check_body(self) -> None:
        self._timer = None
        cycle = self._known
        if not cycle.more_body or cycle.response_complete:
            return
        if self._body_bytes >= _LEAST_BYTES or self.flow.read_paused:
            self._body_bytes = 0
            self._wait(self.limits.body_seconds, self._check_body)
        else:
            self._close("408 Request Timeout", f"the body did not come: next to nothing of it in {self.limits.body_seconds:g} s")

    def _close(self, status: str, why: str) -> None:
        if not (self._is_answering and self.cycle.response_started) and not self.transport.is_closing():
            self.transport.write(_CLOSED.format(status, len(why), why).encode())
        self.transport.close()


def _caller(connection: Any) -> str:
    """Whose key came with the latest request of a connection; empty if none did."""
    latest = connection.cycle if isinstance(connection, _LimitedConnection) else connection
    scope: dict[str, Any] | None = getattr(latest, "scope", None)
    return scope["state"].get(_CALLER, "") if scope else ""


def _owner(connection: Any) -> str:
    """Whose connection it is: a caller's, or else an address's."""
    return _caller(connection) or f"@{connection.client[0] if connection.client else ''}"


class _PatientWebSocket(asyncio.Protocol):
    """A WebSocket that is not closed at once when the server shuts down: the application ends it, or the grace period does."""

    grace: ClassVar[float]

    def shutdown(self) -> None:
        shutdown = cast("Callable[[], None]", getattr(super(), "shutdown"))  # noqa: B009  of uvicorn's protocol
        asyncio.get_running_loop().call_later(self.grace, shutdown)


def limited_http(limits: Settings, protocol: type[asyncio.Protocol] = AutoHTTPProtocol) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with the limits that the settings have for connections and slow clients."""
    return type("LimitedConnection", (_LimitedConnection, protocol), {"limits": limits})


def patient_websocket(grace: float) -> type[asyncio.Protocol]:
    """uvicorn's WebSocket protocol, with so many seconds for answers that are being given when the server shuts down."""
    return type("PatientWebSocket", (_PatientWebSocket, cast("type", AutoWebSocketsProtocol)), {"grace": grace})
