"""WebSockets: how many a caller has open, and clients that do not read."""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from starlette.websockets import WebSocket

from callsmith.server.http.request_context import client


class OpenSockets:
    """The WebSockets that are open, by who has opened them."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @property
    def number(self) -> int:
        """How many there are of all callers."""
        return self._open.total()

    def may_open(self, most: int) -> bool:
        """Whether the caller has fewer than that."""
        return self._open[client()] < most

    @contextmanager
    def count_open(self) -> Generator[None, None, None]:
        """Count one more of the caller's, while the block lasts."""
        who = client()
        self._open[who] += 1
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]


class SocketWriter:
    """Sends messages, and notices when the client has not read for `stalled` seconds."""

    def __init__(self, socket: WebSocket, stalled: float) -> None:
        self._socket = socket
        self._stalled = stalled
        self._since: float | None = None

    async def send(self, *messages: bytes, binary: bool = False) -> None:
        """Send messages, which are UTF-8."""
        self._since = asyncio.get_running_loop().time()
        try:
            for message in messages:
                await (self._socket.send_bytes(message) if binary else self._socket.send_text(message.decode()))
        finally:
            self._since = None

    async def wait_until_stalled(self) -> None:
        """Return when the client has not read for too long."""
        clock = asyncio.get_running_loop().time
        while self._since is None or clock() - self._since < self._stalled:
            await asyncio.sleep(self._stalled / 4)
