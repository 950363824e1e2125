"""Tools from a JSON file, in any of the usual forms."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from callsmith.core.errors import UsageError
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
    found = (_tool(entry) for entry in cast("Iterable[Any]", value))
    return tuple({tool.name: tool for tool in found if tool}.values())


def _tool(entry: Any) -> Tool | None:
    if not isinstance(entry, dict):
        return None
    outer = cast("dict[str, Any]", entry)
    inner: Any = outer.get("function")
    fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer
    name: Any = fields.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        return None
    words: Any = fields.get("description")
    description = words if isinstance(words, str) else ""
    schema = next((fields[key] for key in SCHEMAS if isinstance(fields.get(key), dict)), None)
    return Tool(name, description) if schema is None else Tool(name, description, schema)
