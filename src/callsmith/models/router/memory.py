"""`MemoryBudget`: how much memory loaded models may take together. The one that was not asked for longest makes room."""

import asyncio
import ctypes
import sys
from typing import Final, Protocol

from callsmith.core.errors import Unavailable
from callsmith.core.types.quantities import write_size

_PATIENCE: Final = 30.0  # seconds that a load waits for models in use
_RETRY: Final = 5.0  # seconds after which a client that was refused may ask again


def return_free_memory() -> None:
    """Give memory that is free back to the system. The C library of Linux would hold back a tenth of a model and more."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class Tenant(Protocol):
    """A model that takes memory while it is loaded."""

    @property
    def name(self) -> str: ...

    @property
    def memory(self) -> int:
        """The bytes it takes."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and nobody uses it."""
        ...

    @property
    def last_used(self) -> float: ...

    async def unload(self) -> None: ...


class MemoryBudget:
    """The bytes that loaded models may take; None: any number."""

    def __init__(self, limit: int | None = None, *, patience: float = _PATIENCE) -> None:
        self._limit = limit
        self._patience = patience
        self._tenants: set[Tenant] = set()
        self._changed = asyncio.Event()

    @property
    def used(self) -> int:
        return sum(one.memory for one in self._tenants)

    def add(self, tenant: Tenant) -> None:
        """Count a model that is loaded, whether there is room or not."""
        self._tenants.add(tenant)

    def remove(self, tenant: Tenant) -> None:
        """Do not count a model any more: it is unloaded."""
        self._tenants.discard(tenant)
        self.notify()

    def notify(self) -> None:
        """Let those that wait for room look again: a model is idle, or unloaded."""
        self._changed.set()

    def check(self, tenant: Tenant) -> None:
        """Raise `Unavailable` if the model would not fit even alone."""
        if self._limit is not None and tenant.memory > self._limit:
            raise Unavailable(
                f"{tenant.name} needs about {write_size(tenant.memory)}, and models may take {write_size(self._limit)} together",
                hint="Allow more with --memory, or give the model a smaller context.",
            )

    async def make_room(self, tenant: Tenant) -> None:
        """Count a model that is about to be loaded; what is idle is unloaded for it, and what is in use is waited for."""
        self.check(tenant)
        limit = self._limit
        try:
            async with asyncio.timeout(self._patience):
                while limit is not None and self.used + tenant.memory > limit:
                    await self._free(self.used + tenant.memory - limit)
        except TimeoutError:
            busy = ", ".join(sorted(one.name for one in self._tenants if not one.is_idle))
            raise Unavailable(
                f"there is no room for {tenant.name} now: {busy} in use; try again later", retryable=True, seconds=_RETRY
            ) from None
        self._tenants.add(tenant)

    async def _free(self, needed: int) -> None:
        """Unload the model that was not asked for longest; if all idle ones together would not do, wait for another."""
        idle = sorted((one for one in self._tenants if one.is_idle and one.memory), key=lambda one: one.last_used)
        if sum(one.memory for one in idle) >= needed:
            await asyncio.shield(idle[0].unload())
        else:
            self._changed.clear()
            await self._changed.wait()
