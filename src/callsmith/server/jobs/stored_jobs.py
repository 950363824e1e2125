"""Jobs in the store: they survive a restart, and of several servers one runs a job, which has the lease on it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from callsmith.core.serialize import DocumentCodec
from callsmith.runtime.jobs.job import Job, JobChanged, JobLimits
from callsmith.server.store import Document, Leases, Stale, Store, caller_kind, list_all, put_through_outage, wait_until

JOB_CODEC = DocumentCodec(Job, outside=frozenset({"id", "version"}))


class StoredJobs:
    """The storage of jobs (`JobStorage`) in a store."""

    def __init__(self, store: Store, limits: JobLimits) -> None:
        self._store = store
        self._limits = limits

    async def get(self, subject: str, id: str) -> Job | None:
        documents = await self._store.get(_kind(subject), id)
        return _read(documents[id]) if id in documents else None

    async def list(self, subject: str) -> Sequence[Job]:
        return sorted(map(_read, await list_all(self._store, _kind(subject))), key=lambda job: job.created)

    async def write(self, job: Job) -> Job:
        expires = job.ended + self._limits.stored_seconds if job.ended else None
        document = Document(_kind(job.subject), job.id, JOB_CODEC.write(job), job.version, expires)
        try:
            if job.ended:
                await put_through_outage(self._store, document)
            else:
                await self._store.put(document, durable=True)
        except Stale:
            raise JobChanged(job.id) from None
        return JOB_CODEC.read(document.data, id=job.id, version=job.version + 1)

    async def delete(self, job: Job) -> None:
        await self._store.delete(_kind(job.subject), job.id)

    def lease(self, job: Job) -> AbstractAsyncContextManager[bool]:
        return Leases(self._store, job.subject).take(job.id)

    async def wait_for_end(self, job: Job) -> Job | None:
        async def check() -> tuple[Job | None] | None:
            now = await self.get(job.subject, job.id)
            return None if now is not None and now.status == "running" else (now,)

        return (await wait_until(self._store, [job.id], check))[0]


def _kind(subject: str) -> str:
    return caller_kind("job", subject)


def _read(document: Document) -> Job:
    return JOB_CODEC.read(document.data, id=document.id, version=document.version or 0)
