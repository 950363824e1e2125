"""A run of the server's tools that can wait for a person: what waits is in the store before anybody is asked.

From its first pause on the run is written to the store at every step, so that any process can resume it. Its journal is the one
that conversations have (`runtime.conversation.journal`); here it is stored together with the approvals it is about.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from typing import TypeAlias
from uuid import uuid4

from callsmith.core.approval import Approved, Denied
from callsmith.core.closing import closing
from callsmith.core.errors import Unavailable
from callsmith.core.events import CallDeferred, ConfirmationNeeded, RunEvent, ToolFinished, TurnEnded
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Message, Result, Usage
from callsmith.runtime.conversation.history import joined
from callsmith.runtime.conversation.journal import Journal, asked_anew
from callsmith.runtime.conversation.pausable_run import PausableRun
from callsmith.server.approvals.approvals import Approval, Approvals, PausedRun
from callsmith.server.store import Stale, wait_until
from callsmith.server.tools.plan import RunPlan

_ATTEMPTS = 5  # to write what others write at the same time


# Waits for a person: what the awaitable comes to.
WhileWaiting: TypeAlias = Callable[[Awaitable[list[Approval]]], Awaitable[list[Approval]]]


def _waited(work: Awaitable[list[Approval]]) -> Awaitable[list[Approval]]:
    return work


class RunStorage:
    """The journal of a run in the server's store, from its first pause on, with the approvals of its calls.

    Calls run at once and write at once: one write after another, each at the version of the last. A write that was begun is
    finished although its call is cancelled, for otherwise nobody would know that version.
    """

    def __init__(self, approvals: Approvals, paused: PausedRun | None) -> None:
        self._approvals = approvals
        self._lock = asyncio.Lock()
        self.paused = paused  # as it is in the store; None before the first pause
        self.decided: dict[str, Approval] = {}  # by call id, until the call has its result

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        """Store the state, and what becomes of the approvals of calls that start or have a result, all or nothing."""
        await asyncio.shield(self._write(saved, starting, results))

    async def put(self, saved: Saved, *approvals: Approval) -> None:
        """Write the run, if it has paused, and these approvals, all or nothing."""
        await asyncio.shield(self._locked_put(saved, approvals))

    def asked_anew(self, waiting: Iterable[ConfirmationNeeded]) -> list[Approval]:
        """The approvals of calls that are asked about once more because their tools have changed: they are over."""
        known = ((one.id, self.decided[one.call.id]) for one in waiting if one.call.id in self.decided)
        return [
            replace(old, status="expired", result=asked_anew(old.call), replaced_by=new, changed=time.time())
            for new, old in known
            if new != old.id
        ]

    async def _write(self, saved: Saved, starting: Call | None, results: Sequence[Result]) -> None:
        async with self._lock:
            began = self.decided.get(starting.id) if starting else None
            changed = [replace(began, status="running", changed=time.time())] if began and not _is_denied(began) else []
            done = [_with_result(self.decided[one.call_id], one) for one in results if one.call_id in self.decided]
            is_new = self.paused is not None and saved != self.paused.saved
            if changed or done or is_new:
                await self._put(saved, [*changed, *done], durable=starting is not None, through_outage=bool(results))
            for approval in done:
                del self.decided[approval.call.id]
                await self._approvals.audit("answered", approval)

    async def _locked_put(self, saved: Saved, approvals: Sequence[Approval]) -> None:
        async with self._lock:
            await self._put(saved, approvals, durable=True)

    async def _put(self, saved: Saved, approvals: Sequence[Approval], *, durable: bool, through_outage: bool = False) -> None:
        runs = [] if self.paused is None else [replace(self.paused, saved=saved)]
        for one in await self._approvals.write(*runs, *approvals, durable=durable, through_outage=through_outage):
            if isinstance(one, PausedRun):
                self.paused = one
            elif one.call.id in self.decided and self.decided[one.call.id].id == one.id:
                self.decided[one.call.id] = one


class ApprovalRun:
    """One run: its events up to where it pauses, or to its end if it waits for decisions."""

    def __init__(
        self, plan: RunPlan, approvals: Approvals, paused: PausedRun | None = None, while_waiting: WhileWaiting = _waited
    ) -> None:
        self._plan = plan
        self._while_waiting = while_waiting
        self._approvals = approvals
        self._storage = RunStorage(approvals, paused)
        began = Saved(plan.context.conversation, plan.request.messages, plan.context.subject)
        self._journal = Journal(began if paused is None else paused.saved, self._storage, plan.limits)
        self._run = PausableRun(plan.model, plan.tools, self._journal, plan.deferred, plan.limits)
        self._waiting: dict[str, ConfirmationNeeded] = {}  # what is asked in this leg, by its id
        self._ended = TurnEnded((), "stop")
        self._is_deferred = False  # the client has calls to run

    async def events(self) -> AsyncIterator[RunEvent]:
        """Everything that happens; the last event is TurnEnded."""
        added, usage = tuple[Message, ...](), Usage()
        async with AsyncExitStack() as leases:
            try:
                for result in await self._take_up():
                    yield ToolFinished(result)
                while True:
                    async with closing(self._leg()) as events:
                        async for event in events:
                            yield event
                    added, usage = joined(added, self._ended.messages), usage + self._ended.usage
                    if not self._waiting:
                        break
                    await self._pause(leases)
                    for asked in self._waiting.values():
                        yield asked
                    answered = await self._wait()
                    if answered is None:
                        break
                    for result in answered:
                        yield ToolFinished(result)
                if not self._waiting:
                    await self._finish()
                yield replace(self._ended, messages=added, usage=usage)
            except BaseException:
                await self._journal.cancel_started()
                raise

    async def _take_up(self) -> list[Result]:
        """Begin with what was decided, and with what is known of calls that had begun when the run was left."""
        session, is_first = self._plan.request.session, self._storage.paused is None
        if session and not (is_first and session == self._plan.options.response_id):  # nothing is granted to a new conversation
            await self._journal.grant(await self._approvals.granted(session))
        ids = [one.id for one in self._journal.saved.pending] + list(self._plan.options.approvals)
        found = (await self._approvals.get(*ids)).values() if ids else ()
        if self._storage.paused is None:
            self._plan.check_open_calls(one.call for one in found)
        found = [one for one in found if not one.replaced_by]  # what became of those is their successors' matter
        for approval in found:
            if approval.result is None:
                await self._journal.postpone(approval.question)
        results = await self._take_in(found)  # whoever resumes a run has its lease: nobody else is running a call of it
        return [*results, *await self._journal.interrupt_started()]

    async def _leg(self) -> AsyncIterator[RunEvent]:
        """The run up to its end, or to where somebody has to be asked. Questions, and the end, are not reported yet."""
        await self._journal.begin()
        self._waiting, self._is_deferred = {}, False
        has_called = self._storage.paused is not None  # the call that waited
        async with closing(self._run.events(self._plan.request, self._plan.context, has_called=has_called)) as events:
            async for event in events:
                match event:
                    case TurnEnded():
                        self._ended = event
                    case ConfirmationNeeded():
                        self._waiting[event.id] = event
                    case _:
                        self._is_deferred |= isinstance(event, CallDeferred)
                        yield event

    async def _pause(self, leases: AsyncExitStack) -> None:
        """Put what waits into the store. A question that was asked before keeps its time, and its answer if there is one."""
        plan, saved = self._plan, self._journal.saved
        if self._storage.paused is None:
            request = replace(plan.request, messages=(), tools=plan.client_tools, explain=None)
            options = replace(plan.options, approvals=())
            self._storage.paused = PausedRun(f"run_{uuid4().hex}", plan.model_name, request, options, saved, len(saved.messages))
            if plan.options.wait_for_approval:
                await leases.enter_async_context(self._approvals.leases.take(self._storage.paused.id))
        for attempt in count():
            try:
                await self._store_questions()
                return
            except Stale:  # somebody has decided just now
                if attempt == _ATTEMPTS:
                    raise

    async def _store_questions(self) -> None:
        assert self._storage.paused is not None
        plan, run = self._plan, self._storage.paused.id
        known = await self._approvals.get(*self._waiting)
        fresh = (
            self._approvals.new(one, run, _source(one, plan), plan.options.response_id)
            for id, one in self._waiting.items()
            if id not in known
        )
        moved = (replace(one, run=run) for one in known.values() if one.status == "pending" and one.run != run)
        approvals = [*fresh, *moved, *self._storage.asked_anew(self._waiting.values())]
        await self._storage.put(self._journal.saved, *approvals)
        expiry = {one.id: one.expires for one in (*known.values(), *approvals)}
        self._waiting = {id: replace(one, expires=expiry[id]) for id, one in self._waiting.items()}

    async def _wait(self) -> list[Result] | None:
        """The results that decisions have led to; None if there is no decision and the run has to pause here."""
        waits = self._plan.options.wait_for_approval and not self._is_deferred

        async def decided() -> list[Approval] | None:
            found = (await self._approvals.get(*self._waiting)).values()
            now = time.time()
            news = [one for one in found if one.status_at(now) != "pending" and not await self._is_running(one)]
            if waits and not found:
                raise Unavailable("the approvals that were waited for are no longer in the store")
            return news or (None if waits else [])

        soonest = min(one.expires or 0.0 for one in self._waiting.values())
        waiting = wait_until(self._approvals.store, self._waiting, decided, look_at=soonest)
        news = await (self._while_waiting(waiting) if waits else waiting)
        return await self._take_in(news) if news else None

    async def _is_running(self, approval: Approval) -> bool:
        """Whether somebody else is just running the call."""
        return approval.status == "running" and not await self._approvals.is_abandoned(approval)

    async def _take_in(self, approvals: Iterable[Approval]) -> list[Result]:
        """Enter what has become of approvals: results of those that are over, decisions on the others."""
        results: list[Result] = []
        for approval in approvals:
            now = approval
            if approval.result is None and approval.status_at(time.time()) == "expired":
                now = await self._approvals.expire(approval)
            elif approval.result is None and approval.status == "running":
                now = await self._approvals.interrupt(approval)
            if now.result is not None:
                results.append(now.result)
            elif now.decision is not None:
                self._storage.decided[now.call.id] = now
                await self._journal.decide(now.question, now.decision)
                session = self._plan.request.session
                if session and isinstance(now.decision, Approved) and now.decision.remember:
                    await self._approvals.grant(session, self._journal.saved.granted)
        await self._journal.settle(*results)
        return results

    async def _finish(self) -> None:
        """The run has ended. Its messages stay in the store where a later request may refer to them."""
        paused = self._storage.paused
        if paused is not None and not paused.options.response_id:
            await self._approvals.forget(paused.id)


def _source(asked: ConfirmationNeeded, plan: RunPlan) -> str:
    return asked.tool.source if asked.tool else plan.sources.get(asked.call.name, "")


def _is_denied(approval: Approval) -> bool:
    return isinstance(approval.decision, Denied)


def _with_result(approval: Approval, result: Result) -> Approval:
    status = "denied" if _is_denied(approval) else "expired" if approval.status == "expired" else "done"
    return replace(approval, status=status, result=result, changed=time.time())
