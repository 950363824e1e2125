"""Closing what one iterates over: a generation nobody reads must stop at once, not when the garbage collector comes by."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(items: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """`async with closing(model.stream(request)) as events:` closes the iterator on every way out, if it can be closed."""
    try:
        yield items
    finally:
        aclose: Any = getattr(items, "aclose", None)
        if aclose is not None:
            await aclose()
