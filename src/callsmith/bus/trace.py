"""The trace of the bus: one entry for each call, without its content."""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from callsmith.bus.port import CapabilityCall
from callsmith.core.capability.authority import Authority
from callsmith.wire.capability.envelopes import Version

MOST_ENTRIES = 10_000


class CallTrace(Struct, frozen=True):
    """One call: when, what, for whom, by which node, and how it ended ("ok" or an error code)."""

    at: float  # seconds since the epoch
    request_id: str
    capability: str
    version: Version
    authority: Authority
    node: str
    is_local: bool
    result: str
    seconds: float


Observer: TypeAlias = Callable[[CallTrace], None]


class BusTrace:
    """The latest calls of a bus, and how many there were of each kind."""

    def __init__(self, observers: tuple[Observer, ...] = ()) -> None:
        self._entries: deque[CallTrace] = deque(maxlen=MOST_ENTRIES)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._observers = observers

    def add(self, call: CapabilityCall, node: str, result: str, seconds: float, *, is_local: bool) -> None:
        """Take down a call that has ended now."""
        entry = CallTrace(
            time.time(), call.request_id, call.capability, call.version, call.authority, node, is_local, result, seconds
        )
        self._entries.append(entry)
        self._counts[entry.capability, result] += 1
        for observe in self._observers:
            observe(entry)

    def recent(self, most: int = 50) -> list[CallTrace]:
        """The latest calls, the newest last."""
        return list(self._entries)[-most:]

    def counts(self) -> dict[tuple[str, str], int]:
        """How many calls there were, by capability and result."""
        return dict(self._counts)
