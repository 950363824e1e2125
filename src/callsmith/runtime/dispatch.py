"""Dispatch of single calls, for programs that manage the conversation themselves: validated, confirmed and run as in a run.

dispatcher = Dispatcher(Confirmed(Functions(send_money)))
try:
    result = await dispatcher.dispatch(call)
except ConfirmationRequired as asked:
    if await the_user_agrees(asked.needed):
        result = await dispatcher.dispatch_confirmed(call)
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from callsmith.core.approval import Approved, ConfirmationRequired, Decision
from callsmith.core.closing import closing
from callsmith.core.events import ToolEvent, ToolFinished
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
        return tuple(await self._toolset.tools())

    async def dispatch(self, call: Call) -> Result:
        """Run a call. One that needs a person's approval raises ConfirmationRequired and has not run."""
        return await self._result(self.events(call))

    async def dispatch_confirmed(self, call: Call, arguments: Mapping[str, Json] | None = None) -> Result:
        """Run a call that a person has approved, with the person's arguments if given. The policy may still deny it.

        If the tool is no longer the one that `dispatch` has asked about, this raises ConfirmationRequired again.
        """
        return await self._result(self.events(call, Approved(arguments)))

    async def events(self, call: Call, decision: Decision | None = None, offered: Tool | None = None) -> AsyncIterator[ToolEvent]:
        """What happens while a call runs, with a person's decision if there is one; its ToolFinished among it.

        One that needs an approval it does not have raises ConfirmationRequired. `offered` is the tool as the person was shown it;
        without, it is the one that was asked about here.
        """
        context = self._context
        if decision is not None:
            own = self._asked.pop(call.id, None)
            definition = offered or own
            context = replace(context, decisions={call.id: decision}, asked=definition and {call.id: definition})
        tools = {tool.name: tool for tool in await self._toolset.tools()}
        work = Round([call], tools, self._toolset, self._limits)
        async with closing(work.run(nested_context(context, self._limits.iterations, self._limits.depth))) as events:
            async for event in events:
                yield event
        for needed in work.waiting:
            if needed.tool is not None:
                self._asked[call.id] = needed.tool
            raise ConfirmationRequired(needed)

    async def _result(self, events: AsyncIterator[ToolEvent]) -> Result:
        (result,) = [event.result async for event in events if isinstance(event, ToolFinished)]
        return result
