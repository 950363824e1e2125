"""What was made before and may be wanted again."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LRU(Generic[Value]):
    """The latest values by key, at most so many of them, or of what they weigh. For any thread."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value, if it is still here."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: Value, weight: int = 1) -> Value:
        """Keep it. If another thread was faster, its value is the one that counts."""
        with self._lock:
            if key not in self._values:
                self._values[key] = value, weight
                self._left -= weight
            self._values.move_to_end(key)
            value = self._values[key][0]
            while self._left < 0:
                self._left += self._values.popitem(last=False)[1][1]
            return value
