"""Whether the store works, for monitoring: checked from time to time, never more often."""

import asyncio
import time
from collections.abc import Callable

from callsmith.core.errors import CallsmithError
from callsmith.server.store.port import Store

_CHECK_SECONDS = 2.0  # that a check may take


class StoreProbe:
    """Has the store checked at most once in so many seconds; in between the last outcome holds."""

    def __init__(self, store: Store, *, seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._checked_at: float | None = None
        self._problem = ""

    async def problem(self) -> str:
        """What is wrong with the store; empty if nothing is."""
        async with self._lock:
            if self._checked_at is None or self._clock() - self._checked_at >= self._seconds:
                self._problem = await self._check()
                self._checked_at = self._clock()
            return self._problem

    async def _check(self) -> str:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._store.check()
        except TimeoutError:
            return f"the store did not answer within {_CHECK_SECONDS:g} s"
        except CallsmithError as error:
            return str(error)
        return ""
