"""What MCP servers ask a person in the middle of a call: stored beside the approvals, and answered in the same way."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from callsmith.core.approval import Approved, Denied
from callsmith.core.values import Call
from callsmith.server.approvals.approvals import Approval, Approvals
from callsmith.server.store import Store
from callsmith.server.store.leases import wait_until
from callsmith.tools.mcp.elicitation import ElicitationReply, ElicitationRequest
from callsmith.wire.extensions import MCP


@dataclass(frozen=True, slots=True)
class Elicitations:
    """Asks a person on behalf of MCP servers.

    POST /v1/approvals/ask_1f…   {"approve": true, "arguments": {"color": "red"}}

    A question is open for so many seconds, and no longer than its call.
    """

    store: Store
    seconds: float

    async def ask(self, question: ElicitationRequest) -> ElicitationReply:
        """The answer, once somebody has given it."""
        approvals, now = Approvals(self.store, question.subject, self.seconds), time.time()
        pending = Approval(
            f"ask_{uuid4().hex[:24]}",
            "",
            question.call or Call(question.server),
            MCP + question.server,
            question.message,
            now,
            now + self.seconds,
            asks={"schema": None if question.schema is None else dict(question.schema), "url": question.url or None},
        )

        async def reply() -> ElicitationReply | None:
            approval = (await approvals.get(pending.id)).get(pending.id)
            match approval and approval.decision:
                case Approved(arguments):
                    return ElicitationReply("accept", arguments or {})
                case Denied():
                    return ElicitationReply("decline")
                case None:
                    return None if approval is not None and time.time() < pending.expires else ElicitationReply("cancel")

        await approvals.write(pending)
        try:
            return await wait_until(self.store, (pending.id,), reply, look_at=pending.expires)
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):  # nobody waits for the answer any more
                await approvals.drop(pending.id)
            raise
