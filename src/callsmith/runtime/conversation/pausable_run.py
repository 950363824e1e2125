"""A run whose every step is journaled before it is reported, so that it can pause and be resumed.

Both conversations and servers run this. The history and all that was decided come from the journal; what happens goes there.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import assert_never

from callsmith.core.closing import closing
from callsmith.core.errors import StoreUnavailable
from callsmith.core.events import CallDeferred, CallEvent, ConfirmationNeeded, RunEvent, ToolProgress
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.runtime.conversation.journal import Journal
from callsmith.runtime.deferred import DeferredTools
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import after_a_call, run


@dataclass(frozen=True, slots=True)
class PausableRun:
    """Runs a model with tools from where the journal stands. The caller runs calls of the `deferred` ones.

    `preface` goes before the messages and is not journaled.
    """

    model: Model
    toolset: Toolset | None
    journal: Journal
    deferred: Sequence[Tool] = ()
    limits: Limits = STANDARD_LIMITS
    preface: tuple[Message, ...] = ()

    async def events(self, request: Request, context: Context, *, has_called: bool) -> AsyncIterator[RunEvent]:
        """Everything up to the end of the turn, or to where it pauses; each event is in the journal before it is reported.

        `has_called`: the turn was resumed after a call, so that a call the request requires is not required once more.
        """
        saved = self.journal.saved
        choice = after_a_call(request.choice) if has_called and request.choice.mode == "required" else request.choice
        request = replace(request, messages=(*self.preface, *saved.messages), choice=choice)
        context = replace(context, decisions=self.journal.decisions, asked=self.journal.asked, granted=saved.granted)
        journaled = None if self.toolset is None else _Journaled(self.toolset, self.journal)
        toolset = DeferredTools(journaled, self.deferred) if self.deferred or journaled is None else journaled
        async with closing(run(self.model, toolset, request, limits=self.limits, context=context)) as events:
            async for event in events:
                await self.journal.note(event)
                yield event


@dataclass(slots=True)
class _Journaled:
    """A toolset whose calls are journaled before they run, and whose results as soon as they are there."""

    toolset: Toolset
    journal: Journal
    known: Mapping[str, Tool] = field(default_factory=dict[str, Tool])

    async def tools(self) -> Sequence[Tool]:
        tools = await self.toolset.tools()
        self.known = {tool.name: tool for tool in tools}
        return tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        await self.journal.start(call, repeatable=self._is_repeatable(call.name))
        async with closing(self.toolset.call(call, context)) as items:
            async for item in items:
                match item:
                    case Result():
                        with suppress(StoreUnavailable):  # no failure of the tool; the run enters the result once more
                            await self.journal.arrive(replace(item, call_id=call.id, name=call.name))
                    case ConfirmationNeeded():
                        item = await self.journal.postpone(replace(item, call=call))
                    case CallDeferred():
                        await self.journal.defer(call)
                    case ToolProgress():
                        pass
                    case _:
                        assert_never(item)
                yield item

    def _is_repeatable(self, name: str) -> bool:
        tool = self.known.get(name)
        return tool is not None and (tool.idempotent or not tool.side_effects)
