"""How many threads decode: as many as there are cores that nobody else uses, looked at again while it runs."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SECONDS: Final = 0.25  # between two looks
_STAT: Final = Path("/proc/stat")  # Linux; elsewhere nothing is known of others


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def most_threads() -> int:
    """One for each core. Larger machines count each twice, and the second half of a core has nothing to add to arithmetic."""
    return cores() if cores() <= 4 else cores() // 2


def busy_seconds() -> float | None:
    """For how long the processors that this process may use have been busy, all together; None: not known here."""
    try:
        lines = [line.split() for line in _STAT.read_text("ascii").splitlines() if line.startswith("cpu")]
    except OSError:
        return None
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = [[int(field) for field in fields[:8]] for name, *fields in lines if name in own]
    return sum(sum(row) - row[3] - row[4] for row in ticks) / os.sysconf("SC_CLK_TCK")  # all but idle and waiting for a disk


class FreeThreads:
    """Threads for the cores that others leave free: at least half of the most. Threads of llama.cpp that wait for each other
    do so wide awake; where one has to wait for a processor, the others spin, and a decode takes ten times as long."""

    def __init__(
        self,
        *,
        busy: Callable[[], float | None] = busy_seconds,
        own: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy, self._own, self._clock = busy, own, clock
        self._seen = (clock(), busy(), own())
        most = most_threads()
        self._count = most if self._seen[1] is None else max(1, most // 2)  # until more is known

    def count(self) -> int:
        """How many threads the next decode should have."""
        then, busy_then, own_then = self._seen
        now = self._clock()
        if busy_then is None or now - then < _SECONDS:
            return self._count
        busy, own = self._busy(), self._own()
        self._seen = (now, busy, own)
        if busy is not None:
            others = ((busy - busy_then) - (own - own_then)) / (now - then)
            most = most_threads()
            self._count = min(most, max(1, most // 2, int(cores() - others + 0.5)))
        return self._count
