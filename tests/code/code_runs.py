"""Tools for code to call, and the result of code."""

from collections.abc import AsyncIterator
from typing import Any

from callsmith.code import RUN_CODE, CodeLimits, CodeTools
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.functions import Functions, tool

QUICK = CodeLimits(seconds=0.5, memory=32 * 1024 * 1024)


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: The first.
    """
    return a + b


def orders(city: str) -> list[dict[str, Any]]:
    """The orders of a city."""
    return [{"id": number, "city": city} for number in range(3)]


def zip_code(city: str) -> str:
    """The code of a city."""
    return "53111"


def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


TOOLS = Functions(add, orders, zip_code, fail)


class Bank:
    """A tool with side effects that writes down what it does."""

    def __init__(self) -> None:
        self.paid: list[float] = []

        @tool(side_effects=True)
        def pay(amount: float) -> str:
            """Pays."""
            self.paid.append(amount)
            return f"paid {amount:g}"

        self.tools = Functions(pay, add)


def written(code: str, id: str = "c1") -> Call:
    return Call(RUN_CODE, {"code": code}, id)


async def run_code(code: str, tools: Toolset = TOOLS, context: Context | None = None, limits: CodeLimits = QUICK) -> Result:
    """The result of code."""
    items = [item async for item in CodeTools(tools, limits).call(written(code), context or Context())]
    assert all(isinstance(item, ToolProgress) for item in items[:-1])
    assert isinstance(items[-1], Result)
    return items[-1]


class Fixed:
    """A toolset of one tool that always answers the same."""

    def __init__(self, tool: Tool, content: Any, asked: list[Context] | None = None) -> None:
        self.tool = tool
        self.content = content
        self.asked = [] if asked is None else asked

    async def tools(self) -> list[Tool]:
        return [self.tool]

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        self.asked.append(context)
        await context.starting()
        yield Result(call.id, call.name, self.content)
