"""Jobs in the store: they survive a restart, and of several servers one runs a job, which has the lease on it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from callsmith.core.errors import StoreUnavailable
from callsmith.core.serialize import DocumentCodec
from callsmith.runtime.jobs.job import Job, JobChanged, JobLimits
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.store import Document, Stale, Store

JOB_CODEC = DocumentCodec(Job, outside=frozenset({"id", "version"}))
_PAGE = 500
_OUTAGE_SECONDS = 60.0  # that a store may be away while the result of a job is to be stored
_RETRY_SECONDS = 0.5


class StoredJobs:
    """The storage of jobs (`JobStorage`) in a store."""

    def __init__(self, store: Store, limits: JobLimits) -> None:
        self._store = store
        self._limits = limits

    async def get(self, subject: str, id: str) -> Job | None:
        found = await self._store.get(_kind(subject), id)
        return _read(found[id]) if id in found else None

    async def list(self, subject: str) -> Sequence[Job]:
        jobs, after = list[Job](), ""
        while page := await self._store.list(_kind(subject), after=after, limit=_PAGE):
            jobs += map(_read, page)
            after = page[-1].id
        return sorted(jobs, key=lambda job: job.created)

    async def write(self, job: Job) -> Job:
        expires = job.ended + self._limits.stored_seconds if job.ended else None
        document = Document(_kind(job.subject), job.id, JOB_CODEC.write(job), job.version, expires)
        until = time.monotonic() + (_OUTAGE_SECONDS if job.ended else 0.0)  # what was done cannot be done again
        while True:
            try:
                await self._store.put(document, durable=True)
                break
            except Stale:
                now = await self.get(job.subject, job.id)
                if now is None or JOB_CODEC.write(now) != document.data:  # else it was written after all, in an outage
                    raise JobChanged(job.id) from None
                break
            except StoreUnavailable:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
        return JOB_CODEC.read(document.data, id=job.id, version=job.version + 1)

    async def delete(self, job: Job) -> None:
        await self._store.delete(_kind(job.subject), job.id)

    def lease(self, job: Job) -> AbstractAsyncContextManager[bool]:
        return Approvals(self._store, job.subject).lease(job.id)

    async def wait_for_end(self, job: Job) -> Job | None:
        async def check() -> tuple[Job | None] | None:
            now = await self.get(job.subject, job.id)
            return None if now is not None and now.status == "running" else (now,)

        return (await Approvals(self._store, job.subject).wait([job.id], check))[0]


def _kind(subject: str) -> str:
    return f"job/{subject}" if subject else "job"


def _read(document: Document) -> Job:
    return JOB_CODEC.read(document.data, id=document.id, version=document.version or 0)
