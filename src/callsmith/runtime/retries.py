"""Calls that are tried again because what went wrong may pass: those that only read, and those that may be made twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from callsmith.core.closing import closing
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool

_PAUSE: Final = 0.25  # seconds before the second attempt; twice as many before the third, and so on
_CODES: Final = ("timeout", "unavailable")
# As the standard library, requests, httpx and aiohttp call them.
_ERRORS: Final = frozenset({"ConnectionError", "TimeoutError", "Timeout", "TransportError", "ClientConnectionError"})


async def with_retries(toolset: Toolset, tool: Tool, call: Call, context: Context, retries: int) -> AsyncIterator[CallEvent]:
    """What comes of a call, which is made up to `retries` times again; a tool with side effects only if it is idempotent, for
    the same call has the same id."""
    retries = retries if tool.idempotent or not tool.side_effects else 0
    for attempt in range(retries + 1):
        why = ""
        try:
            async with closing(toolset.call(call, context)) as items:
                async for item in items:
                    if attempt < retries and isinstance(item, Result) and not item.ok and item.code in _CODES:
                        why = item.text
                    else:
                        yield item
        except Exception as error:
            if attempt == retries or not _may_pass(error):
                raise
            why = str(error) or type(error).__name__
        if not why:
            return
        yield ToolProgress(call.id, f"attempt {attempt + 1} of {retries + 1} failed: {why}")
        await asyncio.sleep(_PAUSE * 2**attempt)


def _may_pass(error: Exception) -> bool:
    """Whether the same call may go well a little later: nothing was reached, or it took too long."""
    return getattr(error, "retryable", False) is True or any(kind.__name__ in _ERRORS for kind in type(error).__mro__)
