"""A toolset to wrap, and what came of a call."""

from typing import Any

from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result
from tests.tools.contract import outcome

NOBODY = Context()


async def items(toolset: Toolset, call: Call, context: Context = NOBODY) -> list[Any]:
    return [item async for item in toolset.call(call, context)]


async def result(toolset: Toolset, call: Call, context: Context = NOBODY) -> Result:
    return (await outcome(toolset.call(call, context)))[1]


async def names(toolset: Toolset) -> list[str]:
    return [tool.name for tool in await toolset.tools()]


def failing(times: int, failure: Exception | Result):
    remaining = times

    async def run(call: Call) -> Any:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            return "at last"
        if isinstance(failure, Result):
            return failure
        raise failure

    return run


TIMEOUT = Result("c1", "x", "timeout: slow", ok=False, code="timeout")
