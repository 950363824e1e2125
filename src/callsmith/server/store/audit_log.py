"""AuditLog: executions of tools and capabilities, written to the audit log of a store.

The start of what has side effects is on disk before it runs. All else is written in batches: within half a second, at the end of
the server, and whenever the log is read. A kill -9 loses at most that half second of ends, and of what has no side effects.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict

from callsmith.core.capability.execution import Execution
from callsmith.core.errors import StoreUnavailable
from callsmith.core.values import Json
from callsmith.server.settings import AuditLevel
from callsmith.server.store import AuditEntry, Store

_log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.5
_MOST_UNWRITTEN = 10_000  # while the store is unreachable; then the oldest are dropped, which is logged


class AuditLog:
    """An `Audit` that writes to a store. `request_id` gives the id of the request that is being answered, if there is one."""

    def __init__(self, store: Store, level: AuditLevel = "all", request_id: Callable[[], str] = str) -> None:
        self._store = store
        self._level = level
        self._request_id = request_id
        self._unwritten: list[Json] = []
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def __call__(self, execution: Execution) -> None:
        if self._level == "off" or (self._level == "side_effects" and not execution.side_effects):
            return
        if execution.outcome:
            self._unwritten.append(self._entry("executed", execution))
            self._flush_soon()
        elif execution.side_effects:
            await self._store.append(self._entry("started", execution))

    async def flush(self) -> None:
        """Write what is not written yet."""
        async with self._lock:
            entries, self._unwritten = self._unwritten, []
            if not entries:
                return
            try:
                await self._store.append(*entries)
            except BaseException:
                self._unwritten = [*entries, *self._unwritten]
                raise

    async def read(self, *, after: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Entries of the audit log in order, those of approvals among them, from the first one after `after`."""
        await self.flush()
        return await self._store.audit(after=after, limit=limit)

    async def close(self) -> None:
        """Write the rest."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self.flush()
        except StoreUnavailable as error:
            _log.error("%d entries of the audit log are lost: %s", len(self._unwritten), error)

    def _flush_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._timer, self._flushing = None, asyncio.create_task(self._flush_or_retry())

    async def _flush_or_retry(self) -> None:
        try:
            await self.flush()
        except StoreUnavailable as error:
            if (lost := len(self._unwritten) - _MOST_UNWRITTEN) > 0:
                del self._unwritten[:lost]
                _log.error("%d entries of the audit log are lost: %s", lost, error)
            self._flush_soon()

    def _entry(self, event: str, execution: Execution) -> Json:
        fields = {name: value for name, value in asdict(execution).items() if value not in ("", None, ())}
        return {"event": event, **fields, "trace_id": execution.trace_id or self._request_id()}
