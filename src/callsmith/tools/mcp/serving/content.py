"""Our tools and results, as MCP has them."""

from typing import TYPE_CHECKING, Any, TypeAlias

from callsmith.core.schema import validate
from callsmith.core.values import Result, Tool
from callsmith.tools.mcp.content import TASKS_EXTENSION

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext

    Asking: TypeAlias = ServerRequestContext[Any, Any]


def is_modern(revision: str) -> bool:
    """Whether a revision of the protocol is 2026-07-28 or later."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return revision in MODERN_PROTOCOL_VERSIONS


def declares_tasks(asking: "Asking") -> bool:
    """Whether a client of 2026-07-28 knows tasks."""
    able = asking.session.client_capabilities
    return TASKS_EXTENSION in ((able.extensions if able else None) or {})


def write_tool(tool: Tool, *, modern: bool = True, has_tasks: bool = False) -> "types.Tool":
    """A tool as a client is shown it. Before 2026-07-28 an output that is no object cannot be described, and a tool says itself
    that it can be called as a task."""
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        description=tool.description or None,
        input_schema={"type": "object", **tool.parameters},
        output_schema=dict(tool.output) if tool.output is not None and _describable(tool, modern) else None,
        execution=types.ToolExecution(task_support="optional") if has_tasks and tool.background and not modern else None,
        annotations=types.ToolAnnotations(read_only_hint=not tool.side_effects, idempotent_hint=tool.idempotent),
    )


def write_result(result: Result, tool: Tool, *, modern: bool = True) -> "types.CallToolResult":
    """A result as a client gets it. One that breaks what the tool promises of its output is an error that tells what it was."""
    import mcp_types as types

    text, ok, structured = result.text, result.ok, None
    if ok and tool.output is not None and _describable(tool, modern):
        if complaints := validate(tool.output, result.content):
            text, ok = f"the result does not fit the tool's output schema ({complaints[0]}): {text}", False
        else:
            structured = result.content
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured, is_error=not ok)


def _describable(tool: Tool, modern: bool) -> bool:
    return modern or (tool.output or {}).get("type") == "object"
