"""Tools as every dialect describes them: a name, a description, and a schema under a key of the dialect's own."""

from collections.abc import Iterable
from dataclasses import replace

from callsmith.core.schema import check_schema
from callsmith.core.values import TOOL_NAME, Json, Schema, Tool
from callsmith.wire.fields import Fields


def read_tools(entries: Iterable[Fields], schema: str) -> tuple[Tool, ...]:
    """The tools in these objects; `schema` is the key under which the parameters stand."""
    tools: dict[str, Tool] = {}
    for entry in entries:
        name = entry.required_text("name")
        if not TOOL_NAME.fullmatch(name):
            raise entry.error("name", f"{name!r} must be 1 to 256 letters, digits, '_', '-', '.', ':' or '/'")
        if name in tools:
            raise entry.error("name", f"two tools are called {name!r}")
        tool = Tool(name, entry.text("description") or "", strict=entry.flag("strict") or False)
        tools[name] = replace(tool, parameters=_read_parameters(entry, schema) or tool.parameters)
    return tuple(tools.values())


def write_tool(tool: Tool, schema: str) -> dict[str, Json]:
    """The object that `read_tools` reads back: what a model is shown of a tool."""
    written: dict[str, Json] = {"name": tool.name, schema: dict(tool.parameters)}
    if tool.description:
        written["description"] = tool.description
    if tool.strict:
        written["strict"] = True
    return written


def _read_parameters(fields: Fields, key: str) -> Schema | None:
    parameters = fields.object(key)
    if parameters is None:
        return None
    check_schema(parameters.data, parameters.path)
    types = parameters.get("type")
    if types is not None and types != "object" and not (isinstance(types, list) and "object" in types):
        raise parameters.error("type", f"a tool takes an object, not {types!r}")
    return parameters.data
