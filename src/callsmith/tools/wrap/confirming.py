"""Confirmed: calls that need approval wait for a person's decision."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from uuid import uuid4

from callsmith.core.approval import Denied, Judgement, Policy
from callsmith.core.closing import closing
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.failures import already_done, failed, unknown_tool
from callsmith.core.ports import Context, Toolset
from callsmith.core.schema import validate
from callsmith.core.types.field_checks import check_argument
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.wrap.wrapper import Item, Wrapper

STANDARD_POLICY = Policy()


class Confirmed(Wrapper):
    """Runs what the policy lets run, refuses what it forbids, and asks about the rest.

    Asking is one `ConfirmationNeeded` and no result; the answer comes as a decision in the next run's context. `expires` is how
    many seconds a question stands; whoever takes the answer holds it to that.
    """

    def __init__(self, toolset: Toolset, policy: Policy = STANDARD_POLICY, *, expires: float | None = None) -> None:
        super().__init__(toolset)
        self._policy: Policy = check_argument("policy", policy, Policy)
        self._expires = expires
        self._known: dict[str, Tool] = {}  # also under names that are shown no more: the toolset may still run them

    async def tools(self) -> Sequence[Tool]:
        tools = await super().tools()
        self._known |= {tool.name: tool for tool in tools}
        return tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        shown = await self.tools()
        tool = self._known.get(call.name)
        settled = self._decide(tool, call, context) if tool else unknown_tool(call, [one.name for one in shown])
        if not isinstance(settled, Call):
            yield settled
            return
        async with closing(self._toolset.call(settled, context)) as items:
            async for item in items:
                yield _with_edit_notice(item, settled) if isinstance(item, Result) and settled is not call else item

    def _decide(self, tool: Tool, call: Call, context: Context) -> Call | Result | ConfirmationNeeded:
        """The call that may run, or what is said instead."""
        judged, decision = self._judge(tool, call, context), context.decisions.get(call.id)
        if judged.verdict == "deny":
            return failed(call, "denied", judged.reason)
        if isinstance(decision, Denied):
            return failed(call, "denied", decision.message or "a person said no")
        if decision is None and judged.verdict == "ask" and tool.name not in context.granted:
            if context.earlier is not None:
                return already_done(call, context.earlier)
            expires = None if self._expires is None else time.time() + self._expires
            return ConfirmationNeeded(f"confirm_{uuid4().hex[:24]}", call, judged.reason, expires)
        if decision is None or decision.arguments is None or decision.arguments == call.arguments:
            return call
        return self._with_edited_arguments(tool, Call(call.name, dict(decision.arguments), call.id), context)

    def _with_edited_arguments(self, tool: Tool, call: Call, context: Context) -> Call | Result:
        """A person's own arguments: they must fit like any others, and what is forbidden stays so."""
        if complaints := validate(tool.parameters, call.arguments):
            return failed(call, "bad_request", f"a person changed the arguments, and they do not fit: {complaints[0]}")
        judged = self._judge(tool, call, context)
        return failed(call, "denied", judged.reason) if judged.verdict == "deny" else call

    def _judge(self, tool: Tool, call: Call, context: Context) -> Judgement:
        policy = self._policy.tightened(context.tighten) if context.tighten else self._policy
        return policy.judge(tool, call)


def _with_edit_notice(result: Result, ran: Call) -> Result:
    """The model must not take the result for one of the arguments it gave."""
    return replace(result, content=f"{result.text}\n(A person changed the arguments before the call ran: {ran.text})")
