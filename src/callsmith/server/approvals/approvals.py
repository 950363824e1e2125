"""Approvals in the store: calls that wait for a person's decision, and the paused runs they belong to.

An approval is a document of its own, and so is its run: any process can resume it, also after a restart. Documents are only
replaced at the version they were read at, so that of two decisions one counts. Whoever resumes a run has a lease on it.
"""

import asyncio
import math
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.serialize import DocumentCodec, Saved, dump
from callsmith.core.types.escaped_text import show_hidden
from callsmith.core.types.tables import as_object
from callsmith.core.values import Call, Json, Message, Request, Result, Tool
from callsmith.runtime.conversation.journal import expired_result, interrupted_result
from callsmith.server.store import Document, Stale, Store, caller_kind, leases, list_all
from callsmith.server.store.leases import Leases, put_through_outage, wait_until
from callsmith.wire.extensions import ToolOptions

_APPROVAL, _PAUSED, _GRANT = "approval", "paused_run", "grant"

# approved: not begun yet. denied, expired: never run. done: run, whatever came of it.
Status: TypeAlias = Literal["pending", "approved", "denied", "expired", "running", "done"]


class AlreadyAnswered(UsageError):
    """An approval that somebody has answered already; `approval` is what became of it."""

    def __init__(self, approval: "Approval") -> None:
        super().__init__(f"the approval {approval.id} has been answered: it is {approval.status}")
        self.approval = approval


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits for a person's decision, or did. `run` is where it belongs; `changed` when it was decided or begun.

    `asks` is what the server that runs the call wants to know in the middle of it (a schema, or a page to visit); such an
    approval belongs to no run. `tool` is the definition that the person decides on; the decision counts for no other.
    Where that had changed before the call ran, the person is asked anew: `replaced_by` is the id of that question.
    """

    id: str
    run: str
    call: Call
    source: str
    reason: str
    created: float
    expires: float
    response: str = ""
    decision: Decision | None = None
    has_begun: bool = False
    result: Result | None = None
    changed: float = 0.0
    asks: Mapping[str, Json] | None = None
    tool: Tool | None = None
    replaced_by: str = ""
    version: int = 0

    @property
    def question(self) -> ConfirmationNeeded:
        """What the person is asked."""
        return ConfirmationNeeded(self.id, self.call, self.reason, self.expires, self.tool)

    @property
    def grant(self) -> str:
        """What is granted where the person approves such calls for good."""
        return self.tool.grant if self.tool else self.call.name

    @property
    def is_denied(self) -> bool:
        return isinstance(self.decision, Denied)

    @property
    def status(self) -> Status:
        """It follows from what has been decided, begun and returned."""
        if self.is_denied:
            return "denied"
        if self.result is not None:
            return "expired" if self.replaced_by or (self.result.code == "expired" and not self.has_begun) else "done"
        if self.has_begun:
            return "running"
        return "pending" if self.decision is None else "approved"

    def with_decision(self, decision: Decision) -> "Approval":
        return replace(self, decision=decision, changed=time.time())

    def as_running(self) -> "Approval":
        return replace(self, has_begun=True, changed=time.time())

    def with_result(self, result: Result) -> "Approval":
        return replace(self, result=result, changed=time.time())

    def status_at(self, now: float) -> Status:
        """Its status as it is now: what nobody has answered in time is expired."""
        return "expired" if self.status == "pending" and now >= self.expires else self.status


@dataclass(frozen=True, slots=True)
class PausedRun:
    """A run that waits: which model, what was asked of it, the conversation so far, and how long that was at the first pause."""

    id: str
    model: str
    request: Request
    options: ToolOptions
    saved: Saved
    began: int
    version: int = 0

    @property
    def since(self) -> tuple[Message, ...]:
        """What has been said since it first paused."""
        return self.saved.messages[self.began :]

    def waits_for(self, id: str) -> bool:
        """Whether it waits for the decision on the approval of this id."""
        return any(question.id == id for question in self.saved.pending)


@dataclass(frozen=True, slots=True)
class Grant:
    """The tools a conversation may call without being asked about again."""

    tools: frozenset[str]


_READ_IN_A_ROW = 50  # approvals, some milliseconds
_OUTSIDE = frozenset({"id", "version"})  # the store has them beside the document
APPROVAL_CODEC = DocumentCodec(Approval, outside=_OUTSIDE)
PAUSED_RUN_CODEC = DocumentCodec(PausedRun, outside=_OUTSIDE)
GRANT_CODEC = DocumentCodec(Grant)


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approvals of one caller in a store. Those of another caller do not exist here."""

    store: Store
    subject: str = ""
    seconds: float = 24 * 60 * 60.0

    async def get(self, *ids: str) -> dict[str, Approval]:
        documents = await self.store.get(self._kind(_APPROVAL), *ids)
        return {id: _read_approval(documents[id]) for id in ids if id in documents}

    async def all(self, *, only_open: bool = False) -> list[Approval]:
        """All of them, the oldest first; or only those that nothing has come of yet.

        There may be tens of thousands: others have their turn meanwhile, and of those that are not wanted nothing is read.
        """
        approvals = list[Approval]()
        for document in await list_all(self.store, self._kind(_APPROVAL)):
            if only_open and "result" in as_object(document.data):
                continue
            approvals.append(_read_approval(document))
            if len(approvals) % _READ_IN_A_ROW == 0:
                await asyncio.sleep(0)
        return sorted(approvals, key=lambda approval: approval.created)

    async def get_run(self, run: str) -> PausedRun | None:
        """The run of this id, if it is not over."""
        document = (await self.store.get(self._kind(_PAUSED), run)).get(run)
        return document and PAUSED_RUN_CODEC.read(document.data, id=run, version=document.version or 0)

    async def write(
        self, *documents: Approval | PausedRun, durable: bool = False, through_outage: bool = False
    ) -> tuple[Approval | PausedRun, ...]:
        """Write all of them or, if somebody else has written one in the meantime (`Stale`), none; returned at their new versions.

        With `through_outage`, a store that is unreachable for a while is waited for.
        """
        stored = map(self._document, documents)
        if through_outage:
            await put_through_outage(self.store, *stored, durable=durable)
        else:
            await self.store.put(*stored, durable=durable)
        return tuple(replace(document, version=document.version + 1) for document in documents)

    async def write_one(self, approval: Approval) -> Approval:
        (stored,) = await self.write(approval, durable=True)
        return cast(Approval, stored)

    async def forget(self, run: str) -> None:
        """Delete a run that is over."""
        await self.store.delete(self._kind(_PAUSED), run)

    async def drop(self, *ids: str) -> None:
        """Forget approvals, and the runs they belong to."""
        approvals = await self.get(*ids)
        await self.store.delete(self._kind(_PAUSED), *{approval.run for approval in approvals.values()})
        await self.store.delete(self._kind(_APPROVAL), *approvals)

    async def drop_open(self, response: str) -> None:
        """Forget the approvals of a response that is not to go on, as far as nothing has begun of them: nobody can approve a call
        any more that was called off."""
        approvals = (approval for approval in await self.all(only_open=True) if approval.response == response)
        await self.drop(*(approval.id for approval in approvals if approval.status in ("pending", "approved")))

    async def decide(self, approval: Approval, decision: Decision, by: str = "") -> Approval:
        """Enter a person's decision; the first one counts. An approval that comes too late expires instead.

        `by` is the caller who decides, if that is another one.
        """
        if approval.status != "pending":
            raise AlreadyAnswered(approval)
        if isinstance(decision, Approved):
            if time.time() >= approval.expires:
                return await self.expire(approval)
            decision = replace(decision, by=by or self.subject)
        decided = await self._settle(approval.with_decision(decision))
        await self.audit("decided", decided, by=by)
        return decided

    async def expire(self, approval: Approval) -> Approval:
        """Nobody has answered in time."""
        expired = await self._settle(approval.with_result(expired_result(approval.call)))
        await self.audit("expired", expired)
        return expired

    async def interrupt(self, approval: Approval) -> Approval:
        """The server that ran the call was stopped."""
        result = interrupted_result(approval.call)
        interrupted = await self.write_one(replace(approval, result=result))
        await self.audit("interrupted", interrupted)
        return interrupted

    async def interrupt_abandoned(self) -> None:
        """Find out which calls were running in a server that was stopped."""
        running = [approval for approval in await self.all(only_open=True) if approval.status == "running"]
        for approval, is_over in zip(running, await asyncio.gather(*map(self.is_abandoned, running)), strict=True):
            if is_over:
                with suppress(Stale):  # somebody has just found out
                    await self.interrupt(approval)

    async def _settle(self, approval: Approval) -> Approval:
        try:
            return await self.write_one(approval)
        except Stale:
            raise AlreadyAnswered((await self.get(approval.id)).get(approval.id, approval)) from None

    async def audit(self, event: str, approval: Approval, *, by: str = "") -> None:
        await self.store.append(
            {
                "event": event,
                "approval": approval.id,
                "subject": self.subject,
                "by": by or self.subject,
                "tool": approval.call.name,
                "source": approval.source,
                "arguments": dict(approval.call.arguments),
                "status": approval.status,
                "decision": dump(approval.decision) if approval.decision else None,
                "code": approval.result.code if approval.result else None,
            }
        )

    def new(self, needed: ConfirmationNeeded, run: str, source: str, response: str) -> Approval:
        """The approval for a question that a run asks for the first time."""
        now = time.time()
        expires = min(now + self.seconds, needed.expires or math.inf)
        return Approval(needed.id, run, needed.call, source, needed.reason, now, expires, response=response, tool=needed.tool)

    async def list_granted(self, conversation: str) -> frozenset[str]:
        """The tools a conversation may call without asking again."""
        return (await self._grant_of(conversation))[0]

    async def _grant_of(self, conversation: str) -> tuple[frozenset[str], int | None]:
        known = (await self.store.get(self._kind(_GRANT), conversation)).get(conversation)
        return (GRANT_CODEC.read(known.data).tools, known.version) if known else (frozenset(), 0)

    async def grant(self, conversation: str, tools: Iterable[str]) -> None:
        """Let a conversation call these tools without asking, besides those it may call already."""
        while True:
            known, version = await self._grant_of(conversation)
            data = GRANT_CODEC.write(Grant(known.union(tools)))
            with suppress(Stale):  # another run of the conversation was granted something meanwhile
                return await self.store.put(Document(self._kind(_GRANT), conversation, data, version))

    @property
    def leases(self) -> Leases:
        """Leases on the runs that are resumed."""
        return Leases(self.store, self.subject)

    async def take_leases(self, ids: Collection[str], stack: AsyncExitStack, *, unless_running: bool = False) -> bool:
        """Take the leases on the runs of these approvals, and wait for whoever has them: this is how every run is resumed.

        With `unless_running`, waiting ends without them once somebody else runs one of the calls, or has run it.
        """
        leased = set[str]()

        async def attempt() -> bool | None:
            approvals = (await self.get(*ids)).values()
            runs = {approval.run for approval in approvals}
            is_running = any(approval.result or approval.status == "running" for approval in approvals)
            for run in sorted(runs - leased):  # all in one order: nobody waits for a lease of somebody who waits for theirs
                if await self.leases.is_taken(run) or not await stack.enter_async_context(self.leases.take(run)):
                    break
                leased.add(run)
            if runs <= leased and runs == await self._runs(ids):  # none has moved meanwhile
                return True
            return False if unless_running and is_running else None

        return await wait_until(self.store, [*ids, *await self._runs(ids)], attempt)

    async def _runs(self, ids: Collection[str]) -> set[str]:
        return {approval.run for approval in (await self.get(*ids)).values()}

    async def is_abandoned(self, approval: Approval) -> bool:
        """Whether it was decided long ago, nothing has come of it but an interruption, and nobody has the lease on its run."""
        is_open = approval.result is None or approval.result.code == "interrupted"
        is_old = approval.decision is not None and abs(time.time() - approval.changed) >= leases.LEASE_SECONDS
        return is_open and is_old and await self.leases.is_free(approval.run)

    def _document(self, document: Approval | PausedRun) -> Document:
        if isinstance(document, Approval):
            return Document(self._kind(_APPROVAL), document.id, APPROVAL_CODEC.write(document), document.version)
        return Document(self._kind(_PAUSED), document.id, _write_paused(document), document.version)

    def _kind(self, name: str) -> str:
        return caller_kind(name, self.subject)


def write_view(approval: Approval) -> dict[str, Json]:
    """An approval as the person who decides sees it."""
    result = approval.result and {"ok": approval.result.ok, "content": approval.result.text, "code": approval.result.code or None}
    return {
        "id": approval.id,
        "object": "approval",
        "status": approval.status_at(time.time()),
        "tool": approval.call.name,
        "source": approval.source or None,
        "description": show_hidden(approval.tool.description) if approval.tool else None,
        "arguments": dict(approval.call.arguments),
        "reason": show_hidden(approval.reason),
        "created_at": int(approval.created),
        "expires_at": int(approval.expires),
        "response_id": approval.response or None,
        "asks": approval.asks,
        "decision": None if approval.decision is None else dump(approval.decision),
        "result": result,
    }


def _read_approval(document: Document) -> Approval:
    return APPROVAL_CODEC.read(document.data, id=document.id, version=document.version or 0)


def _write_paused(paused: PausedRun) -> Json:
    """Its messages are those of the conversation; decisions that were given with the request count only once."""
    options = replace(paused.options, approvals=(), wait_for_approval=False, shows_events=False, shows_tool_items=False)
    return PAUSED_RUN_CODEC.write(replace(paused, request=replace(paused.request, messages=()), options=options))
