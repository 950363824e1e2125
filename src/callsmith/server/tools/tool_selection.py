"""What a request wants of the server's own tools: which of them, under which rules, and what a person has said about their calls.

    Wish(wanted=(Wanted("files", ("read_*",)), Wanted("web", policy=Policy(otherwise="ask"))))

A policy here can only tighten the operator's. Its rules may name a tool as it is called at its source or as it is called here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import escape

from callsmith.core.approval import Decision, Policy, Rule
from callsmith.core.errors import UsageError
from callsmith.core.values import Message, Tool
from callsmith.server.settings import EVERYTHING
from callsmith.wire.extensions import RequestExtensions, ToolMode
from callsmith.wire.mcp_names import bare_name, local_url, mcp_name

MCP = "mcp:"  # before the label of an MCP server, in the source of its tools
NO_RULES = Policy((), "auto", "auto")  # tightens nothing


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Some of the server's tools by where they come from: the source, or an MCP server's label; of these, patterns of names."""

    source: str
    tools: tuple[str, ...] = EVERYTHING
    policy: Policy | None = None
    read_only: bool = False  # none with side effects

    def covers(self, tool: Tool) -> bool:
        named = any(_is_named(tool, pattern) for pattern in self.tools)
        return tool.source in (self.source, MCP + self.source) and named and not (self.read_only and tool.side_effects)


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """How a request wants tools to be dealt with, where it says so.

    `session` is the conversation it is a part of. Of the server's tools those `wanted` are offered, if any are named, and those
    that fit `tools`. `decisions` are a person's words by call id; `approvals` are the ids of stored ones on open calls.
    With `wait`, an answer whose calls need a word stays open until it comes. `told`: approvals are told otherwise than in words.
    """

    mode: ToolMode | None = None
    session: str = ""
    sources: tuple[ToolSource, ...] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    approvals: tuple[str, ...] = ()
    wait_for_approval: bool = False
    response_id: str = ""  # the id of the response that is being made, where the dialect has such
    shows_tool_items: bool = False
    allowed: tuple[str, ...] | None = None  # patterns of those of the server's tools that are offered


DEFAULT_OPTIONS = ToolOptions()


def options_of(extras: RequestExtensions) -> ToolOptions:
    """What a request asks for in fields of our own."""
    return ToolOptions(extras.mode, extras.session, wait_for_approval=extras.wait, allowed=extras.tools)


def source_label(tool: Tool) -> str:
    """Where a tool comes from, as a request names it."""
    return tool.source.removeprefix(MCP)


def original_name(tool: Tool) -> str:
    """What a tool is called where it comes from."""
    return tool.original or tool.name


def check_sources(wanted: Iterable[ToolSource], tools: Iterable[Tool], configured: Iterable[str] = ()) -> None:
    """Complain about a source that does not exist, and name those that do. One that is configured may have no tools just now."""
    known = sorted({source_label(tool) for tool in tools if tool.source} | set(configured))
    for one in wanted:
        if one.source.removeprefix(MCP) not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"{one.source!r} is no source of tools on this server; there are: {there}", field="tools")


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


def added_policy(wanted: Iterable[ToolSource], tools: Iterable[Tool]) -> Policy | None:
    """What these wishes add to the operator's policy, on the tools they are about and no others."""
    listed = tuple(tools)
    about = tuple(_only_on(one.policy, tool) for one in wanted if one.policy for tool in listed if one.covers(tool))
    return replace(NO_RULES, also=about) if about else None


def _only_on(policy: Policy, tool: Tool) -> Policy:
    source = escape(tool.source)
    rules = [
        replace(rule, tools=tool.name, sources=source)
        for rule in policy.rules
        if _is_named(tool, rule.tools) and fnmatchcase(tool.source, rule.sources)
    ]
    why = "the request wants to be asked"
    rules.append(Rule(policy.side_effects, tool.name, source, side_effects=True, reason=why))
    rules.append(Rule(policy.otherwise, tool.name, source, reason=why))
    return replace(NO_RULES, rules=tuple(rules), also=tuple(_only_on(one, tool) for one in policy.also))


def _is_named(tool: Tool, pattern: str) -> bool:
    return fnmatchcase(tool.name, pattern) or (tool.original != "" and fnmatchcase(tool.original, pattern))
