"""What runs on the server in `POST /v1/messages`: tools of MCP servers, the search for tools, and the blocks for both.

    {"mcp_servers": [{"type": "url", "name": "files", "url": "mcp:files"}],
     "tools": [{"type": "mcp_toolset", "mcp_server_name": "files", "default_config": {"enabled": false},
                "configs": {"read": {"enabled": true}}}]}
    {"type": "mcp_tool_use", "id": "c1", "name": "read", "server_name": "files", "input": {"path": "a.txt"}}
    {"type": "mcp_tool_result", "tool_use_id": "c1", "is_error": false, "content": [{"type": "text", "text": "…"}]}
    {"tools": [{"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
               {"name": "add", "defer_loading": true, "input_schema": {…}}]}
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "add numbers"}}
    {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "tool_search_tool_search_result",
     "tool_references": [{"type": "tool_reference", "tool_name": "add"}]}}

A toolset may stand alone: servers are known here by their names. Understood, too: the older `tool_configuration`, and a pinned
list of tools, of which only the names count. Nothing comes of `defer_loading`: where tools are too many the model finds them
anyway. Tokens are refused: a call would run with other rights than the sender of a token believes.

Without a search tool nothing is deferred, for nothing would be found. Both variants search alike, by words: of a pattern the
words in it count, for a pattern that a model writes is never run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from callsmith.core.choice import found_names, found_text
from callsmith.core.values import Json, Result
from callsmith.wire.fields import Fields

MCP_TOOLSET = "mcp_toolset"


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server whose tools are wanted: all that are `listed`, if any are, as far as `configs` or else `enabled` says so.

    Tools have the names they have there. `at` is the path of these fields in the request.
    """

    name: str
    url: str = ""
    enabled: bool = True
    configs: Mapping[str, bool] = field(default_factory=dict[str, bool])
    listed: tuple[str, ...] | None = None
    at: str = field(default="", compare=False)

    def allows(self, tool: str) -> bool:
        return (self.listed is None or tool in self.listed) and self.configs.get(tool, self.enabled)


def read_servers(fields: Fields) -> tuple[McpServer, ...]:
    """The servers a request wants, each once, however it names them."""
    toolsets: dict[str, Fields] = {}
    for entry in fields.objects("tools"):
        if entry.get("type") == MCP_TOOLSET:
            name = entry.required_text("mcp_server_name")
            if name in toolsets:
                raise entry.error("mcp_server_name", f"there is another toolset of {name!r}")
            toolsets[name] = entry
    servers: dict[str, McpServer] = {}
    for entry in fields.objects("mcp_servers"):
        server = _read_server(entry, toolsets)
        if server.name in servers:
            raise entry.error("name", f"another server is called {server.name!r}")
        servers[server.name] = server
    alone = (_with_toolset(name, "", entry) for name, entry in toolsets.items() if name not in servers)
    return (*servers.values(), *alone)


def _read_server(entry: Fields, toolsets: Mapping[str, Fields]) -> McpServer:
    kind = entry.required_text("type")
    if kind != "url":
        raise entry.error("type", f"{kind!r} is not supported, only url")
    if entry.get("authorization_token") is not None:
        raise entry.error("authorization_token", "a server is reached with the rights its configuration here gives; send none")
    name, url, older = entry.required_text("name"), entry.text("url") or "", entry.object("tool_configuration")
    if name in toolsets:
        if older is not None:
            raise entry.error("tool_configuration", f"which tools are used is said in the mcp_toolset of {name!r}")
        return _with_toolset(name, url, toolsets[name], entry.path)
    is_enabled = older is None or older.flag("enabled") is not False
    listed = None if older is None or older.get("allowed_tools") is None else older.texts("allowed_tools")
    return McpServer(name, url, is_enabled, listed=listed, at=entry.path)


def _with_toolset(name: str, url: str, toolset: Fields, at: str = "") -> McpServer:
    standard, configs = toolset.object("default_config"), toolset.object("configs")
    enabled = standard.flag("enabled") if standard else None
    each = [(tool, configs.object(tool)) for tool in configs.data] if configs else []
    listed = None if toolset.get("tools") is None else tuple(tool.required_text("name") for tool in toolset.objects("tools"))
    by_tool = {tool: flag for tool, config in each if config and (flag := config.flag("enabled")) is not None}
    return McpServer(name, url, enabled is not False, by_tool, listed, at or toolset.path)


def write_servers(servers: Iterable[McpServer]) -> tuple[list[Json], list[Json]]:
    """The servers and the toolsets that `read_servers` reads back."""
    entries: list[Json] = []
    toolsets: list[Json] = []
    for server in servers:
        entries.append({"type": "url", "name": server.name, "url": server.url})
        toolset: dict[str, Json] = {"type": MCP_TOOLSET, "mcp_server_name": server.name}
        toolset["default_config"] = {"enabled": server.enabled}
        toolset["configs"] = {tool: {"enabled": enabled} for tool, enabled in server.configs.items()}
        if server.listed is not None:
            toolset["tools"] = [{"name": tool, "input_schema": {}} for tool in server.listed]
        toolsets.append(toolset)
    return entries, toolsets


def write_use(id: str, server: str, name: str) -> dict[str, Json]:
    """The block of a call as it begins: its input comes in pieces."""
    return {"type": "mcp_tool_use", "id": id, "name": name, "server_name": server, "input": {}}


def write_result(id: str, result: Result) -> dict[str, Json]:
    """The block of a result. There are no empty texts in this API."""
    content = [{"type": "text", "text": result.text}] if result.text else []
    return {"type": "mcp_tool_result", "tool_use_id": id, "is_error": not result.ok, "content": content}


SERVER_TOOL_USE = "server_tool_use"
SEARCH_RESULT = "tool_search_tool_result"
_VARIANTS = ("tool_search_tool_bm25", "tool_search_tool_regex")


def read_search_tool(fields: Fields) -> str:
    """The name of the search tool that a request declares; "" if there is none."""
    types = (entry.text("type") or "" for entry in fields.objects("tools"))
    return next((name for declared in types for name in _VARIANTS if declared == name or declared.startswith(f"{name}_2")), "")


def is_search(name: str) -> bool:
    """Whether this is a name of the search tool."""
    return name in _VARIANTS


def read_search_result(block: Fields) -> str:
    """The result of a search as the model reads it."""
    content = block.required_object("content")
    names = [(reference.required_text("tool_name"), "") for reference in content.objects("tool_references")]
    if content.text("type") == "tool_search_tool_result_error":
        return f"Error: {content.text('error_message') or content.text('error_code') or 'the search has failed'}"
    return found_text(names) if names else "No tool fits."


def write_search(id: str, name: str) -> dict[str, Json]:
    """The block of a search as it begins: its input comes in pieces."""
    return {"type": SERVER_TOOL_USE, "id": id, "name": name, "input": {}}


def write_search_result(id: str, result: Result) -> dict[str, Json]:
    """The block of what a search has found."""
    references = [{"type": "tool_reference", "tool_name": name} for name in found_names(result.text)]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    return {"type": SEARCH_RESULT, "tool_use_id": id, "content": content}
