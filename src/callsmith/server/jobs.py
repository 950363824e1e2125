"""Jobs in the store: they survive a restart, and of several servers one runs a job, which has the lease on it.

Of jobs and approved calls whose server was stopped, those that may be repeated start anew, and the rest is interrupted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from callsmith.core.errors import CallsmithError
from callsmith.core.ports import Toolset
from callsmith.core.serialize import DocumentCodec
from callsmith.core.types.tables import as_object
from callsmith.runtime.jobs.job import Job, JobChanged, JobLimits
from callsmith.server.store import Document, Stale, Store, caller_kind, leases, list_all
from callsmith.server.store.leases import Leases, put_through_outage, wait_until
from callsmith.tools.wrap import Filtered

if TYPE_CHECKING:
    from callsmith.server.service import Service  # needs the server's extra, which jobs of `callsmith mcp` do without

JOB_CODEC = DocumentCodec(Job, outside=frozenset({"id", "version"}))

_log = logging.getLogger(__name__)

_FIRST_ROUNDS = 6  # one after another as leases lapse: a server that was killed left its own behind
_SECONDS = 60.0  # between two later rounds, for other servers that share the store


class StoredJobs:
    """The storage of jobs (`JobStorage`) in a store."""

    def __init__(self, store: Store, limits: JobLimits) -> None:
        self._store = store
        self._limits = limits

    async def get(self, subject: str, id: str) -> Job | None:
        documents = await self._store.get(_job_kind(subject), id)
        return _read_job(documents[id]) if id in documents else None

    async def list(self, subject: str) -> Sequence[Job]:
        return sorted(map(_read_job, await list_all(self._store, _job_kind(subject))), key=lambda job: job.created)

    async def list_due(self, subject: str, conversation: str, ids: Collection[str]) -> Sequence[Job]:
        def is_due(document: Document) -> bool:  # every request asks: the others are not even read
            job = as_object(document.data)
            is_wanted = document.id in ids or (conversation and job.get("conversation") == conversation)
            return bool(is_wanted and job.get("ended") and not job.get("delivered"))

        due = filter(is_due, await list_all(self._store, _job_kind(subject)))
        return sorted(map(_read_job, due), key=lambda job: job.created)

    async def write(self, job: Job) -> Job:
        expires = job.ended + self._limits.stored_seconds if job.ended else None
        document = Document(_job_kind(job.subject), job.id, JOB_CODEC.write(job), job.version, expires)
        try:
            if job.ended:
                await put_through_outage(self._store, document)
            else:
                await self._store.put(document, durable=True)
        except Stale:
            raise JobChanged(job.id) from None
        return JOB_CODEC.read(document.data, id=job.id, version=job.version + 1)

    async def delete(self, job: Job) -> None:
        await self._store.delete(_job_kind(job.subject), job.id)

    def lease(self, job: Job) -> AbstractAsyncContextManager[bool]:
        return Leases(self._store, job.subject).take(job.id)

    async def wait_for_end(self, job: Job) -> Job | None:
        async def check() -> tuple[Job | None] | None:
            now = await self.get(job.subject, job.id)
            return None if now is not None and now.status == "running" else (now,)

        return (await wait_until(self._store, [job.id], check))[0]


def _job_kind(subject: str) -> str:
    return caller_kind("job", subject)


def _read_job(document: Document) -> Job:
    return JOB_CODEC.read(document.data, id=document.id, version=document.version or 0)


async def recover_jobs(service: "Service") -> None:
    """Look for jobs and calls of servers that were stopped, again and again, and recover them."""

    async def look() -> None:
        for subject in ("", *service.settings.keys):
            await service.tools.jobs.take_over(subject, _tools_of(service, subject))
            await service.answers.approvals(subject).interrupt_abandoned()

    await look_repeatedly(look)


async def look_repeatedly(look: Callable[[], Awaitable[None]]) -> None:
    """Look for what was left behind, for ever: at first, and after an outage of the store, as often as leases lapse, and then now
    and again."""
    rounds = 0
    while True:
        try:
            await look()
            rounds += 1
        except CallsmithError as error:  # the store is unreachable, or a job of a later release
            _log.warning("cannot look for jobs and calls of servers that were stopped: %s", error)
            rounds = 0
        await asyncio.sleep(leases.LEASE_SECONDS / 2 if rounds < _FIRST_ROUNDS else _SECONDS)


def _tools_of(service: "Service", subject: str) -> Toolset | None:
    """The server's tools that a caller may use."""
    keys, tools = service.settings.keys, service.tools.toolset
    if tools is None or not keys:
        return tools
    return Filtered(tools, allow=keys[subject].tools) if subject in keys else None
