"""The base of toolsets that wrap a toolset and show its tools as they are; and what the policies inside say of them.

Tools are listed once a run: the run passes the one that is called on in the context (`Context.tool`), and wrappers take it from
there. Only what judges a call lists anew, because it is judged as what it is now.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, runtime_checkable

from callsmith.core.approval import Judgement
from callsmith.core.events import CallEvent
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Tool
from callsmith.tools.functions import Tools, as_toolset

Item: TypeAlias = CallEvent


@runtime_checkable
class Judging(Protocol):
    """A toolset that knows which of its tools need an approval; one that passes calls on asks the toolset inside."""

    async def judgements(self) -> Mapping[str, Judgement]: ...


async def judgements(toolset: Toolset) -> Mapping[str, Judgement]:
    """What is decided of a call of each tool, by its name, as far as that does not depend on the arguments. A tool that is not
    among them runs without asking."""
    return await toolset.judgements() if isinstance(toolset, Judging) else {}


class Wrapper:
    """A toolset around a toolset. A subclass implements `call`."""

    def __init__(self, toolset: Tools) -> None:
        self._toolset = as_toolset(toolset)

    async def tools(self) -> Sequence[Tool]:
        return await self._toolset.tools()

    async def judgements(self) -> Mapping[str, Judgement]:
        """What the policies inside say of each tool."""
        return await judgements(self._toolset)

    async def _with_tool(self, call: Call, context: Context) -> Context:
        """The context with the tool that is called: it is listed only where nobody outside has done so."""
        if context.tool is not None and context.tool.name == call.name:
            return context
        return replace(context, tool=next((tool for tool in await self.tools() if tool.name == call.name), None))


class ListedOnce(Wrapper):
    """A toolset whose tools are listed once: for a request, or a run."""

    _tools: Sequence[Tool] | None = None

    async def tools(self) -> Sequence[Tool]:
        if self._tools is None:
            self._tools = tuple(await self._toolset.tools())
        return self._tools

    def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        return self._toolset.call(call, context)
