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
from callsmith.core.values import Json, Message, Tool
from callsmith.server.settings import EVERYTHING
from callsmith.wire.extensions import Extras, ToolMode
from callsmith.wire.fields import Fields
from callsmith.wire.mcp_names import bare_name, local_url, mcp_name

MCP = "mcp:"  # before the label of an MCP server, in the source of its tools
NOTHING_ADDED = Policy((), "auto", "auto")  # tightens nothing


@dataclass(frozen=True, slots=True)
class Wanted:
    """Some of the server's tools by where they come from: the source, or an MCP server's label; of these, patterns of names."""

    source: str
    tools: tuple[str, ...] = EVERYTHING
    policy: Policy | None = None
    read_only: bool = False  # none with side effects

    def covers(self, tool: Tool) -> bool:
        named = any(_called(tool, pattern) for pattern in self.tools)
        return tool.source in (self.source, MCP + self.source) and named and not (self.read_only and tool.side_effects)


@dataclass(frozen=True, slots=True)
class Wish:
    """How a request wants tools to be dealt with, where it says so.

    `session` is the conversation it is a part of. Of the server's tools those `wanted` are offered, if any are named, and those
    that fit `tools`. `decisions` are a person's words by call id; `approvals` are the ids of stored ones on open calls.
    With `wait`, an answer whose calls need a word stays open until it comes. `told`: approvals are told otherwise than in words.
    """

    mode: ToolMode | None = None
    session: str = ""
    wanted: tuple[Wanted, ...] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    approvals: tuple[str, ...] = ()
    wait: bool = False
    response: str = ""  # the id of the response that is being made, where the dialect has such
    told: bool = False
    tools: tuple[str, ...] | None = None  # patterns of those of the server's tools that are offered


STANDARD_WISH = Wish()


def wish_of(extras: Extras) -> Wish:
    """What a request asks for in fields of our own."""
    return Wish(extras.mode, extras.session, wait=extras.wait, tools=extras.tools)


def label_of(tool: Tool) -> str:
    """Where a tool comes from, as a request names it."""
    return tool.source.removeprefix(MCP)


def name_there(tool: Tool) -> str:
    """What a tool is called where it comes from."""
    return tool.original or tool.name


def check_wanted(wanted: Iterable[Wanted], tools: Iterable[Tool], configured: Iterable[str] = ()) -> None:
    """Complain about a source that does not exist, and name those that do. One that is configured may have no tools just now."""
    known = sorted({label_of(tool) for tool in tools if tool.source} | set(configured))
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


def names_here(tools: Iterable[Tool]) -> dict[str, str]:
    """What tools of MCP servers are called here, by how a history names them."""
    return {mcp_name(label_of(tool), name_there(tool)): tool.name for tool in tools}


def as_called_here(message: Message, names: Mapping[str, str]) -> Message:
    """A message of a history, with tools as they are called here, if they still are here."""

    def here(name: str) -> str:
        return names.get(name) or bare_name(name)

    calls = tuple(replace(call, name=here(call.name)) for call in message.calls)
    return replace(message, calls=calls, name=here(message.name))


def tightening(wanted: Iterable[Wanted], tools: Iterable[Tool]) -> Policy | None:
    """What these wishes add to the operator's policy, on the tools they are about and no others."""
    listed = tuple(tools)
    about = tuple(_only_on(one.policy, tool) for one in wanted if one.policy for tool in listed if one.covers(tool))
    return replace(NOTHING_ADDED, also=about) if about else None


def _only_on(policy: Policy, tool: Tool) -> Policy:
    source = escape(tool.source)
    rules = [
        replace(rule, tools=tool.name, sources=source)
        for rule in policy.rules
        if _called(tool, rule.tools) and fnmatchcase(tool.source, rule.sources)
    ]
    why = "the request wants to be asked"
    rules.append(Rule(policy.side_effects, tool.name, source, side_effects=True, reason=why))
    rules.append(Rule(policy.otherwise, tool.name, source, reason=why))
    return replace(NOTHING_ADDED, rules=tuple(rules), also=tuple(_only_on(one, tool) for one in policy.also))


def _called(tool: Tool, pattern: str) -> bool:
    return fnmatchcase(tool.name, pattern) or (tool.original != "" and fnmatchcase(tool.original, pattern))


def write_wanted(wanted: Wanted) -> Json:
    """A wish to be kept. A rule that is a function cannot be."""
    policy = wanted.policy and _write_policy(wanted.policy)
    return {"source": wanted.source, "tools": list(wanted.tools), "read_only": wanted.read_only, "policy": policy}


def read_wanted(fields: Fields) -> Wanted:
    """What `write_wanted` has written."""
    policy = fields.object("policy")
    read = None if policy is None else _read_policy(policy)
    return Wanted(fields.needed_text("source"), fields.texts("tools"), read, fields.flag("read_only") or False)


def _write_policy(policy: Policy) -> Json:
    if any(rule.when for rule in policy.rules):
        raise UsageError("a policy with a function in it cannot be kept until a person has answered")
    rules = [[rule.then, rule.tools, rule.sources, rule.side_effects, rule.reason] for rule in policy.rules]
    also = [_write_policy(one) for one in policy.also]
    return {"rules": rules, "side_effects": policy.side_effects, "otherwise": policy.otherwise, "also": also}


def _read_policy(fields: Fields) -> Policy:
    rules = tuple(
        Rule(then, tools, sources, side_effects, reason=reason)
        for then, tools, sources, side_effects, reason in fields.array("rules") or ()
    )
    return Policy(rules, fields.get("side_effects"), fields.get("otherwise"), tuple(map(_read_policy, fields.objects("also"))))
