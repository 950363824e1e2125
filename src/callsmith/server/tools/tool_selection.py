"""Which of the server's own tools there are, which a request gets, under which rules, and how they are named in a history."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import escape

from callsmith.core.approval import Policy, Rule
from callsmith.core.capability.execution import Audit
from callsmith.core.errors import UsageError
from callsmith.core.ports import Toolset
from callsmith.core.values import Message, Tool
from callsmith.server.settings import EVERYTHING, Llm
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Audited, Cached, Confirmed, Filtered, Merged, Shortened
from callsmith.wire.extensions import MCP, ToolSource, is_named
from callsmith.wire.tools import bare_name, local_url, mcp_name

NO_RULES = Policy((), "auto", "auto")  # tightens nothing


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


async def select_tools(
    toolset: Toolset, sources: Iterable[ToolSource], configured: Iterable[str]
) -> tuple[Toolset, Policy | None]:
    """The toolset with only the tools of these sources, and what they add to the operator's policy."""
    wanted = tuple(sources)
    if not wanted:
        return toolset, None
    tools = await toolset.tools()
    check_sources(wanted, tools, configured)
    chosen: Toolset = Filtered(toolset, allow=lambda tool: any(source.covers(tool) for source in wanted))
    tighten = added_policy(wanted, tools)
    # The operator's own confirmation may know the tools by other names, or there is none.
    return (chosen if tighten is None else Confirmed(chosen, NO_RULES)), tighten


def source_label(tool: Tool) -> str:
    """Where a tool comes from, as a request names it."""
    return tool.source.removeprefix(MCP)


def original_name(tool: Tool) -> str:
    """What a tool is called where it comes from."""
    return tool.original or tool.name


def check_sources(sources: Iterable[ToolSource], tools: Iterable[Tool], configured: Iterable[str] = ()) -> None:
    """Complain about a source that does not exist, and name those that do. One that is configured may have no tools just now."""
    known = sorted({source_label(tool) for tool in tools if tool.source} | set(configured))
    for source in sources:
        if source.source.removeprefix(MCP) not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"unknown source of tools {source.source!r}; this server has: {there}", field="tools")


def check_address(label: str, url: str, addresses: Mapping[str, str], field: str) -> None:
    """Complain if a request means a server that is somewhere else: only those that are configured here are used."""
    if url not in ("", local_url(label)) and url.rstrip("/") != addresses.get(label, "").rstrip("/"):
        raise UsageError(
            f"{field}: only MCP servers that are configured here are used, and {label!r} is not at {url!r}; "
            f"send the url {local_url(label)!r} to use the one that is configured, or have it configured with this url",
            field=field,
        )


def local_names(tools: Iterable[Tool]) -> dict[str, str]:
    """What tools of MCP servers are called here, by how a history names them."""
    return {mcp_name(source_label(tool), original_name(tool)): tool.name for tool in tools}


def with_local_names(message: Message, names: Mapping[str, str]) -> Message:
    """A message of a history, with tools as they are called here, if they still are here."""

    def here(name: str) -> str:
        return names.get(name) or bare_name(name)

    calls = tuple(replace(call, name=here(call.name)) for call in message.calls)
    return replace(message, calls=calls, name=here(message.name))


def added_policy(sources: Iterable[ToolSource], tools: Iterable[Tool]) -> Policy | None:
    """What these sources add to the operator's policy, on the tools they are about and no others."""
    listed = tuple(tools)
    about = tuple(_only_on(source.policy, tool) for source in sources if source.policy for tool in listed if source.covers(tool))
    return replace(NO_RULES, also=about) if about else None


def _only_on(policy: Policy, tool: Tool) -> Policy:
    source = escape(tool.source)
    rules = [
        replace(rule, tools=tool.name, sources=source)
        for rule in policy.rules
        if is_named(tool, rule.tools) and fnmatchcase(tool.source, rule.sources)
    ]
    why = "the request wants to be asked"
    rules.append(Rule(policy.side_effects, tool.name, source, side_effects=True, reason=why))
    rules.append(Rule(policy.otherwise, tool.name, source, reason=why))
    return replace(NO_RULES, rules=tuple(rules), also=tuple(_only_on(added, tool) for added in policy.also))
