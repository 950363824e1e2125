"""Caches of one kind: the values used last, by content (`LRU`) or by the identity of objects (`IdentityLRU`).

A key must never stand for something else than it did when the value was stored. Content is safe: a text, a digest of a schema.
An `id()` is safe only while its object lives, for afterwards another object may get the same number; so an `IdentityLRU` keeps
the objects in the entry itself, and drops both together. It saves reading large values that come again as the same objects.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LRU(Generic[Value]):
    """Values by key; when their weights exceed `capacity`, those used longest ago are evicted. Safe for threads."""

    def __init__(self, capacity: int) -> None:
        self._free = capacity
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        """The value, if it is still there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def set(self, key: Hashable, value: Value, weight: int = 1) -> None:
        """Store the value in place of the one that is there, if there is one."""
        with self._lock:
            self._free += self._entries.pop(key, (None, 0))[1]
        self.put(key, value, weight)

    def put(self, key: Hashable, value: Value, weight: int = 1) -> Value:
        """Store the value. If another thread was faster, that one's value stays and is returned."""
        with self._lock:
            if key not in self._entries:
                self._entries[key] = value, weight
                self._free -= weight
            self._entries.move_to_end(key)
            value = self._entries[key][0]
            while self._free < 0:
                self._free += self._entries.popitem(last=False)[1][1]
            return value


class IdentityLRU(Generic[Value]):
    """Values by the very objects they were made of, in their order, and by a hashable key besides. Safe for threads.

    >>> cache = IdentityLRU[str](capacity=2)
    >>> tools = [{"name": "add"}]
    >>> cache.get_or_make(tools, lambda: "made once"), cache.get_or_make(tools, lambda: "made twice")
    ('made once', 'made once')
    """

    def __init__(self, capacity: int) -> None:
        self._entries: LRU[tuple[tuple[object, ...], Value]] = LRU(capacity)

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_make(self, objects: Iterable[object], make: Callable[[], Value], key: Hashable = None) -> Value:
        """The value for these objects; where there is none, what `make` returns is stored."""
        objects = tuple(objects)
        ids = (key, *map(id, objects))
        entry = self._entries.get(ids) or self._entries.put(ids, (objects, make()))
        return entry[1]
