"""Closing async iterators at once: a generation that nobody reads must stop now, not at the next garbage collection."""

from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class closing(Generic[T]):
    """`async with closing(model.stream(request)) as events:` closes the iterator on every way out, if it can be closed."""

    __slots__ = ("_items",)

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._items

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[None]:
        return getattr(self._items, "aclose", _do_nothing)()


async def _do_nothing() -> None:
    """What closes an iterator that cannot be closed."""
