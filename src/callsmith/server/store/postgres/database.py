"""A PostgreSQL database that may become unreachable: connections, deadlines, and errors that say whether to try again.

The driver is asyncpg: it needs no C library of the system, has LISTEN, and its licence asks nothing of users. It is imported when
a database is opened, so that nobody else needs it.

Servers that share a database tell each other of changed documents by LISTEN and NOTIFY. A notice is sent behind the write, and
several in one where there are many, so that writes do not wait for each other. It may get lost with its server: whoever waits
looks from time to time, too.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import count
from secrets import token_hex
from threading import Thread
from typing import Any, TypeVar

from callsmith.core.errors import MissingExtra, StoreUnavailable
from callsmith.server.store import Watchers

T = TypeVar("T")
_log = logging.getLogger(__name__)

WORK_SECONDS = 5.0  # that any piece of work may take, waiting for a connection included
_CONNECT_SECONDS = 3.0  # after which a database that does not answer is unreachable
_PAUSE_SECONDS = 1.0  # in which nobody tries again to reach an unreachable one
_ATTEMPTS = 5  # for work that conflicts with that of others
_HINT = "Does the database run, and can it be reached from here?"

CHANNEL = "callsmith_documents"
_MARKS = 400  # in one notice, which may have 8000 bytes
_ALIVE_SECONDS = 30.0  # between two looks whether the connection is alive
_RETRY_SECONDS = (0.5, 5.0)  # the first pause before another attempt to listen, and the longest


class UnfitDatabase(Exception):
    """A database that is there and cannot be used as it is."""


class Database:
    """Connections in an event loop of their own, which has a thread of its own: any event loop may use them.

    `prepare` is called with the first connection, and must have succeeded before any work is done.
    """

    def __init__(self, url: str, connections: int, prepare: Callable[[Any], Awaitable[None]]) -> None:
        self.driver = _driver()
        self.loop = asyncio.new_event_loop()
        self.is_unreachable = False
        self._url, self._most = url, connections
        self._prepare, self._preparing, self._is_prepared = prepare, asyncio.Lock(), False
        self._pool: Any = None
        self._blocked_until, self._blocked_by = 0.0, "it could not be reached"
        self._working: set[asyncio.Task[Any] | None] = set()
        driver = self.driver
        self._conflicts = (driver.DeadlockDetectedError, driver.SerializationError)
        ours = (driver.InterfaceError, driver.InternalClientError, UnfitDatabase)
        self.failures = (driver.PostgresError, *ours, OSError, TimeoutError)
        self._thread = Thread(target=self.loop.run_forever, name="callsmith-store", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do work with a connection; what was begun is finished, although the caller is cancelled."""
        done = asyncio.run_coroutine_threadsafe(self.attempt(work), self.loop)
        return await asyncio.shield(asyncio.wrap_future(done))

    def open(self) -> None:
        """Reach the database for the first time. If it is unreachable, that is logged; one that cannot be used is an error."""
        try:
            asyncio.run_coroutine_threadsafe(self.attempt(_nothing), self.loop).result()
        except StoreUnavailable as error:
            if not self._may_pass(error.__cause__):
                raise

    async def attempt(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """The same, in the loop of the connections."""
        task = asyncio.current_task()
        self._working.add(task)
        try:
            return await self._attempt(work)
        finally:
            self._working.discard(task)

    async def _attempt(self, work: Callable[[Any], Awaitable[T]]) -> T:
        for attempt in count(1):
            try:
                async with asyncio.timeout(WORK_SECONDS), self._connection() as connection:
                    done = await work(connection)
            except self._conflicts as error:
                if attempt == _ATTEMPTS:
                    raise self._unavailable(error) from error
                continue
            except self.failures as error:
                raise self._unavailable(error) from error
            if self.is_unreachable:
                self.is_unreachable = False
                _log.warning("the store is reachable again")
            return done
        raise AssertionError("there is always another attempt")

    async def connect(self, *args: Any, **options: Any) -> Any:
        """A connection of its own."""
        if not args:
            args, options = (self._url,), {"timeout": _CONNECT_SECONDS, "server_settings": _session()}
        try:
            return await self.driver.connect(*args, **options)
        except (OSError, TimeoutError) as error:
            self._blocked_until, self._blocked_by = self.loop.time() + _PAUSE_SECONDS, _reason(error)
            raise

    def close(self) -> None:
        """End all connections, and the loop with its thread."""
        if not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._close(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    async def _close(self) -> None:
        if ending := {task for task in self._working if task is not None}:
            await asyncio.wait(ending, timeout=WORK_SECONDS)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._pool is not None:
            self._pool.terminate()
        await asyncio.sleep(0)  # connections are closed by the loop

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any, None]:
        if self.loop.time() < self._blocked_until:  # many who try at once would each wait as long
            raise ConnectionError(self._blocked_by)
        pool = await self._open_pool()
        connection = await pool.acquire()
        try:
            if not self._is_prepared:
                await self._prepare_once(connection)
            yield connection
        except (*self.failures, asyncio.CancelledError) as error:
            if not isinstance(error, self._conflicts):  # nobody knows what state it is in
                with suppress(self.driver.InterfaceError):  # one that was lost is not ours any more
                    connection.terminate()
            raise
        finally:
            await pool.release(connection)

    async def _open_pool(self) -> Any:
        if self._pool is None:
            pool = self.driver.create_pool(
                self._url,
                min_size=0,
                max_size=self._most,
                connect=self.connect,
                reset=_nothing,  # a connection has no state of its own here
                timeout=_CONNECT_SECONDS,
                server_settings=_session(),
            )
            self._pool = pool  # without connections it is there at once: no other task comes in between
            await pool
        return self._pool

    async def _prepare_once(self, connection: Any) -> None:
        async with self._preparing:
            if not self._is_prepared:
                await self._prepare(connection)
                self._is_prepared = True

    def _unavailable(self, failure: Exception) -> StoreUnavailable:
        error = self._cause(failure)
        if isinstance(error, self.driver.UndefinedTableError):  # another database has taken its place
            self._is_prepared = False
        why = _reason(error)
        if not self.is_unreachable:
            self.is_unreachable = True
            _log.warning("the store is unreachable: %s", why)
        return StoreUnavailable("the store is unreachable", hint=f"{why}. {_HINT}" if self._may_pass(error) else why)

    def _cause(self, error: BaseException) -> BaseException:
        """What has gone wrong first: a driver that was interrupted goes on to complain about its own connection."""
        while isinstance(error, (self.driver.InterfaceError, self.driver.InternalClientError)) and error.__context__ is not None:
            error = error.__context__
        return error

    def _may_pass(self, error: BaseException | None) -> bool:
        """Whether it is not that the database is there and refuses."""
        driver = self.driver
        passing = (
            driver.PostgresConnectionError,
            driver.CannotConnectNowError,
            driver.TooManyConnectionsError,
            driver.AdminShutdownError,
        )
        refused = isinstance(error, (driver.PostgresError, UnfitDatabase)) and not isinstance(error, passing)
        return not refused


def _session() -> dict[str, str]:
    """The settings of a connection: the database is to end by itself what nobody waits for any more, in a lock for example.
    Else what was given up here would go on there, take the places of others, and be done after all."""
    return {"application_name": "callsmith", "statement_timeout": str(int(WORK_SECONDS * 1000))}


async def _nothing(_: Any) -> None:
    pass


def _reason(error: BaseException) -> str:
    is_late = isinstance(error, (TimeoutError, asyncio.CancelledError))
    return "it did not answer in time" if is_late else str(error) or type(error).__name__


def _driver() -> Any:
    try:
        import asyncpg  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError as error:
        raise MissingExtra("postgres", "a PostgreSQL store") from error
    return asyncpg  # pyright: ignore[reportUnknownVariableType]


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
