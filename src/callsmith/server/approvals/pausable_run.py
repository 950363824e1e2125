"""A run of the server's tools that may have to wait for a person: what waits is in the store before anybody is told.

From its first pause on a run is written down at every step, so that whoever goes on with it knows what has been done. A call is
entered as running before it runs: if all this ends in between, it is not run again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import uuid4

from callsmith.core.approval import Approved, Decision
from callsmith.core.closing import closing
from callsmith.core.errors import Unavailable
from callsmith.core.events import ConfirmationNeeded, RunEvent, ToolFinished, ToolStarted, TurnEnded
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Message, Request, Result, Usage
from callsmith.runtime.conversation.history import joined
from callsmith.runtime.conversation.journal import Journal, cancelled, interrupted
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import after_a_call, run
from callsmith.server.approvals.approvals import POLL_SECONDS, Approval, Approvals, PausedRun
from callsmith.server.store import Stale
from callsmith.server.tools.tool_selection import DEFAULT_OPTIONS, ToolOptions

_ATTEMPTS = 5  # to write what others write at the same time


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be run, and for whom. `clients` are the names of tools whose calls the client runs, `sources` those of tools."""

    model: Model
    tools: Toolset
    request: Request
    context: Context
    wish: ToolOptions = DEFAULT_OPTIONS
    name: str = ""  # the model's
    limits: Limits = STANDARD_LIMITS
    clients: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])


