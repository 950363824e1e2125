"""What wrappers stand on: a toolset inside, its tools shown as they are, and calls that are not passed on answered in words."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Toolset
from callsmith.core.values import Call, Result, Tool

Item: TypeAlias = ToolProgress | ConfirmationNeeded | Result


class Wrapper:
    """A toolset in a toolset. Those who derive from it say what becomes of a call."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset

    async def tools(self) -> Sequence[Tool]:
        return await self._toolset.tools()

    async def _tool(self, name: str) -> Tool | None:
        return next((tool for tool in await self._toolset.tools() if tool.name == name), None)


def refused(call: Call, code: str, why: str) -> Result:
    """The result of a call that was not passed on, or got no answer."""
    return Result(call.id, call.name, f"{code}: {why}", ok=False, code=code)


def unknown(call: Call, known: Iterable[str]) -> Result:
    return refused(call, "not_found", f"no tool {call.name!r}; tools: {', '.join(known) or 'none'}")
