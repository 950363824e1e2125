"""A toolset to wrap, and what came of a call."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool
from tests.tools.contract import outcome

NOBODY = Context()


class Recording:
    """A toolset that runs one coroutine for every call, remembers calls and contexts, and counts how often it was closed."""

    def __init__(self, *tools: Tool, run: Any = None) -> None:
        self._tools = tools
        self._run = run
        self.calls: list[Call] = []
        self.contexts: list[Context] = []
        self.closed = 0

    async def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        self.calls.append(call)
        self.contexts.append(context)
        try:
            yield ToolProgress(call.id, "working")
            content = await self._run(call) if self._run else f"{call.name} done"
            yield content if isinstance(content, Result) else Result(call.id, call.name, content)
        finally:
            self.closed += 1


async def items(toolset: Toolset, call: Call, context: Context = NOBODY) -> list[Any]:
    return [item async for item in toolset.call(call, context)]


async def result(toolset: Toolset, call: Call, context: Context = NOBODY) -> Result:
    return (await outcome(toolset.call(call, context)))[1]


async def names(toolset: Toolset) -> list[str]:
    return [tool.name for tool in await toolset.tools()]


def failing(times: int, failure: Exception | Result):
    left = times

    async def run(call: Call) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            return "at last"
        if isinstance(failure, Result):
            return failure
        raise failure

    return run


TIMEOUT = Result("c1", "x", "timeout: slow", ok=False, code="timeout")
