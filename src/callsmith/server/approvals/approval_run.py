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

from callsmith.core.approval import Approved, Decision
from callsmith.core.closing import closing
from callsmith.core.errors import Unavailable
from callsmith.core.events import ConfirmationNeeded, RunEvent, ToolFinished, TurnEnded
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Result
from callsmith.runtime.conversation.journal import Journal, asked_again_result
from callsmith.runtime.conversation.pausable_run import PausableRun, PauseAnswer, Questions
from callsmith.server.approvals.approvals import Approval, Approvals, PausedRun
from callsmith.server.store import Stale
from callsmith.server.store.leases import wait_until
from callsmith.server.tools.planner import RunPlan

_ATTEMPTS = 5  # to write what others write at the same time

# Waits for a person: what the awaitable comes to.
WhileWaiting: TypeAlias = Callable[[Awaitable[list[Approval]]], Awaitable[list[Approval]]]


class RunStorage:
    """The journal of a run in the server's store, from its first pause on, with the approvals of its calls.

    Calls run at once and write at once: one write after another, each at the version of the last. A write that was begun is
    finished although its call is cancelled, for otherwise nobody would know that version.
    """

    def __init__(self, approvals: Approvals, paused: PausedRun | None) -> None:
        self._approvals = approvals
        self._lock = asyncio.Lock()
        self.paused = paused  # as it is in the store; None before the first pause
        self.approvals: dict[str, Approval] = {}  # as they are in the store, by call id: those of calls that were decided on

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        """Store the state together with the approvals of calls that start or have a result, all or nothing."""
        await asyncio.shield(self._write(saved, starting, results))

    async def put(self, saved: Saved, *approvals: Approval) -> None:
        """Write the run, if it has paused, and these approvals, all or nothing."""
        await asyncio.shield(self._put_locked(saved, approvals))

    def list_replaced(self, questions: Iterable[ConfirmationNeeded]) -> list[Approval]:
        """The approvals of calls that are asked about once more, because their tools have changed or they want something else
        by now: they are over."""
        known = ((question.id, self.approvals[question.call.id]) for question in questions if question.call.id in self.approvals)
        went_on = frozenset(self.paused.saved.checkpoints if self.paused else ())
        return [
            replace(old.with_result(asked_again_result(old.call, went_on=old.call.id in went_on)), replaced_by=new)
            for new, old in known
            if new != old.id
        ]

    async def _write(self, saved: Saved, starting: Call | None, results: Sequence[Result]) -> None:
        async with self._lock:
            # One with a checkpoint does not run twice: whoever finds it takes it up with the same decision.
            begun = self.approvals.get(starting.id) if starting and starting.id not in saved.checkpoints else None
            running = [begun.as_running()] if begun and not begun.is_denied else []
            done = [self.approvals[result.call_id].with_result(result) for result in results if result.call_id in self.approvals]
            is_new = self.paused is not None and saved != self.paused.saved
            if running or done or is_new:
                await self._put(saved, [*running, *done], durable=starting is not None, through_outage=bool(results))
            for approval in done:
                del self.approvals[approval.call.id]
                await self._approvals.audit("answered", approval)

    async def _put_locked(self, saved: Saved, approvals: Sequence[Approval]) -> None:
        async with self._lock:
            await self._put(saved, approvals, durable=True)

    async def _put(self, saved: Saved, approvals: Sequence[Approval], *, durable: bool, through_outage: bool = False) -> None:
        runs = [] if self.paused is None else [replace(self.paused, saved=saved)]
        for stored in await self._approvals.write(*runs, *approvals, durable=durable, through_outage=through_outage):
            if isinstance(stored, PausedRun):
                self.paused = stored
            elif stored.call.id in self.approvals and self.approvals[stored.call.id].id == stored.id:
                self.approvals[stored.call.id] = stored


