"""The server's own tools: functions, MCP servers and those of the server's parts, as the settings want them."""

from collections.abc import Mapping
from dataclasses import replace

from callsmith.core.capability.execution import Audit
from callsmith.core.ports import Toolset
from callsmith.server.settings import EVERYTHING, Llm
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Audited, Cached, Confirmed, Filtered, Merged, Shortened


def wrap_server_tools(
    tools: Toolset | None,
    llm: Llm,
    mcp: McpHost | None = None,
    audit: Audit | None = None,
    of_parts: Mapping[str, Toolset] | None = None,
) -> Toolset | None:
    """The server's own tools as the settings want them. A toolset that already asks before it acts is left to its own policy."""
    if not llm.tools_enabled:
        return None
    ask = llm.tools_require_confirmation_for_side_effects
    if tools is not None:
        asks_already, tools = isinstance(tools, Confirmed), _wrap(tools, llm, audit)
        if ask and not asks_already:
            tools = Confirmed(tools)
    if mcp is not None:
        servers = Confirmed(_wrap(mcp, llm, audit), mcp.policy if ask else replace(mcp.policy, side_effects="auto"))
        tools = servers if tools is None else Merged(("functions", tools), ("mcp", servers))
    for name, toolset in (of_parts or {}).items():
        wrapped = _wrap(toolset, llm, audit)
        wrapped = Confirmed(wrapped) if ask else wrapped
        tools = wrapped if tools is None else Merged(tools, (name, wrapped))
    if tools is None or llm.tools_default_set == EVERYTHING:
        return tools
    return Filtered(tools, allow=llm.tools_default_set)


def _wrap(tools: Toolset, llm: Llm, audit: Audit | None) -> Toolset:
    """The tools in the wrappers that all of them have, inside of what asks before they run."""
    tools = Shortened(tools, llm.tools_longest_result)  # before anybody caches, stores or sends it
    tools = tools if audit is None else Audited(tools, audit)
    return Cached(tools, llm.tools_cache_seconds) if llm.tools_cache else tools
