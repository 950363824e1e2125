"""Closing async iterators at once: a generation that nobody reads must stop now, not at the next garbage collection."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class closing(Generic[T]):
    """`async with closing(model.stream(request)) as events:` closes the iterator on every way out, if it can be closed."""

    __slots__ = ("_items",)

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._items

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        aclose: Any = getattr(self._items, "aclose", None)
        if aclose is not None:
            await aclose()
