"""The figures of a soak as a table."""

import os
from collections import Counter
from collections.abc import Callable

from tests.attack.soak.ledger import Ledger
from tests.attack.soak.server import Life
from tests.attack.soak.soak import World
from tests.attack.ticking import Latencies


def show(worlds: list[World], seconds: float) -> None:
    """Print a table, and below it what is too long for one."""
    print(f"\n{seconds:g} s, load of the machine {os.getloadavg()[2]:.0f} on {os.cpu_count()} cores\n")
    print(f"| | {' | '.join(world.name for world in worlds)} |\n|---|{'---|' * len(worlds)}")
    for name, read in _ROWS.items():
        print(f"| {name} | {' | '.join(read(world) for world in worlds)} |")
    for world in worlds:
        ledger = world.ledger
        print(f"\n{world.name}\n  done: {_list(ledger.done)}\n  to be tried again: {_list(ledger.retried, 25)}")
        print(f"  faults: {_list(ledger.faults)}\n  ends: {_list(ledger.ends)}")
        print(f"  memory of the last process, MB: {[round(size) for _, size in _thinned(world.server.lives[-1].memory)]}")
        print(f"  exceptions in the log: {_list(ledger.raised)}")
        print(f"  lost: {len(ledger.lost)} {ledger.lost[:10]}\n  wrong: {len(ledger.wrong)}")
        for wrong in ledger.wrong[:20]:
            print(f"    {wrong}")


def _list(counts: Counter[str], most: int = 100) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common(most)) or "none"


def _thinned(memory: list[tuple[float, float]], most: int = 24) -> list[tuple[float, float]]:
    return memory[:: max(1, len(memory) // most)]


def _requests(ledger: Ledger) -> str:
    ordered = sorted(ledger.seconds) or [0.0]
    return f"{len(ordered):,}: {ordered[len(ordered) // 2]:.2f} / {ordered[int(len(ordered) * 0.99)]:.2f} s"


def _latencies(world: World) -> str:
    counts = Latencies()
    for life in world.server.lives:
        counts.counts.update(life.latencies.counts)
    return f"{counts.quantile(0.999) * 1000:.1f} / {counts.quantile(1) * 1000:.0f} ms"


def _memory(life: Life) -> str:
    warm, last = life.warm_and_last()
    return f"{warm:.0f} → {last:.0f} MB in {life.seconds / 60:.1f} min"


def _page(ledger: Ledger) -> str:
    return str(sum(count for name, count in ledger.done.items() if name.startswith("page")))


_ROWS: dict[str, Callable[[World], str]] = {
    "requests of clients: median / p99": lambda world: _requests(world.ledger),
    "turns at the page": lambda world: _page(world.ledger),
    "faults": lambda world: str(world.ledger.faults.total()),
    "to be tried again": lambda world: str(world.ledger.retried.total()),
    "stored answers and conversations looked up": lambda world: str(
        len(world.ledger.stored) + len(world.ledger.background) + len(world.ledger.conversations)
    ),
    "answers lost": lambda world: str(len(world.ledger.lost)),
    "calls with side effects: allowed / denied / interrupted": lambda world: (
        f"{len(world.ledger.approved)} / {len(world.ledger.denied)} / {len(world.ledger.interrupted)}"
    ),
    "calls run twice": lambda world: str(world.ledger.ran_twice),
    "anything else wrong": lambda world: str(len(world.ledger.wrong) - world.ledger.ran_twice),
    "event loop late: p99.9 / worst": _latencies,
    "memory of the last process": lambda world: _memory(world.server.lives[-1]),
    "its open files and tasks at the end": lambda world: f"{world.server.lives[-1].files} / {world.server.lives[-1].tasks}",
}
