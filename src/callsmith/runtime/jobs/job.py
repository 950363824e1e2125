"""Job: a call that goes on in the background, and the port of where jobs are stored."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from callsmith.core.approval import Decision
from callsmith.core.types.field_checks import check_fields
from callsmith.core.values import Call, Result, Tool

JobStatus: TypeAlias = Literal["running", "done", "failed", "cancelled", "interrupted"]


@check_fields
@dataclass(frozen=True, slots=True)
class JobLimits:
    """How many jobs of a caller may run at a time, how many are stored, for how many seconds one may run, and for how many the
    result of one that has ended is stored."""

    running: int = 16
    stored: int = 200
    seconds: float = 60 * 60.0
    stored_seconds: float = 7 * 24 * 60 * 60.0


STANDARD_JOB_LIMITS = JobLimits()


@dataclass(frozen=True, slots=True)
class Job:
    """A call that goes on in the background, or did. `tool` is what it runs, `decision` what a person said about the call.

    `repeatable`: it may be started anew after its program was stopped; it has been `attempts` times. `checkpoint` is what its
    tool has noted to find work that goes on elsewhere: with one it is taken up again, not repeated. Of what has ended, `result`
    is what came of it, and `delivered` says that it has come into the conversation.
    """

    id: str
    call: Call
    tool: Tool
    subject: str
    conversation: str
    created: float
    status: JobStatus = "running"
    ended: float = 0.0
    decision: Decision | None = None
    repeatable: bool = False
    attempts: int = 1
    checkpoint: str = ""
    result: Result | None = None
    delivered: bool = False
    version: int = 0

    @property
    def survives(self) -> bool:
        """Whether it goes on after its program was stopped."""
        return self.repeatable or bool(self.checkpoint)


class JobChanged(Exception):
    """Somebody else has written the job in the meantime: theirs counts."""


class JobStorage(Protocol):
    """Where jobs are stored: memory, or a server's store."""

    async def get(self, subject: str, id: str) -> Job | None: ...

    async def list(self, subject: str) -> Sequence[Job]:
        """The jobs of a caller, the oldest first."""
        ...

    async def list_due(self, subject: str, conversation: str, ids: Collection[str]) -> Sequence[Job]:
        """The jobs of a conversation, and those with these ids, that have ended and whose results have not come into it yet."""
        ...

    async def write(self, job: Job) -> Job:
        """Store a job, durably, over the version it has; the job as it is then. `JobChanged` if it is at another one."""
        ...

    async def delete(self, job: Job) -> None: ...

    def lease(self, job: Job) -> AbstractAsyncContextManager[bool]:
        """Whether the job is this process's for as long as the block lasts: nobody else may run it."""
        ...

    async def wait_for_end(self, job: Job) -> Job | None:
        """The job once it is not running any more; None if it is gone."""
        ...


class MemoryJobs:
    """Stores jobs in memory: they end with the program."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}
        self._changed = asyncio.Event()

    async def get(self, subject: str, id: str) -> Job | None:
        return self._jobs.get((subject, id))

    async def list(self, subject: str) -> Sequence[Job]:
        return [job for (whose, _), job in self._jobs.items() if whose == subject]

    async def list_due(self, subject: str, conversation: str, ids: Collection[str]) -> Sequence[Job]:
        ended = [job for job in await self.list(subject) if job.ended and not job.delivered]
        return [job for job in ended if job.id in ids or (conversation and job.conversation == conversation)]

    async def write(self, job: Job) -> Job:
        known = self._jobs.get((job.subject, job.id))
        if (known.version if known else 0) != job.version:
            raise JobChanged(job.id)
        stored = self._jobs[job.subject, job.id] = replace(job, version=job.version + 1)
        self._notify()
        return stored

    async def delete(self, job: Job) -> None:
        self._jobs.pop((job.subject, job.id), None)
        self._notify()

    def lease(self, job: Job) -> AbstractAsyncContextManager[bool]:
        return nullcontext(enter_result=True)

    async def wait_for_end(self, job: Job) -> Job | None:
        while (known := self._jobs.get((job.subject, job.id))) and known.status == "running":
            await self._changed.wait()
        return known

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
