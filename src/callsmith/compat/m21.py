"""The names of HearthNet's M21, "Tool Calls".

search = ToolDefinition("search_corpus", "Search a corpus.", {"type": "object", …}, "rag.query", (1, 0), False)
executor = ToolExecutor(bus, [search], max_iterations=6, per_tool_timeout_seconds=30)
message = await executor.run_chat_with_tools({"input": {"messages": […], "tools": executor.native_definitions}})
"""

from collections.abc import Mapping
from dataclasses import dataclass

from callsmith.bus.reach import bound_tool
from callsmith.capabilities import executor
from callsmith.core.values import Call, Json, Result, Schema, Tool
from callsmith.wire.capability.envelopes import Version, write_reference


def ToolDefinition(
    name: str,
    description: str,
    parameters_schema: Schema,
    bound_capability: str | None = None,
    bound_version: Version | None = None,
    side_effects: bool = False,
) -> Tool:
    if bound_capability is None:
        return Tool(name, description, parameters_schema, side_effects=side_effects)
    target = write_reference(bound_capability, bound_version) if bound_version else bound_capability
    return bound_tool(name, description, parameters_schema, target, side_effects=side_effects)


def ToolCall(id: str, name: str, arguments: Mapping[str, Json]) -> Call:
    return Call(name, arguments, id)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call."""

    tool_call_id: str
    name: str
    content: Json
    is_error: bool = False


class ToolExecutor(executor.ToolExecutor):
    """Ours, with results under these names."""

    async def dispatch(self, call: Call) -> ToolResult:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _result(await super().dispatch(call))

    async def dispatch_confirmed(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, call: Call, arguments: Mapping[str, Json] | None = None
    ) -> ToolResult:
        return _result(await super().dispatch_confirmed(call, arguments))


def _result(result: Result) -> ToolResult:
    return ToolResult(result.call_id, result.name, result.content, not result.ok)
