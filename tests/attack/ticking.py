"""How late an event loop is: `asyncio.create_task(ticking())`, and then `late` has the seconds, one entry a tick.

The time in which the loop's thread waited for a processor that others used does not count: that is the machine's load, not what
the program did.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

TICK = 0.005
late: list[float] = []
_WAITED = Path("/proc/thread-self/schedstat")


def clock() -> float:
    """Seconds, without those in which this thread waited for a processor."""
    try:
        waited = int(_WAITED.read_text().split()[1]) / 1e9
    except OSError:  # not on Linux
        waited = 0.0
    return time.perf_counter() - waited


async def ticking(note: Callable[[float], object] = late.append) -> None:
    before = clock()
    while True:
        await asyncio.sleep(TICK)
        now = clock()
        note(max(0.0, now - before - TICK))
        before = now


class Latencies:
    """Many latencies in little memory: how many there are of each whole half millisecond."""

    def __init__(self, counts: dict[str, int] | None = None) -> None:
        self.counts = Counter[int]({int(step): count for step, count in (counts or {}).items()})

    def add(self, seconds: float) -> None:
        self.counts[int(seconds * 2000)] += 1

    def quantile(self, part: float) -> float:
        """The seconds that so much of them, from 0 to 1, stays below."""
        left = part * self.counts.total()
        for step, count in sorted(self.counts.items()):
            left -= count
            if left <= 0:
                return (step + 1) / 2000
        return 0.0
