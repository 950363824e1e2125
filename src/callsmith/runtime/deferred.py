"""Tools that whoever asked runs itself, offered beside a toolset: their calls come out as `CallDeferred`."""

from collections.abc import AsyncIterator, Iterable, Sequence

from callsmith.core.closing import closing
from callsmith.core.events import CallDeferred, CallEvent
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Tool


class DeferredTools:
    """A toolset and, beside its tools, the caller's own. Where two have one name, the caller's is meant."""

    def __init__(self, toolset: Toolset | None, deferred: Iterable[Tool]) -> None:
        self._toolset = toolset
        self._deferred = {tool.name: tool for tool in deferred}

    async def tools(self) -> Sequence[Tool]:
        own = () if self._toolset is None else await self._toolset.tools()
        return (*self._deferred.values(), *(tool for tool in own if tool.name not in self._deferred))

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        if self._toolset is None or call.name in self._deferred:
            yield CallDeferred(call)
            return
        async with closing(self._toolset.call(call, context)) as items:
            async for item in items:
                yield item
