"""How long `import callsmith` takes, in a fresh interpreter, beside a client library that programs of this kind import."""

import subprocess
import sys
from functools import partial

from benchmarks.measure import compare, in_turn
from benchmarks.table import goal

RUNS = 7
CODE = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"
GOAL = 150.0  # ms


def main(model: str) -> None:
    times = in_turn({name: partial(imported, name) for name in ("callsmith", "openai")}, RUNS)
    compare("import", "ms", times["callsmith"], "openai", times["openai"])
    goal(f"ms to import callsmith, best of {RUNS},", min(times["callsmith"]), GOAL)


def imported(name: str) -> float:
    """ms to import that module."""
    command = [sys.executable, "-c", CODE.format(name)]
    return 1000 * float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