class PausableRun:
    """A run: its events, as if it never paused if it waits for the word, or up to where it pauses."""

    def __init__(self, work: Work, approvals: Approvals, paused: PausedRun | None = None) -> None:
        self._work = work
        self._approvals = approvals
        self._paused = paused  # as it is in the store
        began = Saved(work.context.conversation, work.request.messages, work.context.subject)
        self._ledger = Journal(began if paused is None else paused.saved, limits=work.limits)
        self._words: dict[str, Approval] = {}  # those answered, by call id, until their calls are
        self._waiting: dict[str, ConfirmationNeeded] = {}  # what is asked in this leg, by its id
        self._ended = TurnEnded((), "stop")
        self._questions: dict[str, str] = {}  # under which ids tools ask, where approvals have others, by these
        self._open = set[str]()  # the calls this leg began with and that have no result yet
        self._aside = False  # the client has calls to run

    async def events(self) -> AsyncIterator[RunEvent]:
        """Everything that happens; the last event is TurnEnded."""
        added, usage = tuple[Message, ...](), Usage()
        async with AsyncExitStack() as holding:
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
                    await self._pause(holding)
                    for asked in self._waiting.values():
                        yield asked
                    answered = await self._heard()
                    if answered is None:
                        break
                    for result in answered:
                        yield ToolFinished(result)
                if not self._waiting:
                    await self._over()
                yield replace(self._ended, messages=added, usage=usage)
            except BaseException:
                await self._cut_off()
                raise

    async def _take_up(self) -> list[Result]:
        """Begin: with what a person has said, and with what is known of calls that had begun when this was left."""
        session = self._work.wish.session
        granted = await self._approvals.granted(session) if session else frozenset[str]()
        self._ledger.saved = replace(self._ledger.saved, granted=self._ledger.saved.granted | granted)
        ids = [one.id for one in self._ledger.saved.pending] + list(self._work.wish.approvals)
        found = (await self._approvals.get(*ids)).values() if ids else ()
        for approval in found:
            self._questions[approval.id] = approval.question
            if approval.result is None:
                self._ledger.postpone(approval.asked)
        results = await self._weigh(found)  # whoever goes on with a run holds it: nobody else is running a call of it
        lost = [interrupted(call) for call in self._ledger.open_calls if call.id in self._ledger.saved.started]
        self._ledger.settle(*lost)
        return [*results, *lost]

    async def _leg(self) -> AsyncIterator[RunEvent]:
        """A run up to its end, or to where somebody has to be asked. What is asked, and the end, are not told yet."""
        work, ledger = self._work, self._ledger
        ledger.begin()
        self._waiting, self._aside = {}, False
        self._open = {call.id for call in ledger.open_calls}
        choice = work.request.choice
        if self._paused is not None and choice.mode == "required":
            choice = after_a_call(choice)  # the call that was demanded is the one that waited
        request = replace(work.request, messages=ledger.saved.messages, choice=choice)
        context = replace(work.context, decisions=self._decisions(), granted=ledger.saved.granted)
        async with closing(run(work.model, work.tools, request, limits=work.limits, context=context)) as events:
            async for event in events:
                match event:
                    case TurnEnded():
                        ledger.note(event)
                        self._ended = event
                    case ConfirmationNeeded(call=call) if call.name in work.clients:
                        self._aside = True
                        yield event
                    case ConfirmationNeeded():
                        asked = await self._distinct(event)
                        ledger.note(asked)
                        self._waiting[asked.id] = asked
                    case ToolStarted(call):
                        ledger.note(event)
                        ledger.start(call)
                        await self._entered(call)
                        yield event
                    case ToolFinished(result):
                        ledger.note(event)
                        self._open.discard(result.call_id)
                        await self._answered(result)
                        yield event
                    case _:
                        ledger.note(event)
                        yield event

    async def _distinct(self, asked: ConfirmationNeeded) -> ConfirmationNeeded:
        """The question under an id of its own: models may give a call the id of one that was answered, and the same arguments."""
        if asked.call.id in self._open:  # it is asked about once more
            known = next((one.id for one in self._ledger.saved.pending if one.call.id == asked.call.id), asked.id)
            return replace(asked, id=known)
        earlier = (await self._approvals.get(asked.id)).get(asked.id)
        if earlier is None or earlier.status_at(time.time()) == "pending":  # a request may come twice
            return asked
        fresh = f"{asked.id}_{uuid4().hex[:8]}"
        self._questions[fresh] = asked.id
        return replace(asked, id=fresh)

    def _decisions(self) -> dict[str, Decision]:
        """A person's words by the id of the call and by that of the question, which may be about a call inside that call."""
        words = dict(self._work.wish.decisions)
        for call_id, approval in self._words.items():
            if approval.decision is not None:
                words |= {call_id: approval.decision, approval.question or approval.id: approval.decision}
        return words

    async def _entered(self, call: Call) -> None:
        """A call is about to run: nobody runs it again, whatever happens now."""
        approval = self._words.get(call.id)
        begun = [] if approval is None else [replace(approval, status="running", changed=time.time())]
        await self._write(*begun, durable=True)

    async def _answered(self, result: Result) -> None:
        approval = self._words.pop(result.call_id, None)
        if approval is None:
            await self._write()
            return
        status = approval.status if approval.status in ("denied", "expired") else "done"
        done = replace(approval, status=status, result=result, changed=time.time())
        await self._write(done)
        await self._approvals.audit("answered", done)

    async def _write(self, *approvals: Approval, durable: bool = False) -> None:
        """Write down where the run stands, if it has ever paused, and what became of approvals."""
        documents: list[Approval | PausedRun] = list(approvals)
        if self._paused is not None:
            documents.append(replace(self._paused, saved=self._ledger.saved))
        if documents:
            self._kept(await self._approvals.write(*documents, durable=durable))

    def _kept(self, documents: Iterable[Approval | PausedRun]) -> None:
        for one in documents:
            if isinstance(one, PausedRun):
                self._paused = one
            elif one.call.id in self._words:
                self._words[one.call.id] = one

    async def _pause(self, holding: AsyncExitStack) -> None:
        """Put what waits into the store. A question that was asked before keeps its time, and its answer if there is one."""
        work, saved = self._work, self._ledger.saved
        if self._paused is None:
            request, wish = replace(work.request, messages=()), replace(work.wish, decisions={}, approvals=())
            request = replace(request, tools=tuple(tool for tool in request.tools if tool.name in work.clients))
            self._paused = PausedRun(f"run_{uuid4().hex}", work.name, request, wish, saved, len(saved.messages))
            if work.wish.wait_for_approval:
                await holding.enter_async_context(self._approvals.lease(self._paused.id))
        for attempt in count():
            try:
                await self._keep_waiting()
                return
            except Stale:  # somebody has answered just now
                if attempt == _ATTEMPTS:
                    raise

    async def _keep_waiting(self) -> None:
        assert self._paused is not None
        work, paused = self._work, replace(self._paused, saved=self._ledger.saved)
        known = await self._approvals.get(*self._waiting)
        asked, response = self._approvals.asked, work.wish.response_id
        fresh = (
            replace(asked(one, paused.id, work.sources.get(one.call.name, ""), response), question=self._questions.get(id, ""))
            for id, one in self._waiting.items()
            if id not in known
        )
        moved = (replace(one, run=paused.id) for one in known.values() if one.status == "pending" and one.run != paused.id)
        approvals = [*fresh, *moved]
        self._kept(await self._approvals.write(paused, *approvals, durable=True))
        times = {one.id: one.expires for one in (*known.values(), *approvals)}
        self._waiting = {id: replace(one, expires=times[id]) for id, one in self._waiting.items()}

    async def _heard(self) -> list[Result] | None:
        """What a person has said, with the calls it answers; None if nothing has come and the run has to end here."""
        while True:
            found = (await self._approvals.get(*self._waiting)).values()
            now = time.time()
            news = [one for one in found if one.status_at(now) != "pending" and not await self._is_running(one)]
            if news:
                return await self._weigh(news)
            if not self._work.wish.wait_for_approval or self._aside:
                return None
            if not found:
                raise Unavailable("the approvals that were waited for are no longer in the store")
            await asyncio.sleep(POLL_SECONDS)

    async def _is_running(self, approval: Approval) -> bool:
        """Whether somebody else is just running the call."""
        return approval.status == "running" and not await self._approvals.is_abandoned(approval)

    async def _weigh(self, approvals: Iterable[Approval]) -> list[Result]:
        """Take in what has become of approvals: the calls that are answered by it, and words for the others."""
        results: list[Result] = []
        for approval in approvals:
            now = approval
            if approval.result is None and approval.status_at(time.time()) == "expired":
                now = await self._approvals.expire(approval)
            elif approval.result is None and approval.status == "running":
                now = await self._approvals.write_one(replace(approval, status="done", result=interrupted(approval.call)))
                await self._approvals.audit("interrupted", now)
            if now.result is not None:
                results.append(now.result)
            elif now.decision is not None:
                await self._hear(now, now.decision)
        self._ledger.settle(*results)
        return results

    async def _hear(self, approval: Approval, decision: Decision) -> None:
        self._words[approval.call.id] = approval
        self._ledger.decide(approval.asked, decision)
        session = self._work.wish.session
        if session and isinstance(decision, Approved) and decision.remember:
            await self._approvals.grant(session, self._ledger.saved.granted)

    async def _over(self) -> None:
        """The run has ended. What was said in it is kept where a later request may have to know of it."""
        if self._paused is not None and self._paused.wish.response_id:
            await self._write()
        elif self._paused is not None:
            await self._approvals.forget(self._paused.id)

    async def _cut_off(self) -> None:
        """Whoever wanted this is gone. Calls that have begun may have taken effect, and are not run again."""
        begun = [call for call in self._ledger.open_calls if call.id in self._ledger.saved.started]
        for call in begun:
            result = cancelled(call, started=True)
            self._ledger.settle(result)
            await self._answered(result)
