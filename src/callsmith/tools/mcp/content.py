"""MCP types as our values: tools and results."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, assert_never, cast

from callsmith.core.errors import UsageError
from callsmith.core.schema import check_schema
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.transport.messages import MOST_BLOCKS, size_of
from callsmith.tools.mcp.transport.pages import too_many

if TYPE_CHECKING:
    import mcp_types as types

TASKS_REVISION = "2025-11-25"  # the only one in which clients ask for tasks
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"  # since 2026-07-28
RELATED_TASK = "io.modelcontextprotocol/related-task"


MOST_ENTRIES = 1_000  # of a list of resources, templates or prompts
_METHODS = {  # what a server lists, and by which method
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
LISTS = _METHODS.keys()


class Notices:
    """What was left out of lists, by what they are lists of; the latest."""

    def __init__(self) -> None:
        self._by_key = {key: deque[str](maxlen=MOST_ENTRIES) for key in LISTS}

    def add(self, result: Mapping[str, Any], notices: Iterable[str]) -> None:
        """Take down notices of a page of a list."""
        for key in LISTS:
            if key in result:
                self._by_key[key].extend(notices)

    def take(self, *keys: str) -> list[str]:
        """The notices of these lists, each once. They are forgotten."""
        taken = list(dict.fromkeys(notice for key in keys for notice in self._by_key[key]))
        for key in keys:
            self._by_key[key].clear()
        return taken


def within_bounds(result: dict[str, Any], config: ServerConfig) -> tuple[dict[str, Any], list[str]]:
    """A result with no more entries and blocks of content than are looked at, and notices of what was left out."""
    notices = list[str]()
    for key in LISTS:
        if isinstance(entries := result.get(key), list):
            most = config.max_tools if key == "tools" else MOST_ENTRIES
            if len(listed := cast("list[Json]", entries)) > most:
                notices.append(too_many(key, most))
            fitting = list[Json]()
            for entry in listed[:most]:
                if size_of(entry, config.max_definition_bytes) > config.max_definition_bytes:
                    limit = f"{config.max_definition_bytes:,} (max_definition_bytes)"
                    notices.append(f"{_name(entry)} cannot be offered: its definition is larger than {limit}")
                else:
                    fitting.append(entry)
            result = {**result, key: fitting}
    for key in ("content", "contents", "messages"):
        if isinstance(blocks := result.get(key), list) and len(content := cast("list[Json]", blocks)) > MOST_BLOCKS:
            result = {**result, key: [*content[:MOST_BLOCKS], *_tell_cut(key, len(content) - MOST_BLOCKS)]}
    return result, notices


def _tell_cut(key: str, left_out: int) -> list[Json]:
    """An entry that says how many more there were, where such an entry is a text."""
    return [{"type": "text", "text": f"({left_out:,} more blocks of content were left out)"}] if key == "content" else []


def without_malformed(listed: dict[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """A page of a list without the malformed entries, and notices about those: the SDK would reject the whole page."""
    from mcp_types.methods import parse_server_result
    from pydantic import ValidationError

    key = next((key for key in LISTS if isinstance(listed.get(key), list)), "")
    if not key:
        return listed, []

    def wrong(*entries: Any) -> str:
        try:
            parse_server_result(_METHODS[key], version, {**listed, key: entries})
        except ValidationError as error:
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc'][2:]))}: {first['msg']}"
        return ""

    if wrong() or not wrong(*listed[key]):  # the error is not in the entries, or there is none
        return listed, []
    checked = [(entry, wrong(entry)) for entry in listed[key]]
    notices = [f"{_name(entry)} cannot be offered: {why}" for entry, why in checked if why]
    return {**listed, key: [entry for entry, why in checked if not why]}, notices


def _name(entry: Any) -> str:
    name: Any = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else "an entry without a name"


def read_tool(listed: "types.Tool", config: ServerConfig, *, takes_tasks: bool | None = False) -> Tool | str:
    """The tool, or why it cannot be offered. One that runs only as a task goes on in the background.

    `takes_tasks`: whether the server takes calls as tasks; None: in this revision it is not for the client to say.
    """
    is_task = takes_tasks is not None and listed.execution is not None and listed.execution.task_support == "required"
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
