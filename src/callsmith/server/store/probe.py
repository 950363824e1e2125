"""Whether the store works, for watchers: looked at from time to time, never more often."""

import asyncio
import time
from collections.abc import Callable

from callsmith.core.errors import CallsmithError
from callsmith.server.store.port import Store

_PATIENCE = 2.0  # seconds a look may take


class StoreProbe:
    """Has the store checked at most once in so many seconds; in between the last outcome holds."""

    def __init__(self, store: Store, *, seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._looked: float | None = None
        self._trouble = ""

    async def trouble(self) -> str:
        """What is wrong with the store; empty if nothing is."""
        async with self._lock:
            if self._looked is None or self._clock() - self._looked >= self._seconds:
                self._trouble = await self._look()
                self._looked = self._clock()
            return self._trouble

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store.check()
        except TimeoutError:
            return f"the store did not answer within {_PATIENCE:g} s"
        except CallsmithError as error:
            return str(error)
        return ""
