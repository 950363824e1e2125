"""What comes of calls: those that only read or may be made twice are tried again where what went wrong may pass.

Results are messages for the model: cut where they are too long, and encodable.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from logging import Logger
from typing import Final

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context, Toolset
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.values import Call, Message, Result, Tool

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


def make_error_result(call: Call, error: BaseException) -> Result:
    """The result of a tool that raised an exception: its message, or its type where it has none."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return make_failure(call, "internal_error", text or type(error).__name__)


def log_raised(log: Logger, words: str, call: Call, error: BaseException) -> None:
    """Log what a tool raised, in `words` with its name and that: what says itself what is wrong is one line."""
    says = isinstance(error, CallsmithError)
    log.error(words, call.name, error if says else type(error).__name__, exc_info=None if says else error)


def result_message(result: Result, most: int) -> tuple[Message, int]:
    """The message for the model, and how many characters of the result it leaves out. Raises where the content is not JSON."""
    message = Message.tool(result)
    text = _encodable(cut_text(message.content, most))
    return (message if text == message.content else replace(message, content=text)), max(0, len(message.content) - most)


def _encodable(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
