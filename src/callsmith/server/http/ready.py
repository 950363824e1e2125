"""`ReadyItems`: what an async iterator has ready is taken at once, so that what came together is sent together."""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from types import coroutine
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 64  # items that are taken at once


class ReadyItems(Generic[T]):
    """Takes the items of an async iterator in lists: those that are there without waiting for anything.

        async with aclosing(ReadyItems(frames)) as ready:
            while frames := await ready.take():
                await send(b"".join(frames))

    Nothing is held back: the list ends where the iterator begins to wait. What it waits for is remembered, and waited for by the
    next `take`.
    """

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self._next: Any = None  # the next item, while it is waited for
        self._waits_for: Any = None  # the future that it waits for; None: the other tasks' turn
        self._error: BaseException | None = None  # behind the items that were taken
        self._has_ended = False
        self._gives_up = False

    @coroutine
    def take(self) -> Generator[Any, Any, list[T]]:
        """The items that are there; the next one, and those that come with it, if none is. Empty at the end."""
        taken: list[T] = []
        coming, self._next = self._next, None
        while not self._has_ended and self._error is None and len(taken) < _MOST:
            try:
                if coming is None:
                    coming = self._items.__anext__().__await__()
                    waits_for = coming.send(None)
                else:
                    try:
                        if self._gives_up:
                            raise CancelledError
                        sent = yield self._waits_for
                    except BaseException as error:
                        self._gives_up = False
                        waits_for = coming.throw(error)
                    else:
                        waits_for = coming.send(sent)
            except StopIteration as item:
                coming = None
                taken.append(item.value)
            except StopAsyncIteration:
                self._has_ended = True
            except BaseException as error:
                self._error = error
            else:
                self._waits_for = waits_for
                if taken:
                    self._next = coming
                    return taken
        if not taken and self._error is not None:
            self._has_ended, error, self._error = True, self._error, None
            raise error
        return taken

    async def aclose(self) -> None:
        """Close the iterator; an item that is being waited for is given up, as in a task that is cancelled."""
        if self._next is not None:
            self._gives_up = self._waits_for is None or not self._waits_for.cancel()
            with suppress(CancelledError):
                await self.take()
        aclose: Any = getattr(self._items, "aclose", None)
        if aclose is not None:
            await aclose()
