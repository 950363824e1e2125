"""Tools as every dialect describes them: a name, a description, and a schema under a key of the dialect's own."""

from collections.abc import Iterable

from callsmith.core.schema import check_schema
from callsmith.core.values import TOOL_NAME, Json, Schema, Tool
from callsmith.wire.declare import Field, RequestFields, RequiredField, flag, text, value
from callsmith.wire.fields import Fields
from callsmith.wire.kinds import find_kind, make_tool, type_of
from callsmith.wire.kinds.table import Api
from callsmith.wire.kinds.toolsets import TOOLSETS, read_toolset

# Where the parameters stand: in chat completions, in Messages, in MCP, and in a form that some libraries have.
_SPELLINGS = ("parameters", "input_schema", "inputSchema", "parameters_schema")
_NO_PARAMETERS = Tool("none").parameters


def _read_name(fields: Fields, key: str) -> str:
    name = fields.required_text(key)
    if not TOOL_NAME.fullmatch(name):
        raise fields.error(key, f"{name!r} must be 1 to 256 letters, digits, '_', '-', '.', ':' or '/'")
    return name


class ToolFields(RequestFields, component="Function"):
    """A function that the model may call."""

    name = RequiredField("string", _read_name, minLength=1, maxLength=256)
    description = text()
    parameters = value("object", "A JSON Schema.")
    input_schema = value("object", "As parameters.")
    inputSchema = value("object", "As parameters.")
    parameters_schema = value("object", "As parameters.")
    required = Field("string[]", Fields.texts, "Required parameters, where the schema does not list them.")
    strict = flag("Whether its calls are held to the schema where the choice is auto, too.")
    defer_loading = flag("Found by a search, where the request declares one.")


def read_tools(entries: Iterable[Fields], schema: str, *, api: Api | None = None, searches: bool = False) -> tuple[Tool, ...]:
    """The tools in these objects; `schema` is the key under which the dialect has the parameters. Those of others are read too,
    and so is a list of `required` parameters beside them. `api` is whose kinds of tools they may be of; those that run on the
    server are not among the tools. `searches`: those that say so are to be found by a search."""
    tools: dict[str, Tool] = {}
    for entry in entries:
        kind = find_kind(entry, api) if api else None
        if kind is not None and kind.runner != "client":
            continue
        if kind is not None and kind.types[0] in TOOLSETS:
            for tool in read_toolset(entry, entry.required_text("type"), searches=searches):
                tools[tool.name] = tool
            continue
        inner = entry.object(type_of(entry, api)) if api and api != "messages" else None  # chat completions wrap what is in it
        fields = ToolFields((inner or entry).data, (inner or entry).path)
        name = fields.name if kind is None or not kind.name or fields.get("name") is not None else kind.name
        if name in tools:
            raise fields.error("name", f"two tools are called {name!r}")
        deferred = searches and (fields.defer_loading or False)
        if kind is not None:
            tools[name] = make_tool(kind, entry, name, deferred=deferred)
            continue
        parameters = _read_parameters(fields, schema) or _NO_PARAMETERS
        tools[name] = Tool(name, fields.description or "", parameters, strict=fields.strict or False, deferred=deferred)
    return tuple(tools.values())


def write_tool(tool: Tool, schema: str) -> dict[str, Json]:
    """The object that `read_tools` reads back: what a model is shown of a tool."""
    definition: dict[str, Json] = {"name": tool.name, schema: dict(tool.parameters)}
    if tool.description:
        definition["description"] = tool.description
    if tool.strict:
        definition["strict"] = True
    return definition


def write_function(tool: Tool) -> dict[str, Json]:
    """The tool as chat completions wrap it."""
    return {"type": "function", "function": write_tool(tool, "parameters")}


def _read_parameters(fields: ToolFields, key: str) -> Schema | None:
    spellings = dict.fromkeys((key, *_SPELLINGS))
    first, *others = [name for name in spellings if fields.get(name) is not None] or [key]
    for other in others:
        if fields.get(other) != fields.get(first):
            raise fields.error(other, f"differs from {fields.at(first)}, and a tool has one schema")
    parameters = fields.object(first)
    if parameters is None:
        return _with_required(fields, None)
    check_schema(parameters.data, parameters.path)
    types = parameters.get("type")
    if types is not None and types != "object" and not (isinstance(types, list) and "object" in types):
        raise parameters.error("type", f"a tool takes an object, not {types!r}")
    return _with_required(fields, parameters.data)


def _with_required(fields: ToolFields, schema: Schema | None) -> Schema | None:
    """The schema with the names that `required` lists beside it."""
    if fields.array("required") is None:
        return schema
    required, known = list(fields.required or ()), (schema or {}).get("required")
    if known is not None and set(known) != set(required):
        raise fields.error("required", "differs from the one in the tool's schema")
    for index, name in enumerate(required):
        if name not in (schema or {}).get("properties", {}):
            raise fields.error(f"required.{index}", f"{name!r} is none of the tool's parameters")
    return schema if schema is None or not required else {**schema, "required": required}


MCP = "mcp"


def mcp_name(label: str, name: str) -> str:
    """The name of a server's tool: `mcp:files/read`."""
    return f"{MCP}:{label}/{name}"


def split_mcp_name(name: str) -> tuple[str, str]:
    """The label of the server and the tool's own name in an `mcp_name`; any other name as it is, with an empty label."""
    label, slash, own = name.removeprefix(f"{MCP}:").partition("/")
    return (label, own) if slash and name.startswith(f"{MCP}:") else ("", name)


def bare_name(name: str) -> str:
    """The tool's own name in an `mcp_name`; any other name as it is."""
    return split_mcp_name(name)[1]


def local_url(label: str) -> str:
    """The address that stands for the server of this name."""
    return f"{MCP}:{label}"
