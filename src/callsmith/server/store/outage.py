"""Waiting and writing while the store is unreachable for some time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from callsmith.core.errors import StoreUnavailable
from callsmith.server.store.port import Document, Stale, Store

T = TypeVar("T")

OUTAGE_SECONDS = 60.0  # that a store may be unreachable before waiting for it ends
_RETRY_SECONDS = 0.3


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
