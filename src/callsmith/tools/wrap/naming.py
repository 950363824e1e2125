"""Merged, Renamed and Filtered toolsets: which tools are shown, and under which names."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, TypeAlias, assert_never

from callsmith.core.approval import Judgement, ToolChanged
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import CallDeferred, ConfirmationNeeded, ToolProgress
from callsmith.core.failures import unknown_tool
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.functions import Tools, as_toolset
from callsmith.tools.wrap.wrapper import Item, judgements

Prefix: TypeAlias = Literal["auto", "always", "never"]
ToolFilter: TypeAlias = str | Iterable[str] | Callable[[Tool], bool]  # shell patterns of names, or a predicate

LONGEST_NAME = 64  # what the strictest of the APIs allow
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Route:
    """The toolset that runs a tool, and the tool with its name in that toolset."""

    toolset: Toolset
    tool: Tool


class Routed(ABC):
    """A toolset that shows the tools of others under names of its own, and translates the names in calls and results."""

    _listed: Mapping[str, tuple[Tool, Route]] = {}  # by name, the tools as they were last shown, and what runs them

    @abstractmethod
    async def _routes(self) -> Mapping[str, Route]:
        """What runs the tools, by the names they are shown under."""

    async def tools(self) -> Sequence[Tool]:
        self._listed = {name: (self._show(name, route), route) for name, route in (await self._routes()).items()}
        return [tool for tool, _ in self._listed.values()]

    def _show(self, name: str, route: Route) -> Tool:
        """The tool under its name here: the same object as long as nothing has changed, so that caches know it."""
        tool, last = self._listed.get(name, (None, None))
        return tool if tool and last and last.tool is route.tool else _rename(route.tool, name)

    async def judgements(self) -> Mapping[str, Judgement]:
        """What the policies inside say of each tool, by the name it is shown under."""
        routes = await self._routes()
        toolsets = {id(route.toolset): route.toolset for route in routes.values()}
        judged = {key: await judgements(toolset) for key, toolset in toolsets.items()}
        inside = {name: (judged[id(route.toolset)], route.tool.name) for name, route in routes.items()}
        return {name: known[inner] for name, (known, inner) in inside.items() if inner in known}

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        listed_tool, route = self._listed.get(call.name, (None, None))
        if route is None or listed_tool is not context.tool:  # nobody has listed it, or it has been listed anew since
            routes = await self._routes()
            if call.name not in routes:
                yield unknown_tool(call, routes)
                return
            route = routes[call.name]
        if context.approved and context.approved != route.tool.digest:
            raise ToolChanged(call.name)
        # Grants are for outer names: inside, the same name may be another tool.
        is_granted = bool(context.granted) and _rename(route.tool, call.name).grant in context.granted
        granted = frozenset({route.tool.grant} if is_granted else ())
        inner = replace(call, name=route.tool.name)
        async with closing(route.toolset.call(inner, replace(context, granted=granted, tool=route.tool))) as items:
            async for item in items:
                match item:
                    case Result():
                        yield replace(item, name=call.name)
                    case ConfirmationNeeded():
                        tool = None if item.tool is None else _rename(item.tool, call.name)
                        yield replace(item, call=replace(item.call, name=call.name), tool=tool)
                    case CallDeferred():
                        yield replace(item, call=replace(item.call, name=call.name))
                    case ToolProgress():
                        yield item
                    case _:
                        assert_never(item)


class Merged(Routed):
    """Several toolsets as one. A toolset may have a name, `("files", toolset)`; without one the tools' source is used.

    `prefix` says when a tool is called `files_read` instead of `read`: "auto" where two tools have the same name, "always", or
    "never". A collision that remains is an error.
    """

    def __init__(self, *toolsets: Toolset | list[Callable[..., Any]] | tuple[str, Tools], prefix: Prefix = "auto") -> None:
        parts = [toolset if isinstance(toolset, tuple) else ("", toolset) for toolset in toolsets]
        self._parts = [(label, as_toolset(tools)) for label, tools in parts]
        self._prefix = prefix

    async def _routes(self) -> Mapping[str, Route]:
        listed = [(label, Route(toolset, tool)) for label, toolset in self._parts for tool in await toolset.tools()]
        counts = Counter(route.tool.name for _, route in listed)
        routes: dict[str, Route] = {}
        for label, route in listed:
            name = route.tool.name
            if self._prefix == "always" or (self._prefix == "auto" and counts[name] > 1):
                name = _UNFIT.sub("_", f"{label or route.tool.source or 'tools'}_") + name
            if name in routes:
                raise UsageError(f'two tools are called {name!r}: give their toolsets names, as in Merged(("files", toolset), …)')
            routes[name] = route
        return routes


class Renamed(Routed):
    """Tools under other names: by a table, or by a function for all of them.

    The standard function turns dotted and long names into names that every API accepts. Where a function gives two tools the same
    name, a hash of the original name is appended to those it changed; a table that does so is an error.
    """

    def __init__(self, toolset: Tools, names: Mapping[str, str] | Callable[[str], str] | None = None) -> None:
        self._toolset = as_toolset(toolset)
        self._table = {} if names is None or callable(names) else dict(names)
        self._rule = names if callable(names) else api_name if names is None else None

    async def _routes(self) -> Mapping[str, Route]:
        tools, rule = await self._toolset.tools(), self._rule
        names = {tool.name: rule(tool.name) if rule else self._table.get(tool.name, tool.name) for tool in tools}
        counts = Counter(names.values())
        routes: dict[str, Route] = {}
        for tool in tools:
            name = names[tool.name]
            if rule and counts[name] > 1 and name != tool.name:
                name = _with_hash(name, tool.name)
            if name in routes:
                raise UsageError(f"two tools would be called {name!r}")
            routes[name] = Route(self._toolset, tool)
        return routes


class Filtered(Routed):
    """The tools that are allowed and not denied. To callers the others do not exist."""

    def __init__(self, toolset: Tools, *, allow: ToolFilter = "*", deny: ToolFilter = ()) -> None:
        self._toolset = as_toolset(toolset)
        self._allow, self._deny = make_filter(allow), make_filter(deny)

    async def _routes(self) -> Mapping[str, Route]:
        tools = await self._toolset.tools()
        return {tool.name: Route(self._toolset, tool) for tool in tools if self._allow(tool) and not self._deny(tool)}


def api_name(name: str) -> str:
    """The name in the form that every API accepts: `[A-Za-z0-9_-]{1,64}`.

    >>> api_name("rag.query")
    'rag_query'
    """
    fit = _UNFIT.sub("_", name)
    return fit if len(fit) <= LONGEST_NAME else _with_hash(fit, name)


def _rename(tool: Tool, name: str) -> Tool:
    """The tool under another name. `original` stays the name at its source."""
    return tool if tool.name == name else replace(tool, name=name, original=tool.original or tool.name)


def _with_hash(name: str, original: str) -> str:
    mark = f"_{sha256(original.encode()).hexdigest()[:8]}"
    return name[: LONGEST_NAME - len(mark)] + mark


def make_filter(which: ToolFilter) -> Callable[[Tool], bool]:
    """A predicate on tools, from patterns of names or a predicate."""
    if callable(which):
        return which
    patterns = (which,) if isinstance(which, str) else tuple(which)
    return lambda tool: any(fnmatchcase(tool.name, pattern) for pattern in patterns)
