"""Notices of changed documents among servers that share a PostgreSQL database: LISTEN and NOTIFY.

A notice is sent behind the write, and several in one where there are many, so that writes do not wait for each other. It may get
lost with its server: whoever waits looks from time to time, too.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from secrets import token_hex
from typing import Any

from callsmith.core.errors import StoreUnavailable
from callsmith.server.store.port import Watchers
from callsmith.server.store.postgres.database import Database

_log = logging.getLogger(__name__)

CHANNEL = "callsmith_documents"
_MARKS = 400  # in one notice, which may have 8000 bytes
_ALIVE_SECONDS = 30.0  # between two looks whether the connection is alive
_RETRY_SECONDS = (0.5, 5.0)  # the first pause before another attempt to listen, and the longest


def mark(id: str) -> str:
    """What stands for an id in a notice: short, and of no use to others who listen."""
    return blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Notices:
    """Sends what this process has changed, and wakes those who wait for what others have. All in the database's loop."""

    def __init__(self, database: Database, watchers: Watchers) -> None:
        self._database = database
        self._watchers = watchers
        self._own = token_hex(8)
        self._outbox: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Listen from now on, if that is not done yet; from any thread."""
        if self._listener is None:
            self._database.loop.call_soon_threadsafe(self._start_listening)

    def send(self, *marks: str) -> None:
        """Tell the others, soon."""
        self._outbox.update(marks)
        if self._sender is None and self._outbox:
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._outbox:
                sent = [self._outbox.pop() for _ in range(min(_MARKS, len(self._outbox)))]
                await self._database.attempt(partial(_notify, " ".join((self._own, *sent))))
        except StoreUnavailable:
            self._outbox.clear()  # they see it when they look
        finally:
            self._sender = None

    def _start_listening(self) -> None:
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        pause, longest = _RETRY_SECONDS
        while True:
            with suppress(*self._database.failures):
                connection = await self._database.connect()
                try:
                    await connection.add_listener(CHANNEL, self._notice)
                    self._watchers.notify_all()  # much may have happened while nobody listened
                    pause = _RETRY_SECONDS[0]
                    await self._until_lost(connection)
                finally:
                    connection.terminate()
            await asyncio.sleep(pause)
            pause = min(longest, 2 * pause)

    async def _until_lost(self, connection: Any) -> None:
        lost = asyncio.Event()

        def on_end(_: Any) -> None:
            lost.set()

        connection.add_termination_listener(on_end)
        while not lost.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), _ALIVE_SECONDS)
            if not lost.is_set():
                await connection.execute("SELECT 1", timeout=5.0)

    def _notice(self, connection: Any, process: int, channel: str, notice: str) -> None:
        sender, *marks = notice.split(" ")
        if sender != self._own:
            self._watchers.notify(*marks)


async def _notify(notice: str, connection: Any) -> None:
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, notice)
