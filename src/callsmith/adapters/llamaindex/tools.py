"""Tools both ways: a toolset of ours as LlamaIndex tools, LlamaIndex tools and tool specs as a toolset of ours."""
# pyright: basic, reportMissingImports=false

from collections.abc import Sequence
from typing import Any

from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.tools.types import adapt_to_async_tool

from callsmith.adapters.frameworks.blocking import wait_for
from callsmith.adapters.frameworks.toolsets import CallableTool, Decide, arguments_class, callable_tools, foreign_tool
from callsmith.core.errors import UsageError
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import NO_CONTEXT
from callsmith.tools.functions import Function, Functions, Tools


def to_llamaindex(
    toolset: Tools,
    tools: Sequence[Tool] | None = None,
    *,
    decide: Decide | None = None,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
) -> list[FunctionTool]:
    """The tools of a toolset as LlamaIndex tools. A call that failed is an output with `is_error`, which says why.

    `decide` is asked about calls that need a person's approval; without it they are not run. In async code, `tools` is
    `await toolset.tools()`.
    """
    return [CallsmithTool(callable_tool, decide) for callable_tool in callable_tools(toolset, tools, limits, context)]


class ToolsetSpec(BaseToolSpec):
    """A toolset of ours as a tool spec, for programs that take those."""

    spec_functions: list[Any] = []  # noqa: RUF012  LlamaIndex declares it so

    def __init__(self, toolset: Tools, tools: Sequence[Tool] | None = None, *, decide: Decide | None = None) -> None:
        self._tools = to_llamaindex(toolset, tools, decide=decide)

    def to_tool_list(self, *_: Any, **__: Any) -> list[FunctionTool]:
        return list(self._tools)


class CallsmithTool(FunctionTool):
    """A tool of one of our toolsets."""

    def __init__(self, callable_tool: CallableTool, decide: Decide | None = None) -> None:
        self._callable = callable_tool
        self._decide = decide
        tool = callable_tool.tool
        metadata = ToolMetadata(tool.description, tool.name, arguments_class(tool))
        super().__init__(fn=self._run, async_fn=self._arun, metadata=metadata)

    def call(self, *args: Any, **arguments: Any) -> ToolOutput:
        return self._output(wait_for(self._callable.run(_require_names(args, arguments), self._decide)), arguments)

    async def acall(self, *args: Any, **arguments: Any) -> ToolOutput:
        return self._output(await self._callable.run(_require_names(args, arguments), self._decide), arguments)

    def _run(self, **arguments: Any) -> str:
        return self.call(**arguments).content

    async def _arun(self, **arguments: Any) -> str:
        return (await self.acall(**arguments)).content

    def _output(self, result: Result, arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput(
            tool_name=result.name,
            content=self._callable.text(result),
            raw_input={"kwargs": arguments},
            raw_output=result.content,
            is_error=not result.ok,
        )


def _require_names(args: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
    if args:
        raise UsageError("a tool is called with named arguments")
    return arguments


def from_llamaindex(*tools: BaseTool | BaseToolSpec) -> Functions:
    """LlamaIndex tools, and all the tools of tool specs, as a toolset."""
    listed = [tool for item in tools for tool in (item.to_tool_list() if isinstance(item, BaseToolSpec) else [item])]
    return Functions(*map(_function, listed))


def _function(tool: BaseTool) -> Function:
    if not isinstance(tool, BaseTool):
        raise UsageError(
            f"expected a LlamaIndex tool or tool spec, got {type(tool).__name__}; FunctionTool.from_defaults makes one"
        )
    if getattr(tool, "requires_context", False):
        raise UsageError(f"{tool.metadata.name} wants the context of a workflow, which only an agent of LlamaIndex has")
    asynchronous = adapt_to_async_tool(tool)

    async def run(**arguments: Any) -> Any:
        output = await asynchronous.acall(**arguments)
        return make_failure(Call(output.tool_name), "tool_error", output.content) if output.is_error else output.content

    function = tool.metadata.to_openai_tool(skip_length_check=True)["function"]
    return foreign_tool(function["name"], function["description"], function["parameters"], run, "llamaindex")
