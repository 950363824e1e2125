"""MCP types as our values: tools and results."""

from typing import TYPE_CHECKING, Any, assert_never, cast

from callsmith.core.errors import UsageError
from callsmith.core.schema import check_schema
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.transport.messages import MOST_BLOCKS, size_of

if TYPE_CHECKING:
    import mcp_types as types

TASKS_REVISION = "2025-11-25"  # the only one in which clients ask for tasks
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"  # since 2026-07-28
RELATED_TASK = "io.modelcontextprotocol/related-task"


def too_many_tools(most: int) -> str:
    return f"it lists more than {most:,} tools (max_tools); the others are not offered"


def within_bounds(result: dict[str, Any], config: ServerConfig) -> tuple[dict[str, Any], list[str]]:
    """A result with no more tools and blocks of content than are looked at, and notices of what was left out."""
    tools, blocks, notices = result.get("tools"), result.get("content"), list[str]()
    if isinstance(tools, list):
        listed = cast("list[Json]", tools)
        if len(listed) > config.max_tools:
            notices.append(too_many_tools(config.max_tools))
        fitting = list[Json]()
        for tool in listed[: config.max_tools]:
            if size_of(tool, config.max_definition_bytes) > config.max_definition_bytes:
                limit = f"{config.max_definition_bytes:,} (max_definition_bytes)"
                notices.append(f"{_name(tool)} cannot be offered: its definition is larger than {limit}")
            else:
                fitting.append(tool)
        result = {**result, "tools": fitting}
    if isinstance(blocks, list) and len(content := cast("list[Json]", blocks)) > MOST_BLOCKS:
        cut: Json = {"type": "text", "text": f"({len(content) - MOST_BLOCKS:,} more blocks of content were left out)"}
        result = {**result, "content": [*content[:MOST_BLOCKS], cut]}
    return result, notices


def without_malformed(listed: dict[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """A page of a tool list without the malformed tools, and notices about those: the SDK would reject the whole page."""
    from mcp_types.methods import parse_server_result
    from pydantic import ValidationError

    def wrong(*tools: Any) -> str:
        try:
            parse_server_result("tools/list", version, {**listed, "tools": tools})
        except ValidationError as error:
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc'][2:]))}: {first['msg']}"
        return ""

    if wrong() or not wrong(*listed["tools"]):  # the error is not in the tools, or there is none
        return listed, []
    checked = [(tool, wrong(tool)) for tool in listed["tools"]]
    notices = [f"{_name(tool)} cannot be offered: {why}" for tool, why in checked if why]
    return {**listed, "tools": [tool for tool, why in checked if not why]}, notices


def _name(tool: Any) -> str:
    name: Any = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else "a tool without a name"


def read_tool(listed: "types.Tool", config: ServerConfig, *, takes_tasks: bool = False) -> Tool | str:
    """The tool, or why it cannot be offered. One that runs only as a task goes on in the background."""
    is_task = listed.execution is not None and listed.execution.task_support == "required"
    if is_task and not takes_tasks:
        return f"{listed.name} cannot be offered: it runs only as a task, and its server does not say that it has tasks"
    hints = listed.annotations
    try:
        check_schema(listed.input_schema)
        return Tool(
            name=listed.name,
            description=listed.description or listed.title or "",
            parameters=listed.input_schema,
            output=listed.output_schema,
            side_effects=_has_side_effects(hints, config.trust),
            idempotent=config.trust and hints is not None and bool(hints.read_only_hint or hints.idempotent_hint),
            timeout=config.task_timeout if is_task else config.timeout,
            background=is_task,
            source=config.source,
        )
    except UsageError as error:
        return f"{listed.name} cannot be offered: {error}"


def _has_side_effects(hints: "types.ToolAnnotations | None", trusted: bool) -> bool:
    """Hints of a trusted server are believed; every tool of another may have side effects."""
    if not trusted:
        return True
    if hints is None or (hints.read_only_hint is None and hints.destructive_hint is None):
        return False  # the operator knows what the server does
    return not hints.read_only_hint


def read_result(call: Call, answered: "types.CallToolResult") -> Result:
    """The result for the model: the text, or else the structured content."""
    texts = [block_text(block) for block in answered.content]
    is_text = answered.structured_content is None or any(texts)
    content: Json = "\n".join(texts) if is_text else answered.structured_content
    if answered.is_error:
        return Result(call.id, call.name, content or "the tool failed without a message", ok=False, code="tool_error")
    return Result(call.id, call.name, content)


def block_text(block: "types.ContentBlock") -> str:
    """A block as text; images, audio and files are described."""
    import mcp_types as types

    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
        case types.ResourceLink():
            return f"[resource {block.title or block.name}: {block.uri}]"
        case types.EmbeddedResource():
            inside = block.resource
            if isinstance(inside, types.TextResourceContents):
                return f"[resource {inside.uri}]\n{inside.text}"
            return f"[resource {inside.uri}, {inside.mime_type or 'binary'}, {len(inside.blob) * 3 // 4} bytes]"
        case _:
            assert_never(block)
