"""Confirmed: calls that need approval wait for a person's decision."""

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from difflib import unified_diff
from uuid import uuid4

from callsmith.core.approval import Denied, Judgement, Policy, ToolChanged
from callsmith.core.closing import closing
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.failures import already_done, make_failure, unknown_tool
from callsmith.core.ports import Context
from callsmith.core.schema import validate
from callsmith.core.types.field_checks import check_argument
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.tools.functions import Tools
from callsmith.tools.wrap.wrapper import Item, Wrapper

STANDARD_POLICY = Policy()
_ATTEMPTS = 3  # at a tool that changes while it is called
_LONGEST_TEXT = 300  # characters of a description that are shown
_MOST_LINES = 30  # of a diff that are shown
_LONGEST_SCHEMA = 20_000  # characters of both schemas of which a diff is made


class Confirmed(Wrapper):
    """Runs what the policy lets run, refuses what it forbids, and asks about the rest.

    Asking is one `ConfirmationNeeded` and no result; the answer comes as a decision in the next run's context. `expires` is how
    many seconds a question is open; whoever takes the answer holds it to that. A decision counts for the definition that the
    person was shown: for a tool that has changed since then the person is asked anew, and is shown what has changed.
    """

    def __init__(self, toolset: Tools, policy: Policy = STANDARD_POLICY, *, expires: float | None = None) -> None:
        super().__init__(toolset)
        self._policy: Policy = check_argument("policy", policy, Policy)
        self._expires = expires
        self._known: dict[str, Tool] = {}  # also under names that are shown no more: the toolset may still run them

    async def tools(self) -> Sequence[Tool]:
        tools = await super().tools()
        self._known |= {tool.name: tool for tool in tools}
        return tools

    async def judgements(self) -> Mapping[str, Judgement]:
        """What this policy, and those inside, say of each tool, whatever its arguments."""
        inside = await super().judgements()
        own = {tool.name: self._policy.judge(tool, Call(tool.name)) for tool in await self.tools()}
        return {name: judged.stricter(inside.get(name, judged)) for name, judged in own.items()}

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        for _ in range(_ATTEMPTS):
            tools = await self.tools()
            tool = self._known.get(call.name)
            if tool is None:
                yield unknown_tool(call, [tool.name for tool in tools])
                return
            permitted = self._decide(tool, call, context)
            if not isinstance(permitted, Call):
                yield permitted
                return
            needs_approval = self._judge(tool, permitted, context).verdict == "ask"
            inner = replace(context, tool=tool, approved=tool.digest if needs_approval else context.approved)
            try:
                async with closing(self._toolset.call(permitted, inner)) as items:
                    async for item in items:
                        yield _pass_on(item, tool, permitted if permitted is not call else None)
                return
            except ToolChanged:  # just now: it is judged again, as what it is
                continue
        yield make_failure(call, "unavailable", f"{call.name} changes again and again")

    def _decide(self, tool: Tool, call: Call, context: Context) -> Call | Result | ConfirmationNeeded:
        """The call that may run, or what is said instead."""
        judged, decision = self._judge(tool, call, context), context.decisions.get(call.id)
        if judged.verdict == "deny":
            return make_failure(call, "denied", judged.reason)
        if isinstance(decision, Denied):
            return make_failure(call, "denied", decision.message or "a person said no")
        if decision is None and judged.verdict == "ask" and tool.grant not in context.granted:
            if (earlier := context.earlier) is not None:
                return already_done(call, earlier)
            return self._question(tool, call, _explain_lost_grant(tool, judged.reason, context))
        if decision is not None and judged.verdict == "ask" and context.asked is not None:
            tool_shown = context.asked.get(call.id)
            if tool_shown is None or tool_shown.digest != tool.digest:
                change = describe_change(tool_shown, tool) if tool_shown else "it is not known what it was when that was asked"
                reason = f"{tool.name} is not the tool that was asked about: {change}. It has not run. Is it to run as it is now?"
                return self._question(tool, call, reason)
        if decision is None or decision.arguments is None or decision.arguments == call.arguments:
            return call
        return self._with_edited_arguments(tool, Call(call.name, dict(decision.arguments), call.id), context)

    def _question(self, tool: Tool, call: Call, reason: str) -> ConfirmationNeeded:
        expires = None if self._expires is None else time.time() + self._expires
        return ConfirmationNeeded(f"confirm_{uuid4().hex[:24]}", call, reason, expires, tool)

    def _with_edited_arguments(self, tool: Tool, call: Call, context: Context) -> Call | Result:
        """A person's own arguments: they must fit like any others, and what is forbidden stays so."""
        if complaints := validate(tool.parameters, call.arguments):
            return make_failure(call, "bad_request", f"a person changed the arguments, and they do not fit: {complaints[0]}")
        judged = self._judge(tool, call, context)
        return make_failure(call, "denied", judged.reason) if judged.verdict == "deny" else call

    def _judge(self, tool: Tool, call: Call, context: Context) -> Judgement:
        policy = self._policy.tighten(context.tighten) if context.tighten else self._policy
        return policy.judge(tool, call)


def _explain_lost_grant(tool: Tool, reason: str, context: Context) -> str:
    """The reason, with a word on an earlier approval that was for another definition."""
    if any(grant.rpartition("@")[0] == tool.name or grant == tool.name for grant in context.granted):
        return f"{reason}; it was approved for good, but its definition has changed since then"
    return reason


def _pass_on(item: Item, tool: Tool, edited: Call | None) -> Item:
    """What a toolset reports. A question of its own is about the tool as it is known here."""
    if isinstance(item, ConfirmationNeeded) and item.tool is None:
        return replace(item, tool=tool)
    if isinstance(item, Result) and edited is not None:  # the model must not take it for the result of its own arguments
        return replace(item, content=f"{item.text}\n(A person changed the arguments before the call ran: {edited.text})")
    return item


def describe_change(old: Tool, new: Tool) -> str:
    """What of a tool is no longer as it was: both descriptions, and the lines of its schemas that differ."""
    changes = list[str]()
    if old.source != new.source:
        changes.append(f"it came from {old.source or 'here'} and now comes from {new.source or 'here'}")
    if (was := old.original or old.name) != (now := new.original or new.name):
        changes.append(f"it was {was} there and is now {now}")
    if old.description != new.description:
        changes.append(f"its description was {_cut(old.description)!r} and is now {_cut(new.description)!r}")
    if (old.side_effects, old.idempotent) != (new.side_effects, new.idempotent):
        changes.append("what it says of its side effects has changed")
    if old.parameters != new.parameters:
        changes.append(f"its parameters have changed:\n{_diff(old.parameters, new.parameters)}")
    if old.output != new.output:
        changes.append(f"its output has changed:\n{_diff(old.output, new.output)}")
    return "; ".join(changes)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text):,} characters)"


def _diff(old: Json, new: Json) -> str:
    before, after = (json.dumps(schema, indent=1, sort_keys=True, default=dict) for schema in (old, new))
    if len(before) + len(after) > _LONGEST_SCHEMA:
        return f"({len(before):,} characters before, {len(after):,} now)"
    changed = unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    lines = [line for line in changed if line[:2] not in ("--", "++", "@@")]
    more = [f"({len(lines) - _MOST_LINES} more lines)"] if len(lines) > _MOST_LINES else []
    return "\n".join((*lines[:_MOST_LINES], *more))
