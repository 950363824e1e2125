"""Cached: a toolset that caches results by conversation, caller, tool and arguments."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeAlias

from callsmith.core.closing import closing
from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.failures import CACHED
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Json, Result
from callsmith.tools.functions import Tools
from callsmith.tools.wrap.wrapper import Item, Wrapper

Whose: TypeAlias = tuple[str, str, str]  # whose results: of which conversation, caller and authority
Key: TypeAlias = tuple[Whose, str, str, str]

_STARTED = ToolProgress("")  # tells the subscribers that the tool starts


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    result: Result
    since: float


class Cached(Wrapper):
    """Caches results of idempotent tools without side effects, at most `size` of them (LRU), for as many seconds as the tool says
    and `ttl` where it says nothing (0: not at all).

    Results are cached for a conversation and a caller; no others see them. A call of a tool that has side effects ends what is
    cached for its conversation. The same call made twice at once runs once. Failures are not cached. A hit is reported as
    progress, "from the cache", and its result has the code `cached`.
    """

    def __init__(self, toolset: Tools, ttl: float = 300.0, size: int = 256) -> None:
        super().__init__(toolset)
        self._ttl = ttl
        self._size = size
        self._entries: OrderedDict[Key, _CacheEntry] = OrderedDict()
        self._in_flight: dict[Key, _SharedCall] = {}

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        context = await self._with_tool(call, context)
        tool = context.tool
        seconds = self._ttl if tool is None or tool.cache_seconds is None else tool.cache_seconds
        if tool is not None and tool.idempotent and not tool.side_effects and seconds > 0:
            key = _whose(context), tool.name, tool.digest, _hash(call.arguments)
            items = self._share(key, seconds, call, context)
        else:
            items = self._toolset.call(call, context)
        try:
            async with closing(items):
                async for item in items:
                    yield item
        finally:
            if tool is None or tool.side_effects:
                self._forget(context)

    def _forget(self, context: Context) -> None:
        """Drop what is cached for this conversation: it may not be so any more."""
        whose = _whose(context)
        for cached in (self._entries, self._in_flight):
            for key in [key for key in cached if key[0] == whose]:
                del cached[key]

    async def _share(self, key: Key, seconds: float, call: Call, context: Context) -> AsyncIterator[Item]:
        now = asyncio.get_running_loop().time()
        entry = self._entries.get(key)
        if entry is not None and now - entry.since < seconds:
            self._entries.move_to_end(key)
            await context.starting()
            yield ToolProgress(call.id, f"from the cache, {now - entry.since:.0f} s old")
            yield replace(entry.result, call_id=call.id, code=CACHED)
            return
        shared = self._in_flight.get(key) or self._start(key, call, context)
        async with closing(shared.subscribe(context)) as items:
            async for item in items:
                if not isinstance(item, ConfirmationNeeded):
                    yield replace(item, call_id=call.id)
                    continue
                async with closing(self._toolset.call(call, context)) as own:  # each call needs an approval of its own
                    async for answer in own:
                        yield answer

    def _start(self, key: Key, call: Call, context: Context) -> "_SharedCall":
        def store(result: Result) -> None:
            if self._in_flight.get(key) is not shared:  # something has changed since it began
                return
            self._entries[key] = _CacheEntry(result, asyncio.get_running_loop().time())
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

        def forget() -> None:
            if self._in_flight.get(key) is shared:
                del self._in_flight[key]

        self._in_flight[key] = shared = _SharedCall(store, forget)
        shared.start(self._toolset, call, context)
        return shared


class _SharedCall:
    """A call that runs once for several callers. It is cancelled when the last of them stops waiting, and not before."""

    _task: asyncio.Task[None]

    def __init__(self, store: Callable[[Result], None], forget: Callable[[], object]) -> None:
        self._store = store
        self._forget = forget
        self._has_started = False
        self._subscribers: list[asyncio.Queue[Item | None]] = []

    def start(self, toolset: Toolset, call: Call, context: Context) -> None:
        # The first caller may stop waiting: whether the call is cancelled depends on all subscribers, not on the first.
        shared = replace(context, starting=self._announce_start, cancelled=lambda: not self._subscribers)
        self._task = asyncio.create_task(self._run(toolset.call(call, shared)))

    async def subscribe(self, context: Context) -> AsyncIterator[Item]:
        """The items from now on, and the result."""
        inbox: asyncio.Queue[Item | None] = asyncio.Queue()
        self._subscribers.append(inbox)
        try:
            if self._has_started:
                await context.starting()
            while (item := await inbox.get()) is not None:
                if item is _STARTED:
                    await context.starting()
                else:
                    yield item
            await asyncio.wait({self._task})
            self._task.result()  # raises what the tool has raised
        finally:
            self._subscribers.remove(inbox)
            if not self._subscribers and not self._task.done():
                self._forget()  # at once: no further caller may join a call that is being cancelled
                self._task.cancel()
                await asyncio.wait({self._task})

    async def _announce_start(self) -> None:
        self._has_started = True
        self._publish(_STARTED)

    async def _run(self, items: AsyncIterator[Item]) -> None:
        try:
            async with closing(items) as arriving:
                async for item in arriving:
                    if isinstance(item, Result) and item.ok:
                        self._store(item)
                    self._publish(item)
        finally:
            if self._subscribers:  # else it was cancelled, and removed then
                self._forget()
            self._publish(None)

    def _publish(self, item: Item | None) -> None:
        for inbox in self._subscribers:
            inbox.put_nowait(item)


def _whose(context: Context) -> Whose:
    """With a token of less scope the same caller is another one: it may not see what the wider one saw."""
    authority = context.authority
    lineage = "" if authority is None else _hash([authority.subject, *authority.via, authority.trust, authority.token])
    return context.conversation, context.subject, lineage


def _hash(value: Json) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
