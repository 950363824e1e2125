"""Tools both ways: a toolset of ours as CrewAI tools, CrewAI tools as a toolset of ours."""
# pyright: basic, reportMissingImports=false

import inspect
from collections.abc import Sequence
from typing import Any

from crewai.tools.base_tool import BaseTool
from crewai.tools.base_tool import Tool as DecoratedTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import PrivateAttr

from callsmith.adapters.frameworks.blocking import wait_for
from callsmith.adapters.frameworks.toolsets import CallableTool, Decide, arguments_class, callable_tools, foreign_tool
from callsmith.core.errors import UsageError
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context
from callsmith.core.schema import drop_titles
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import NO_CONTEXT
from callsmith.tools.functions import Function, Functions, Tools


def to_crewai(
    toolset: Tools,
    tools: Sequence[Tool] | None = None,
    *,
    decide: Decide | None = None,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
) -> list[BaseTool]:
    """The tools of a toolset as CrewAI tools. A call that failed is a `ToolFailure`, which tells the agent why.

    `decide` is asked about calls that need a person's approval; without it they are not run. CrewAI caches results of idempotent
    tools only. In async code, `tools` is `await toolset.tools()`.
    """
    return [CallsmithTool(callable_tool, decide) for callable_tool in callable_tools(toolset, tools, limits, context)]


class CallsmithTool(BaseTool):
    """A tool of one of our toolsets."""

    _callable: CallableTool = PrivateAttr()
    _decide: Decide | None = PrivateAttr(default=None)

    def __init__(self, callable_tool: CallableTool, decide: Decide | None = None, **kwargs: Any) -> None:
        tool = callable_tool.tool
        fields = {"name": tool.name, "description": tool.description, "args_schema": arguments_class(tool)}
        super().__init__(**{**fields, "cache_function": lambda *_: tool.idempotent and not tool.side_effects, **kwargs})
        self._callable = callable_tool
        self._decide = decide

    def _run(self, **arguments: Any) -> Any:
        return self._output(wait_for(self._callable.run(arguments, self._decide)))

    async def _arun(self, **arguments: Any) -> Any:
        return self._output(await self._callable.run(arguments, self._decide))

    def _output(self, result: Result) -> Any:
        text = self._callable.text(result)
        return text if result.ok else ToolFailure(message=text)


def from_crewai(*tools: BaseTool) -> Functions:
    """CrewAI tools, by its decorator or of its class, as a toolset. A name with spaces gets underscores."""
    return Functions(*map(_function, tools))


def _function(tool: BaseTool) -> Function:
    if not isinstance(tool, BaseTool):
        raise UsageError(f"expected a CrewAI tool, got {type(tool).__name__}; crewai.tools.tool makes one")

    async def run_async(**arguments: Any) -> Any:
        return _read_output(tool, await tool.arun(**arguments))

    def run(**arguments: Any) -> Any:
        return _read_output(tool, tool.run(**arguments))

    parameters = drop_titles(tool.args_schema.model_json_schema())
    parameters.pop("description", None)
    name = sanitize_tool_name(tool.name)
    return foreign_tool(name, tool.description, parameters, run_async if _is_async(tool) else run, "crewai")


def _is_async(tool: BaseTool) -> bool:
    if isinstance(tool, DecoratedTool):
        return inspect.iscoroutinefunction(tool.func)
    return type(tool)._arun is not BaseTool._arun


def _read_output(tool: BaseTool, output: Any) -> Any:
    if isinstance(output, ToolFailure):
        return make_failure(Call(sanitize_tool_name(tool.name)), "tool_error", output.message)
    return tool.format_output_for_agent(output)
