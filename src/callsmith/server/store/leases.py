"""Leases: of all processes that share a store, one at a time works on a run, a job or an answer.

Whoever has a lease renews it for as long as the work takes; one that nobody renews lapses. Clocks jump: a lapsed lease is watched
for a while before it is taken. The store may be unreachable for some time, too: waiting and writing go on through an outage.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import uuid4

from callsmith.core.errors import StoreUnavailable
from callsmith.server.store import DAY, Document, Stale, Store, caller_kind

T = TypeVar("T")

OUTAGE_SECONDS = 60.0  # that a store may be unreachable before waiting for it ends
_RETRY_SECONDS = 0.3

LEASE_SECONDS = 10.0  # after which a lease lapses that nobody renews
_LEASE = "held_run"
_RELEASED = ""  # in place of the holder: nobody has the lease


async def wait_until(
    store: Store, ids: Iterable[str], check: Callable[[], Awaitable[T | None]], *, look_at: float | None = None
) -> T:
    """Wait until `check` returns something other than None. It is called again whenever a document with one of these ids changes.

    What the store does not notice is looked for every `poll_seconds` of it, and at `look_at`. An outage is waited through.
    """
    poll, worked = store.poll_seconds, time.monotonic()
    with store.watch(*ids) as changed:
        while True:
            changed.clear()
            try:
                if (outcome := await check()) is not None:
                    return outcome
                worked = time.monotonic()
            except StoreUnavailable:
                if time.monotonic() - worked >= OUTAGE_SECONDS:
                    raise
            soon = poll if look_at is None else max(0.0, min(poll, look_at - time.time()))
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), soon if soon else poll)


async def put_through_outage(store: Store, *documents: Document, durable: bool = True) -> None:
    """Put documents, again and again while the store is unreachable: what a tool has done cannot be done again.

    A write that the store broke off may have succeeded: then the documents are found as they were to be written.
    """
    until, in_doubt = time.monotonic() + OUTAGE_SECONDS, False
    while True:
        try:
            return await store.put(*documents, durable=durable)
        except StoreUnavailable:
            in_doubt = True
            if time.monotonic() >= until:
                raise
        except Stale:
            if in_doubt and await _are_written(store, documents):
                return None
            raise
        await asyncio.sleep(_RETRY_SECONDS)


async def _are_written(store: Store, documents: Iterable[Document]) -> bool:
    """Whether all of them are in the store, written over the versions that they have here."""
    for document in documents:
        known = (await store.get(document.kind, document.id)).get(document.id)
        if known is None or known.version != (document.version or 0) + 1 or known.data != document.data:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of one caller, by the ids of what is worked on."""

    store: Store
    subject: str = ""

    @asynccontextmanager
    async def take(self, id: str) -> AsyncGenerator[bool, None]:
        """Take a lease for as long as the block lasts; whether it could be had."""
        lease = Document(caller_kind(_LEASE, self.subject), id, uuid4().hex)
        version = await self._take(lease)
        if not version:
            yield False
            return
        renewing = asyncio.create_task(self._renew(lease, version))
        try:
            yield True
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
            await self._release(lease)

    async def is_taken(self, id: str) -> bool:
        """Whether somebody has the lease, by the clock."""
        return _is_held((await self.store.get(caller_kind(_LEASE, self.subject), id)).get(id))

    async def is_free(self, id: str) -> bool:
        """Whether nobody has the lease, whatever the clock says: one could be had."""
        async with self.take(id) as is_ours:
            return is_ours

    async def _take(self, lease: Document) -> int:
        """Take a lease: the version at which it is ours; 0 if somebody else has it."""
        try:
            await self.store.put(replace(lease, version=0, expires=time.time() + LEASE_SECONDS))
        except Stale as stale:
            known = (await self.store.get(lease.kind, lease.id)).get(lease.id)
            if _is_held(known):
                return 0
            if known is None or known.data != _RELEASED:  # its holder is gone, or it was a clock that jumped: then it is renewed
                await asyncio.sleep(LEASE_SECONDS / 2)
            with suppress(Stale):
                await self.store.put(replace(lease, version=stale.found, expires=time.time() + LEASE_SECONDS))
                return stale.found + 1
            return 0
        return 1

    async def _renew(self, lease: Document, version: int) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            with suppress(StoreUnavailable):  # there is time for another attempt before it lapses
                try:
                    await self.store.put(replace(lease, version=version, expires=time.time() + LEASE_SECONDS))
                    version += 1
                except Stale:
                    known = (await self.store.get(lease.kind, lease.id)).get(lease.id)
                    if known is None or known.data != lease.data:
                        return  # it has lapsed and is another's: what we write from now on is refused
                    version = known.version or 0  # ours: a write that the store broke off had succeeded

    async def _release(self, lease: Document) -> None:
        """Let go of a lease, if it is still ours: another process may have it by now. Else it lapses by itself."""
        with suppress(Stale, StoreUnavailable):
            known = (await self.store.get(lease.kind, lease.id)).get(lease.id)
            if known is not None and known.data == lease.data:
                await self.store.put(replace(lease, data=_RELEASED, version=known.version, expires=time.time() + DAY))


def _is_held(lease: Document | None) -> bool:
    """Whether a lease is somebody's, by the clock. One for much longer than there are any is from before that was set back."""
    return lease is not None and lease.data != _RELEASED and (lease.expires or 0.0) <= time.time() + 2 * LEASE_SECONDS
