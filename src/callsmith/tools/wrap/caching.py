"""Cached: what was asked before, by the same caller, is not asked again."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeAlias

from callsmith.core.closing import closing
from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.tools.wrap.wrapper import Item, Wrapper

Key: TypeAlias = tuple[str, str, str, str]

_BEGUN = ToolProgress("")  # tells those who watch that the tool starts


@dataclass(frozen=True, slots=True)
class _Kept:
    result: Result
    since: float


class Cached(Wrapper):
    """Keeps results of idempotent tools without side effects for `ttl` seconds, at most `size` of them.

    Callers never see each other's: results are kept by subject and, where there is none, by conversation. The same call made
    twice at once runs once. Failures are not kept. A hit shows as progress, "from the cache".
    """

    def __init__(self, toolset: Toolset, ttl: float = 300.0, size: int = 256) -> None:
        super().__init__(toolset)
        self._ttl = ttl
        self._size = size
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._flights: dict[Key, _Flight] = {}

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        tool = await self._tool(call.name)
        if tool is None or tool.side_effects or not tool.idempotent:
            items = self._toolset.call(call, context)
        else:
            items = self._shared(_key(tool, call, context), call, context)
        async with closing(items):
            async for item in items:
                yield item

    async def _shared(self, key: Key, call: Call, context: Context) -> AsyncIterator[Item]:
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(key)
        if kept is not None and now - kept.since < self._ttl:
            self._kept.move_to_end(key)
            await context.starting()
            yield ToolProgress(call.id, f"from the cache, {now - kept.since:.0f} s old")
            yield replace(kept.result, call_id=call.id)
            return
        flight = self._flights.get(key) or self._start(key, call, context)
        async with closing(flight.watch(context)) as items:
            async for item in items:
                if not isinstance(item, ConfirmationNeeded):
                    yield replace(item, call_id=call.id)
                    continue
                async with closing(self._toolset.call(call, context)) as own:  # a person is asked about each call by itself
                    async for answer in own:
                        yield answer

    def _start(self, key: Key, call: Call, context: Context) -> "_Flight":
        def keep(result: Result) -> None:
            self._kept[key] = _Kept(result, asyncio.get_running_loop().time())
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

        self._flights[key] = flight = _Flight(keep, lambda: self._flights.pop(key, None))
        flight.start(self._toolset, call, context)
        return flight


class _Flight:
    """A call under way, watched by all who made it. It is given up when the last of them has gone, and not before."""

    _task: asyncio.Task[None]

    def __init__(self, keep: Callable[[Result], None], forget: Callable[[], object]) -> None:
        self._keep = keep
        self._forget = forget
        self._begun = False
        self._inboxes: list[asyncio.Queue[Item | None]] = []

    def start(self, toolset: Toolset, call: Call, context: Context) -> None:
        # Whoever called first may leave: the tool hears from the flight, not from him, whether anybody still waits.
        shared = replace(context, starting=self._begin, cancelled=lambda: not self._inboxes)
        self._task = asyncio.create_task(self._fly(toolset.call(call, shared)))

    async def watch(self, context: Context) -> AsyncIterator[Item]:
        """What comes from now on, and the result."""
        inbox: asyncio.Queue[Item | None] = asyncio.Queue()
        self._inboxes.append(inbox)
        try:
            if self._begun:
                await context.starting()
            while (item := await inbox.get()) is not None:
                if item is _BEGUN:
                    await context.starting()
                else:
                    yield item
            await asyncio.wait({self._task})
            self._task.result()  # raises what the tool has raised
        finally:
            self._inboxes.remove(inbox)
            if not self._inboxes and not self._task.done():
                self._forget()  # at once: nobody may join what is being given up
                self._task.cancel()
                await asyncio.wait({self._task})

    async def _begin(self) -> None:
        self._begun = True
        self._tell(_BEGUN)

    async def _fly(self, items: AsyncIterator[Item]) -> None:
        try:
            async with closing(items) as arriving:
                async for item in arriving:
                    if isinstance(item, Result) and item.ok:
                        self._keep(item)
                    self._tell(item)
        finally:
            if self._inboxes:  # else it was given up, and forgotten then
                self._forget()
            self._tell(None)

    def _tell(self, item: Item | None) -> None:
        for inbox in self._inboxes:
            inbox.put_nowait(item)


def _key(tool: Tool, call: Call, context: Context) -> Key:
    whose = f"subject {context.subject}" if context.subject else f"conversation {context.conversation}"
    return whose, tool.name, _hash(tool.parameters), _hash(call.arguments)


def _hash(value: Json) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
