"""How long `import callsmith` takes, in a fresh interpreter."""

import subprocess
import sys

from benchmarks.table import show

RUNS = 5
CODE = "import time; began = time.perf_counter(); import callsmith; print(time.perf_counter() - began)"


def main(model: str) -> None:
    times = [
        float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout)
        for _ in range(RUNS)
    ]
    show("import callsmith", (f"best of {RUNS}", "ms"), [("", min(times) * 1000)])