class ApprovalRun:
    """One run: its events up to where it pauses, or to its end if it waits for decisions."""

    def __init__(self, plan: RunPlan, approvals: Approvals, paused: PausedRun | None, while_waiting: WhileWaiting) -> None:
        self._plan = plan
        self._while_waiting = while_waiting
        self._approvals = approvals
        self._storage = RunStorage(approvals, paused)
        began = Saved(plan.context.conversation, plan.request.messages, plan.context.subject)
        self._journal = Journal(began if paused is None else paused.saved, self._storage, plan.limits)
        self._leases = AsyncExitStack()
        self._is_waiting = False

    async def events(self) -> AsyncIterator[RunEvent]:
        """Everything that happens; the last event is TurnEnded."""
        plan = self._plan
        run = PausableRun(
            plan.model,
            plan.tools,
            self._journal,
            plan.deferred,
            plan.limits,
            store_questions=self._store_questions,
            answer_pause=self._wait,
        )
        async with self._leases:
            try:
                for result in await self._resume():
                    yield ToolFinished(result)
                has_called = self._storage.paused is not None  # the call that waited
                plan.background.begin_turn()
                async with closing(run.events(plan.request, plan.context, has_called=has_called)) as events:
                    async for event in events:
                        if isinstance(event, TurnEnded):
                            await plan.background.end_turn()
                            if not self._is_waiting:
                                await self._finish()
                        yield event
            except BaseException:
                await self._journal.cancel_started()
                raise

    async def _resume(self) -> list[Result]:
        """Begin with what was decided, and with what is known of calls that had begun when the run was left."""
        session, is_first = self._plan.request.origin.session, self._storage.paused is None
        if session and not (is_first and session == self._plan.options.response_id):  # nothing is granted to a new conversation
            await self._journal.grant(await self._approvals.list_granted(session))
        ids = [question.id for question in self._journal.saved.pending] + list(self._plan.options.approvals)
        approvals = list((await self._approvals.get(*ids)).values()) if ids else []
        if self._storage.paused is None:
            self._plan.check_open_calls(approval.call for approval in approvals)
        approvals = [approval for approval in approvals if not approval.replaced_by]  # that is their successors' matter
        for approval in approvals:
            if approval.result is None:
                await self._journal.note(approval.question)
        answer = await self._read_answers(approvals)  # whoever resumes a run has its lease: nobody else runs a call of it
        return [*answer.results, *await self._journal.resume(answer.results, answer.decisions)]

    async def _store_questions(self, questions: Questions) -> Questions:
        """Put what waits into the store. A question that was asked before keeps its time, and its answer if there is one."""
        self._is_waiting = True
        plan, saved = self._plan, self._journal.saved
        if self._storage.paused is None:
            request = replace(plan.request, messages=(), tools=plan.client_tools, explain=None)
            options = replace(plan.options, approvals=())
            self._storage.paused = PausedRun(f"run_{uuid4().hex}", plan.model_name, request, options, saved, len(saved.messages))
            if plan.options.wait_for_approval:
                await self._leases.enter_async_context(self._approvals.leases.take(self._storage.paused.id))
        for attempt in count():
            try:
                return await self._put_questions(questions, self._storage.paused.id)
            except Stale:  # somebody has decided just now
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("there is always another attempt")

    async def _put_questions(self, questions: Questions, run: str) -> Questions:
        plan = self._plan
        known = await self._approvals.get(*(question.id for question in questions))
        fresh = (
            self._approvals.new(question, run, plan.source_of(question), plan.options.response_id)
            for question in questions
            if question.id not in known
        )
        elsewhere = (approval for approval in known.values() if approval.run != run)
        moved = (replace(approval, run=run) for approval in elsewhere if approval.status == "pending")
        approvals = [*fresh, *moved, *self._storage.list_replaced(questions)]
        await self._storage.put(self._journal.saved, *approvals)
        expiry = {approval.id: approval.expires for approval in (*known.values(), *approvals)}
        return tuple(replace(question, expires=expiry[question.id]) for question in questions)

    async def _wait(self, questions: Questions, calls: tuple[Call, ...]) -> PauseAnswer | None:
        """What decisions have led to; None if there is no decision and the run has to pause here."""
        if not questions:  # there are only calls that the client runs
            return None
        ids = [question.id for question in questions]
        waits = self._plan.options.wait_for_approval and not calls

        async def find_answered() -> list[Approval] | None:
            approvals, now = (await self._approvals.get(*ids)).values(), time.time()
            decided = [approval for approval in approvals if approval.status_at(now) != "pending"]
            # Not those whose call somebody else is just running.
            answered = [
                approval for approval in decided if approval.status != "running" or await self._approvals.is_abandoned(approval)
            ]
            if waits and not approvals:
                raise Unavailable("the approvals that were waited for are no longer in the store")
            return answered or (None if waits else [])

        soonest = min(question.expires or 0.0 for question in questions)
        waiting = wait_until(self._approvals.store, ids, find_answered, look_at=soonest)
        answered = await (self._while_waiting(waiting) if waits else waiting)
        self._is_waiting = not answered
        return await self._read_answers(answered) if answered else None

    async def _read_answers(self, approvals: Iterable[Approval]) -> PauseAnswer:
        """What has become of approvals: results of those that are over, decisions on the others."""
        results, decisions, granted = list[Result](), dict[str, Decision](), set[str]()
        for approval in approvals:
            if approval.result is None and approval.status_at(time.time()) == "expired":
                approval = await self._approvals.expire(approval)
            elif approval.result is None and approval.status == "running":
                approval = await self._approvals.interrupt(approval)
            if approval.result is not None:
                results.append(approval.result)
            elif approval.decision is not None:
                self._storage.approvals[approval.call.id] = approval
                decisions[approval.call.id] = approval.decision
                if isinstance(approval.decision, Approved) and approval.decision.remember:
                    granted.add(approval.grant)
        if granted and (session := self._plan.request.origin.session):
            await self._approvals.grant(session, granted)
        return PauseAnswer(results, decisions, reports_results=True)

    async def _finish(self) -> None:
        """The run has ended. Its messages stay in the store where a later request may refer to them."""
        paused = self._storage.paused
        if paused is not None and not paused.options.response_id:
            await self._approvals.forget(paused.id)
