"""Jobs that run in this process: started, followed, cancelled, and taken over from a process that was stopped."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import uuid4

from callsmith.core.closing import closing
from callsmith.core.errors import StoreUnavailable
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Checkpoint, Context, Toolset
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.execute import STANDARD_LIMITS
from callsmith.runtime.jobs.job import STANDARD_JOB_LIMITS, Job, JobChanged, JobLimits, JobStatus, JobStorage, MemoryJobs
from callsmith.runtime.nesting import enter_tool
from callsmith.runtime.results import log_raised, make_error_result, result_message

ACCEPTED = "accepted"  # the code of the result that a call gets which goes on in the background
_MOST_ATTEMPTS = 3  # at a job whose process is stopped again and again
_BY_CODE: dict[str, JobStatus] = {"cancelled": "cancelled", "interrupted": "interrupted"}
_GRACE = 2.0  # seconds a job may take to stop
_FOUND_SECONDS = 60.0  # for work that went on elsewhere and is found again when its time is over: it may have ended well
_NOBODY_TO_ASK = "it needs a person's approval in the middle of its work, and in the background nobody can be asked"
_UNREAD = 1_000  # progress that a follower has not taken yet, from which on it is dropped

_log = logging.getLogger(__name__)

Followed: TypeAlias = ToolProgress | Job


@dataclass(slots=True, eq=False)
class _RunningJob:
    """A job at work in this process. `lease` is held until it has ended; `stopped` is the result it gets when it is cancelled
    (None: it is left as it is, for another process). `answer` is what came before the tool had started: then it is no job."""

    job: Job
    context: Context
    lease: AsyncExitStack
    has_started: "asyncio.Future[None]"
    task: "asyncio.Task[None] | None" = None
    watch: "asyncio.Task[None] | None" = None
    answer: CallEvent | None = None
    is_cancelled: bool = False
    is_left: bool = False  # for another process, which takes it up
    stopped: Result | None = None
    progress: ToolProgress | None = None
    followers: list[asyncio.Queue[ToolProgress | None]] = field(default_factory=list[asyncio.Queue[ToolProgress | None]])

    def cancel(self, result: Result | None) -> None:
        if not self.is_cancelled and self.task is not None:
            self.is_cancelled, self.stopped = True, result
            self.task.cancel()

    def publish(self, progress: ToolProgress | None) -> None:
        """Pass on progress, or None at the end."""
        self.progress = progress or self.progress
        for inbox in self.followers:
            if progress is None or inbox.qsize() < _UNREAD:
                inbox.put_nowait(progress)


@dataclass(slots=True, eq=False)
class Jobs:
    """The jobs of a program or a server. Those of another caller do not exist for a caller."""

    storage: JobStorage = field(default_factory=MemoryJobs)
    limits: JobLimits = STANDARD_JOB_LIMITS
    result_characters: int = STANDARD_LIMITS.result_characters
    _working: dict[str, _RunningJob] = field(default_factory=dict[str, _RunningJob])

    async def begin(self, toolset: Toolset, tool: Tool, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        """Run a call up to where its tool starts; from there on it is a job. What comes before that is passed on: a question for
        a person, a refusal."""
        is_full = len(self._running(context.subject)) >= self.limits.running  # whoever floods is refused without a look elsewhere
        known = () if is_full else await self.storage.list(context.subject)
        elsewhere = {job.id for job in known if job.status == "running"}
        if len(elsewhere | self._running(context.subject)) >= self.limits.running:
            why = f"{self.limits.running} jobs are running, and no more may at a time: wait until one of them has ended"
            yield make_failure(call, "limit_reached", why)
            return
        work = self._launch(_new_job(tool, call, context), toolset, context, AsyncExitStack())
        assert work.task is not None
        try:
            await asyncio.wait({work.has_started, work.task}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            if not work.has_started.done():
                work.cancel(None)
            raise
        if work.has_started.done():
            await self._delete_oldest(known)
            text = f"{call.name} goes on in the background as {work.job.id}. Its result is not there yet; you will be given it."
            yield Result(call.id, call.name, text, code=ACCEPTED)
        elif work.answer is not None:
            yield work.answer
        else:
            await work.task  # raises what the tool has raised
            yield make_failure(call, "internal_error", f"{call.name} ended without a result")

    async def get(self, subject: str, id: str) -> Job | None:
        """The job of this id, if it is this caller's."""
        return await self.storage.get(subject, id)

    async def list(self, subject: str = "") -> Sequence[Job]:
        """The jobs of a caller, the oldest first."""
        return await self.storage.list(subject)

    async def list_due(self, subject: str, conversation: str, ids: Collection[str]) -> Sequence[Job]:
        """The jobs of a conversation, and those with these ids, that have ended and whose results have not come into it yet."""
        return await self.storage.list_due(subject, conversation, ids)

    def progress(self, id: str) -> ToolProgress | None:
        """What a job that runs in this process has reported last."""
        work = self._working.get(id)
        return work.progress if work else None

    async def follow(self, job: Job) -> AsyncIterator[Followed]:
        """The progress of a job, how far it is first, and at last the job when it has ended. Of one that runs in another process
        only the end."""
        work = self._working.get(job.id)
        if work is not None:
            inbox: asyncio.Queue[ToolProgress | None] = asyncio.Queue()
            work.followers.append(inbox)
            try:
                if work.progress is not None:
                    yield work.progress
                while (progress := await inbox.get()) is not None:
                    yield progress
            finally:
                work.followers.remove(inbox)
        ended = await self.storage.wait_for_end(job)
        if ended is not None:
            yield ended

    async def wait_for_one(self, jobs: Sequence[Job]) -> None:
        """Wait until one of these has ended."""
        waiting = [asyncio.ensure_future(self.storage.wait_for_end(job)) for job in jobs]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def deliver(self, job: Job) -> None:
        """The result of a job has come into its conversation: it is not brought there again."""
        if not job.delivered:
            with suppress(JobChanged, StoreUnavailable):  # rather once more than not at all
                await self.storage.write(replace(job, delivered=True))

    async def cancel(self, job: Job) -> Job | None:
        """Stop a job; the job as it is then. One that runs in another process is stopped there."""
        stopped, work = make_failure(job.call, "cancelled", f"{job.id} was cancelled{_doubt(job)}"), self._working.get(job.id)
        if work is not None and work.task is not None:
            work.cancel(stopped)
            await asyncio.wait({work.task}, timeout=_GRACE)
        now = await self.storage.get(job.subject, job.id)
        if now is None or now.status != "running":
            return now
        await self._end(now, stopped)  # it runs elsewhere, or does not let itself be stopped
        return await self.storage.get(job.subject, job.id)

    async def take_over(self, subject: str, toolset: Toolset | None) -> None:
        """Take up the jobs of a caller that run nowhere since their process was stopped: what may be repeated is started anew,
        and the rest has ended as interrupted."""
        orphans = [job for job in await self.storage.list(subject) if job.status == "running" and job.id not in self._working]
        await asyncio.gather(*(self._take_up(job, toolset) for job in orphans))

    async def _take_up(self, job: Job, toolset: Toolset | None) -> None:
        async with AsyncExitStack() as lease:
            is_ours = await lease.enter_async_context(self.storage.lease(job))
            now = await self.storage.get(job.subject, job.id) if is_ours else None
            if now is None or now.status != "running":
                return
            # What goes on elsewhere is not repeated, and looked for until its time is over.
            is_worn_out = now.attempts >= _MOST_ATTEMPTS and not (now.checkpoint and self._seconds_left(now))
            if toolset is None or not now.survives or is_worn_out:
                await self._end(now, _interrupt(now))
                return
            with suppress(JobChanged):  # it was cancelled just now
                again = await self.storage.write(replace(now, attempts=now.attempts + 1))
                self._launch(again, toolset, _context_of(again), lease.pop_all())

    async def close(self) -> None:
        """Stop all jobs. Those that go on are left for the next process, the others have ended as interrupted."""
        stopping = list(self._working.values())
        for work in stopping:
            work.is_left = work.job.survives
            work.cancel(_left_behind(work.job))
        if tasks := [work.task for work in stopping if work.task is not None]:
            await asyncio.wait(tasks, timeout=_GRACE)

    def _running(self, subject: str) -> set[str]:
        """The ids of a caller's jobs that run in this process."""
        return {id for id, work in self._working.items() if work.job.subject == subject}

    def _launch(self, job: Job, toolset: Toolset, context: Context, lease: AsyncExitStack) -> _RunningJob:
        work = _RunningJob(job, context, lease, asyncio.get_running_loop().create_future())
        self._working[job.id] = work
        work.task = asyncio.create_task(self._run(work, toolset))
        return work

    async def _run(self, work: _RunningJob, toolset: Toolset) -> None:
        """Run a job to its end, whatever that is, and store it."""
        result: Result | None = None
        async with work.lease:
            try:
                result = await self._answer(work, toolset)
            except asyncio.CancelledError:
                result = work.stopped if work.is_cancelled else self._cut_off(work.job)
            except (Exception, SystemExit) as error:  # whatever a tool does wrong is its result
                if not work.has_started.done() and not work.job.version:
                    raise
                log_raised(_log, "the tool %s raised %s in the background", work.job.call, error)
                result = make_error_result(work.job.call, error)
            finally:
                if work.watch is not None:
                    work.watch.cancel()
                work.is_cancelled = True  # it is over: what stores its end is not stopped any more
                if result is not None and work.has_started.done():
                    await asyncio.shield(self._end(work.job, result))
                del self._working[work.job.id]
                work.publish(None)

    def _cut_off(self, job: Job) -> Result | None:
        """The result of a job that nobody here has cancelled: its event loop ends, or its tool was cancelled within."""
        if (task := asyncio.current_task()) is not None and not task.cancelling():
            return make_failure(job.call, "internal_error", f"{job.call.name} was cancelled{_doubt(job)}")
        return _interrupt(job) if isinstance(self.storage, MemoryJobs) else _left_behind(job)  # of memory nobody takes it up

    async def _answer(self, work: _RunningJob, toolset: Toolset) -> Result | None:
        """What comes of the call; None if that came before the tool had started."""
        limit = asyncio.timeout(None)

        async def starting() -> None:
            await work.context.starting()
            if not work.has_started.done():
                await self._enter(work)
                least = _FOUND_SECONDS if work.job.checkpoint else 0.0
                limit.reschedule(asyncio.get_running_loop().time() + max(least, self._seconds_left(work.job)))

        async def save(value: str) -> None:
            with suppress(JobChanged, StoreUnavailable):  # it was ended elsewhere, or does not survive a restart
                work.job = await self.storage.write(replace(work.job, checkpoint=value))

        checkpoint = Checkpoint(work.job.checkpoint, save, lambda: work.is_left, is_job=True)
        context = replace(work.context, starting=starting, cancelled=lambda: work.is_cancelled, checkpoint=checkpoint)
        enter_tool(context)
        try:
            async with limit, closing(toolset.call(work.job.call, context)) as items:
                async for item in items:
                    if isinstance(item, ToolProgress):
                        work.publish(replace(item, call_id=work.job.call.id))
                    elif not work.has_started.done():
                        work.answer = item
                        return None
                    elif isinstance(item, Result):
                        return item
                    else:
                        return make_failure(work.job.call, "denied", _NOBODY_TO_ASK)
        except TimeoutError:
            if not limit.expired():
                raise
            return make_failure(work.job.call, "timeout", f"{work.job.id} took longer than it may{_doubt(work.job)}")
        return make_failure(work.job.call, "internal_error", f"{work.job.call.name} ended without a result")

    async def _enter(self, work: _RunningJob) -> None:
        """The tool is about to start: from here on the job is stored, and stops when another process ends it."""
        if not work.job.version:
            await work.lease.enter_async_context(self.storage.lease(work.job))
            writing = asyncio.ensure_future(self.storage.write(work.job))
            try:
                work.job = await asyncio.shield(writing)
            except asyncio.CancelledError:  # nobody wants it any more, and it has not begun: nothing of it stays
                with suppress(JobChanged, StoreUnavailable):
                    await self.storage.delete(await writing)
                raise
        work.watch = asyncio.create_task(self._cancel_when_ended(work))
        work.has_started.set_result(None)

    async def _cancel_when_ended(self, work: _RunningJob) -> None:
        while True:
            with suppress(StoreUnavailable):  # it is waited for already
                await self.storage.wait_for_end(work.job)
                return work.cancel(None)

    def _seconds_left(self, job: Job) -> float:
        most = max(self.limits.seconds, job.tool.timeout or 0.0)
        return min(most, max(0.0, job.created + most - time.time()))  # the clock may have been set back

    async def _end(self, job: Job, result: Result) -> None:
        """Store what has come of a job, cut to what the model reads of it. What was ended elsewhere stays as it is."""
        try:
            text = result_message(result, self.result_characters)[0].content
        except (TypeError, ValueError, RecursionError) as error:
            result = make_failure(job.call, "internal_error", f"the tool answered with something that is no JSON: {error}")
            text = result.text
        status = _BY_CODE.get(result.code, "done" if result.ok else "failed")
        own = Result(job.call.id, job.call.name, text, result.ok, result.code)
        with suppress(JobChanged):
            await self.storage.write(replace(job, status=status, result=own, ended=time.time()))

    async def _delete_oldest(self, known: Sequence[Job]) -> None:
        """Make room for another job: of those that have ended the oldest go, first those that are in their conversations."""
        ended = sorted((job for job in known if job.status != "running"), key=lambda job: (not job.delivered, job.created))
        for job in ended[: max(0, len(known) + 1 - self.limits.stored)]:
            await self.storage.delete(job)


def _new_job(tool: Tool, call: Call, context: Context) -> Job:
    has_token = context.authority is not None and bool(context.authority.token)  # it is not stored, so nothing is repeated
    return Job(
        f"job_{uuid4().hex[:24]}",
        call,
        tool,
        context.subject,
        context.conversation,
        time.time(),
        decision=context.decisions.get(call.id),
        repeatable=(tool.idempotent or not tool.side_effects) and not has_token,
    )


def _context_of(job: Job) -> Context:
    """The context of a job that is started anew: what was allowed once, for this definition of the tool, still is."""
    decisions = {} if job.decision is None else {job.call.id: job.decision}
    granted = frozenset({job.tool.grant})
    return Context(job.conversation, job.subject, decisions=decisions, asked={job.call.id: job.tool}, granted=granted)


def _left_behind(job: Job) -> Result | None:
    """The result of a job whose process ends; None if it goes on in the next one."""
    return None if job.survives else _interrupt(job)


def _interrupt(job: Job) -> Result:
    return make_failure(
        job.call, "interrupted", f"the program was stopped while {job.id} was running{_doubt(job)}; it was not run again"
    )


def _doubt(job: Job) -> str:
    return "; it may or may not have taken effect" if job.tool.side_effects else ""
