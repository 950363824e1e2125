"""What was made before and may be wanted again."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The latest values by key, at most so many of them. For any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value, if it is still here."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:  # which no value is
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep it. If another thread was faster, its value is the one that counts."""
        with self._lock:
            value = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)
            return value
