"""Dispatch of single calls, for programs that manage the conversation themselves: validated, confirmed and run as in a run.

dispatcher = Dispatcher(Confirmed(Functions(send_money)))
try:
    result = await dispatcher.dispatch(call)
except ConfirmationRequired as asked:
    if await the_user_agrees(asked.needed):
        result = await dispatcher.dispatch_confirmed(call)
"""

from collections.abc import Mapping
from dataclasses import replace

from callsmith.core.approval import Approved, ConfirmationRequired
from callsmith.core.closing import closing
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.runtime.execute import STANDARD_LIMITS, Limits, Round
from callsmith.runtime.loop import NO_CONTEXT
from callsmith.runtime.nesting import nested_context


class Dispatcher:
    """Runs single calls of a toolset. Failures are results; only a call that needs a person's approval raises."""

    def __init__(self, toolset: Toolset, *, limits: Limits = STANDARD_LIMITS, context: Context = NO_CONTEXT) -> None:
        self._toolset = toolset
        self._limits = limits
        self._context = context
        self._asked: dict[str, Tool] = {}  # by call id, until the call was confirmed

    async def definitions(self) -> tuple[Tool, ...]:
        """The tools of the toolset."""
        return tuple(await self._toolset.tools())

    async def dispatch(self, call: Call) -> Result:
        """Run a call. One that needs a person's approval raises ConfirmationRequired and has not run."""
        return await self._run(call, self._context)

    async def dispatch_confirmed(self, call: Call, arguments: Mapping[str, Json] | None = None) -> Result:
        """Run a call that a person has approved, with the person's arguments if given. The policy may still deny it.

        If the tool is no longer the one that `dispatch` has asked about, this raises ConfirmationRequired again.
        """
        asked = {call.id: self._asked.pop(call.id)} if call.id in self._asked else None
        return await self._run(call, replace(self._context, decisions={call.id: Approved(arguments)}, asked=asked))

    async def _run(self, call: Call, context: Context) -> Result:
        tools = {tool.name: tool for tool in await self._toolset.tools()}
        work = Round([call], tools, self._toolset, self._limits)
        async with closing(work.run(nested_context(context, self._limits.depth))) as events:
            async for _ in events:
                pass
        for needed in work.waiting:
            if needed.tool is not None:
                self._asked[call.id] = needed.tool
            raise ConfirmationRequired(needed)
        return work.results[0]
