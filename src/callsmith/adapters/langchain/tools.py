"""Tools both ways: a toolset of ours as LangChain tools, LangChain tools as a toolset of ours."""
# pyright: basic, reportMissingImports=false

import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from callsmith.adapters.frameworks.blocking import wait_for
from callsmith.adapters.frameworks.toolsets import CallableTool, callable_tools, foreign_tool, new_call_id
from callsmith.adapters.langchain.approvals import read_decisions, write_request
from callsmith.core.approval import ConfirmationRequired, Decision
from callsmith.core.errors import UsageError
from callsmith.core.events import ToolFinished, ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import NO_CONTEXT
from callsmith.tools.functions import Functions, Tools

PROGRESS = "tool_progress"  # the name of the custom event that a tool's progress becomes


def to_langchain(
    toolset: Tools,
    tools: Sequence[Tool] | None = None,
    *,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
) -> list[BaseTool]:
    """The tools of a toolset as LangChain tools.

    The model reads a result as the content, and the artifact is the same as JSON. A call that failed is a message with the status
    "error". Inside a LangGraph agent, a call that needs a person's approval interrupts it, as HumanInTheLoopMiddleware would;
    anywhere else it raises ConfirmationRequired. In async code, `tools` is `await toolset.tools()`.
    """
    return [CallsmithTool(callable_tool) for callable_tool in callable_tools(toolset, tools, limits, context)]


class CallsmithTool(BaseTool):
    """A tool of one of our toolsets."""

    _callable: CallableTool = PrivateAttr()

    def __init__(self, callable_tool: CallableTool, **kwargs: Any) -> None:
        tool = callable_tool.tool
        fields = {"name": tool.name, "description": tool.description, "args_schema": dict(tool.parameters)}
        hints = {"side_effects": tool.side_effects, "idempotent": tool.idempotent, "source": tool.source}
        super().__init__(
            **{**fields, "response_format": "content_and_artifact", "handle_tool_error": True, "metadata": hints, **kwargs}
        )
        self._callable = callable_tool

    def _run(self, **arguments: Any) -> tuple[str, Any]:
        return wait_for(self._arun(**arguments))

    async def _arun(self, **arguments: Any) -> tuple[str, Any]:
        call = self._callable.call(arguments)
        try:
            return await self._follow(call, None)
        except ConfirmationRequired as question:
            decision = _ask(question)
        try:
            return await self._follow(call, decision)
        except ConfirmationRequired as changed:
            raise ToolException(str(changed)) from changed

    async def _follow(self, call: Call, decision: Decision | None) -> tuple[str, Any]:
        result = make_failure(call, "unavailable", f"{call.name} is run by somebody else, and has no result here")
        async for event in self._callable.events(call, decision):
            if isinstance(event, ToolProgress):
                progress = {"text": event.text, "current": event.current, "total": event.total}
                await adispatch_custom_event(PROGRESS, progress)
            elif isinstance(event, ToolFinished):
                result = event.result
        return self._output(result)

    def _output(self, result: Result) -> tuple[str, Any]:
        if not result.ok:
            raise ToolException(self._callable.text(result))
        return self._callable.text(result), result.content


def _ask(question: ConfirmationRequired) -> Decision:
    """A person's decision, for which the graph is interrupted. The graph runs the tool again, from the start, to go on."""
    try:
        from langgraph.types import interrupt

        answer = interrupt(write_request(question.needed))
    except (ModuleNotFoundError, RuntimeError, KeyError) as error:  # there is no graph here to interrupt, or LangGraph itself
        raise question from error
    return read_decisions(answer, [question.needed])[0]


def from_langchain(*tools: BaseTool, on_artifact: Callable[[str, Any], None] | None = None) -> Functions:
    """LangChain tools as a toolset. What LangChain injects into a tool itself (the call's id, a config) the model does not see.

    A model reads a tool's content; its artifact goes to `on_artifact`, with the name of the tool.
    """
    for tool in tools:
        if not isinstance(tool, BaseTool):
            raise UsageError(f"expected a LangChain tool, got {type(tool).__name__}; langchain_core.tools.tool makes one")
    return Functions(*(_function(tool, on_artifact) for tool in tools))


def _function(tool: BaseTool, on_artifact: Callable[[str, Any], None] | None) -> Any:
    async def run(**arguments: Any) -> Any:
        message = await tool.ainvoke({"type": "tool_call", "name": tool.name, "args": arguments, "id": new_call_id()})
        if not isinstance(message, ToolMessage):
            raise UsageError(f"{tool.name} returned a {type(message).__name__}, which only a LangGraph agent can take")
        if on_artifact is not None and message.artifact is not None:
            on_artifact(tool.name, message.artifact)
        if message.status == "error":
            return make_failure(Call(tool.name), "tool_error", message.text)
        return _read_content(message)

    function = convert_to_openai_tool(tool)["function"]
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return foreign_tool(tool.name, function.get("description", ""), parameters, run, "langchain")


def _read_content(message: ToolMessage) -> Any:
    """The content as a model reads it: blocks are text, data stays data."""
    if any(isinstance(block, dict) for block in message.content):
        return "\n".join(_block_text(dict(block)) for block in message.content_blocks)
    return message.content


def _block_text(block: dict[str, Any]) -> str:
    """A block as text; images, audio and files are described."""
    if block["type"] in ("text", "text-plain") and "text" in block:
        return block["text"]
    if block["type"] == "non_standard":
        return json.dumps(block["value"], ensure_ascii=False, default=str)
    size = f"{len(block['base64']) * 3 // 4} bytes" if block.get("base64") else ""
    return f"[{', '.join(filter(None, (block['type'], block.get('mime_type'), block.get('url'), size)))}]"
