"""Tools from a JSON file, in any of the usual forms."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from callsmith.core.errors import UsageError
from callsmith.core.types.tables import as_object, as_text
from callsmith.core.values import TOOL_NAME, Tool

SCHEMAS = ("parameters", "input_schema", "inputSchema")


def tools_in(path: Path) -> tuple[Tool, ...]:
    """The tools of a file: a list of them, or an object that holds one under `tools`."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", field="tools") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", field="tools") from error
    return tools_of(value)


def tools_of(value: Any) -> tuple[Tool, ...]:
    """The tools of a JSON value, wrapped (`{"type": "function", "function": {…}}`) or flat. One without a name is left out."""
    if isinstance(value, dict):
        document = cast("dict[str, Any]", value)
        value = document.get("tools", [document])
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UsageError("tools must be a list", field="tools")
    entries = (_tool(entry) for entry in cast("Iterable[Any]", value))
    return tuple({tool.name: tool for tool in entries if tool}.values())


def _tool(entry: Any) -> Tool | None:
    outer = as_object(entry)
    fields = as_object(outer["function"]) if isinstance(outer.get("function"), dict) else outer
    name, description = as_text(fields.get("name")), as_text(fields.get("description"))
    if not TOOL_NAME.fullmatch(name):
        return None
    schema = next((fields[key] for key in SCHEMAS if isinstance(fields.get(key), dict)), None)
    return Tool(name, description) if schema is None else Tool(name, description, schema)
