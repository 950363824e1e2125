"""The base of toolsets that wrap a toolset and show its tools as they are."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from callsmith.core.approval import Judgement
from callsmith.core.events import CallEvent
from callsmith.core.values import Tool
from callsmith.tools.functions import Tools, as_toolset
from callsmith.tools.wrap.judging import judgements

Item: TypeAlias = CallEvent


class Wrapper:
    """A toolset around a toolset. A subclass implements `call`."""

    def __init__(self, toolset: Tools) -> None:
        self._toolset = as_toolset(toolset)

    async def tools(self) -> Sequence[Tool]:
        return await self._toolset.tools()

    async def judgements(self) -> Mapping[str, Judgement]:
        """What the policies inside say of each tool."""
        return await judgements(self._toolset)

    async def _tool(self, name: str) -> Tool | None:
        return next((tool for tool in await self._toolset.tools() if tool.name == name), None)
