"""Audited: a toolset whose every execution is reported to an audit log, before it starts and when it has ended."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

from callsmith.core.approval import Approved
from callsmith.core.capability.execution import Audit, Execution, hash_arguments
from callsmith.core.closing import closing
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.tools.functions import Tools
from callsmith.tools.wrap.wrapper import Item, Wrapper


class Audited(Wrapper):
    """Reports executions. A call that is refused, or waits for a person, is none; a call whose start cannot be reported does not
    run."""

    def __init__(self, toolset: Tools, audit: Audit) -> None:
        super().__init__(toolset)
        self._audit = audit

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        context = await self._with_tool(call, context)
        execution, has_begun, began = _describe_execution(call, context), False, time.perf_counter()

        async def starting() -> None:
            nonlocal has_begun, began
            await context.starting()
            await self._audit(execution)
            has_begun, began = True, time.perf_counter()

        outcome = ""
        try:
            async with closing(self._toolset.call(call, replace(context, starting=starting))) as items:
                async for item in items:
                    if isinstance(item, Result):
                        outcome = item.code or ("ok" if item.ok else "failed")
                        has_begun |= item.ok  # it must have run, although the toolset has not said so
                    yield item
        except (asyncio.CancelledError, GeneratorExit):
            outcome = outcome or "cancelled"
            raise
        except Exception:
            outcome = outcome or "internal_error"
            raise
        finally:
            if has_begun:
                seconds = round(time.perf_counter() - began, 6)
                await self._audit(replace(execution, outcome=outcome or "internal_error", seconds=seconds))


def _describe_execution(call: Call, context: Context) -> Execution:
    tool, decision, authority = context.tool, context.decisions.get(call.id), context.authority
    binding = tool.binding if tool else None
    approval = decision if isinstance(decision, Approved) else None
    arguments = call.arguments if approval is None or approval.arguments is None else approval.arguments
    return Execution(
        f"exec_{uuid4().hex[:24]}",
        "tool",
        call.name,
        hash_arguments(arguments),
        time.time(),
        source=tool.source if tool else "",
        digest=tool.digest if tool else "",
        side_effects=tool is None or tool.side_effects,
        subject=context.subject or (authority.subject if authority else ""),
        via=authority.via if authority else (),
        conversation=context.conversation,
        trace_id=authority.trace_id if authority else "",
        approved=bool(context.approved) or approval is not None,
        approved_by=approval.by if approval else "",
        bound_capability=binding.capability if binding else "",
        bound_version=f"{binding.version[0]}.{binding.version[1]}" if binding else "",
    )
