"""Which tools there are, and under which names: Merged, Renamed, Filtered."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Literal, TypeAlias, assert_never

from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import CallDeferred, ConfirmationNeeded, ToolProgress
from callsmith.core.failures import unknown_tool
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.wrap.wrapper import Item

Prefix: TypeAlias = Literal["auto", "always", "never"]
Which: TypeAlias = str | Iterable[str] | Callable[[Tool], bool]  # shell patterns of names, or whatever can be said of a tool

LONGEST_NAME = 64  # what the strictest of the APIs allow
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Route:
    """Where calls of a tool go. `tool` is as seen from inside."""

    toolset: Toolset
    tool: Tool


class Routed:
    """A toolset that shows tools of others under names of its own. Calls go in under the inner name and come out under ours."""

    async def _routes(self) -> Mapping[str, Route]:
        raise NotImplementedError

    async def tools(self) -> Sequence[Tool]:
        return [_shown(route.tool, name) for name, route in (await self._routes()).items()]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        routes = await self._routes()
        if call.name not in routes:
            yield unknown_tool(call, routes)
            return
        route = routes[call.name]
        # What was granted is a name on the outside: inside, the same word may be another tool.
        granted = frozenset({route.tool.name} if call.name in context.granted else ())
        inner = replace(call, name=route.tool.name)
        async with closing(route.toolset.call(inner, replace(context, granted=granted))) as items:
            async for item in items:
                match item:
                    case Result():
                        yield replace(item, name=call.name)
                    case ConfirmationNeeded() | CallDeferred():
                        yield replace(item, call=replace(item.call, name=call.name))
                    case ToolProgress():
                        yield item
                    case _:
                        assert_never(item)


class Merged(Routed):
    """Several toolsets as one. A toolset may have a name, `("files", toolset)`; without one its tools' source stands in.

    `prefix` says when a tool is called `files_read` instead of `read`: "auto" where two tools have the same name, "always", or
    "never". A collision that remains is an error.
    """

    def __init__(self, *toolsets: Toolset | tuple[str, Toolset], prefix: Prefix = "auto") -> None:
        self._parts = [one if isinstance(one, tuple) else ("", one) for one in toolsets]
        self._prefix = prefix

    async def _routes(self) -> Mapping[str, Route]:
        found = [(label, Route(toolset, tool)) for label, toolset in self._parts for tool in await toolset.tools()]
        counts = Counter(route.tool.name for _, route in found)
        routes: dict[str, Route] = {}
        for label, route in found:
            name = route.tool.name
            if self._prefix == "always" or (self._prefix == "auto" and counts[name] > 1):
                name = _UNFIT.sub("_", f"{label or route.tool.source or 'tools'}_") + name
            if name in routes:
                raise UsageError(f'two tools are called {name!r}: give their toolsets names, as in Merged(("files", toolset), …)')
            routes[name] = route
        return routes


class Renamed(Routed):
    """Tools under other names: by a table, or by a rule for all of them.

    The standard rule turns dotted and long names into what every API takes. Where a rule gives two tools the same name, those it
    changed get a mark made from their own; a table that does so is an error.
    """

    def __init__(self, toolset: Toolset, names: Mapping[str, str] | Callable[[str], str] | None = None) -> None:
        self._toolset = toolset
        self._table = {} if names is None or callable(names) else dict(names)
        self._rule = names if callable(names) else fitting if names is None else None

    async def _routes(self) -> Mapping[str, Route]:
        tools, rule = await self._toolset.tools(), self._rule
        given = {tool.name: rule(tool.name) if rule else self._table.get(tool.name, tool.name) for tool in tools}
        counts = Counter(given.values())
        routes: dict[str, Route] = {}
        for tool in tools:
            name = given[tool.name]
            if rule and counts[name] > 1 and name != tool.name:
                name = _marked(name, tool.name)
            if name in routes:
                raise UsageError(f"two tools would be called {name!r}")
            routes[name] = Route(self._toolset, tool)
        return routes


class Filtered(Routed):
    """Some of the tools: those allowed and not denied. The others do not exist."""

    def __init__(self, toolset: Toolset, *, allow: Which = "*", deny: Which = ()) -> None:
        self._toolset = toolset
        self._allow, self._deny = test_of(allow), test_of(deny)

    async def _routes(self) -> Mapping[str, Route]:
        tools = await self._toolset.tools()
        return {tool.name: Route(self._toolset, tool) for tool in tools if self._allow(tool) and not self._deny(tool)}


def fitting(name: str) -> str:
    """The name, as `[A-Za-z0-9_-]{1,64}`.

    >>> fitting("rag.query")
    'rag_query'
    """
    fit = _UNFIT.sub("_", name)
    return fit if len(fit) <= LONGEST_NAME else _marked(fit, name)


def _shown(tool: Tool, name: str) -> Tool:
    """The tool under a name of ours. What it is called where it comes from is the innermost name."""
    return tool if tool.name == name else replace(tool, name=name, original=tool.original or tool.name)


def _marked(name: str, original: str) -> str:
    mark = f"_{sha256(original.encode()).hexdigest()[:8]}"
    return name[: LONGEST_NAME - len(mark)] + mark


def test_of(which: Which) -> Callable[[Tool], bool]:
    if callable(which):
        return which
    patterns = (which,) if isinstance(which, str) else tuple(which)
    return lambda tool: any(fnmatchcase(tool.name, pattern) for pattern in patterns)
