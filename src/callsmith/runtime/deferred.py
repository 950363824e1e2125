"""Tools that whoever asked runs itself, offered beside a toolset: their calls come out as `CallDeferred`.

A plain list is a toolset too, wherever one is taken: `run(model, [get_weather, define("book").parameter("flight")], "…")`.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from callsmith.core.errors import UsageError
from callsmith.core.events import CallDeferred, CallEvent
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Tool
from callsmith.tools.define import Definition
from callsmith.tools.functions import Function, Functions

GivenTools: TypeAlias = Toolset | Sequence[Callable[..., Any] | Function | Tool | Definition]


class DeferredTools:
    """A toolset and, beside its tools, the caller's own. Where two have one name, the caller's is meant."""

    def __init__(self, toolset: Toolset | None, deferred: Iterable[Tool]) -> None:
        self._toolset = toolset
        self._deferred = {tool.name: tool for tool in deferred}

    async def tools(self) -> Sequence[Tool]:
        own = () if self._toolset is None else await self._toolset.tools()
        return (*self._deferred.values(), *(tool for tool in own if tool.name not in self._deferred))

    def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        if self._toolset is None or call.name in self._deferred:
            return _defer(call)
        return self._toolset.call(call, context)


async def _defer(call: Call) -> AsyncIterator[CallEvent]:
    yield CallDeferred(call)


def toolset_of(tools: GivenTools | None) -> Toolset:
    """What was given, as one toolset."""
    toolset, deferred = split_tools(tools)
    return DeferredTools(toolset, deferred) if deferred or toolset is None else toolset


def split_tools(given_tools: GivenTools | None) -> tuple[Toolset | None, tuple[Tool, ...]]:
    """What was given, as a toolset and the tools that the caller runs: of a list, those that are definitions only."""
    if given_tools is None or not isinstance(given_tools, Sequence):
        return given_tools, ()
    tools = [tool.build() if isinstance(tool, Definition) else tool for tool in given_tools]
    deferred = tuple(tool for tool in tools if isinstance(tool, Tool))
    functions = [tool if isinstance(tool, Function) else Function.of(tool) for tool in tools if not isinstance(tool, Tool)]
    names = [tool.name for tool in (*deferred, *(function.tool for function in functions))]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two tools are called {name!r}", field="tools")
    return Functions(*functions) if functions else None, deferred
