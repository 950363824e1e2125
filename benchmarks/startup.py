"""What it takes to begin: `import callsmith`, `callsmith --help`, and `callsmith serve` until it listens, each in a new process.

Beside a client library that programs of this kind import. Of `serve`, what it does before it opens the weights is told apart from
the opening, and from what comes after.
"""

import subprocess
import sys
from functools import partial
from statistics import median

from benchmarks.measure import compare, in_turn
from benchmarks.table import goal, show
from callsmith.models.weights.catalogue import catalogue
from callsmith.models.weights.fetch import fetch

RUNS = 7
IMPORT = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"
HELP = """
import sys, time
from contextlib import redirect_stdout
from callsmith.cli.main import app
sys.argv = ["callsmith", "--help"]
try:
    with redirect_stdout(None):
        app()
except SystemExit:
    print(time.process_time())
"""
# CPU seconds of the process at three moments: the weights are opened, are open, and the server listens.
SERVE = """
import os, signal, sys, time
from callsmith.cli import serve
from callsmith.cli.main import app

def moment():
    print(time.process_time(), flush=True)

def listening(*_, **__):
    moment()
    os.kill(os.getpid(), signal.SIGTERM)

def serving(settings, _serve=serve._serve):
    from callsmith.engines.llama import gguf

    def opened(self, *arguments, __init__=gguf.Weights.__init__, **options):
        moment()
        __init__(self, *arguments, **options)
        moment()

    gguf.Weights.__init__ = opened
    _serve(settings)

serve._serve, serve.echo_lines = serving, listening
sys.argv = ["callsmith", "serve", "--port", "0", "--model", {!r}]
app()
"""
IMPORT_GOAL, HELP_GOAL, SERVE_GOAL = 150.0, 300.0, 1000.0  # ms


def main(model: str) -> None:
    times = in_turn({name: partial(run, IMPORT.format(name)) for name in ("callsmith", "openai")}, RUNS)
    compare("import", "ms", times["callsmith"], "openai", times["openai"])
    goal(f"ms to import callsmith, best of {RUNS},", min(times["callsmith"]), IMPORT_GOAL)
    goal(f"ms of CPU for callsmith --help, best of {RUNS},", min(run(HELP) for _ in range(RUNS)), HELP_GOAL)
    if model in catalogue():
        fetch(model)
    rounds = [moments(model) for _ in range(RUNS)]
    before, weights, after = (median(values) for values in zip(*((a, b - a, c - b) for a, b, c in rounds), strict=True))
    show(
        f"callsmith serve --model {model}, weights on disk",
        ("until", "ms of CPU"),
        [
            ("the weights are opened", before),
            ("they are open", weights),
            ("it listens", after),
            ("in all", before + weights + after),
        ],
    )
    goal("ms of CPU before the weights are opened", before, SERVE_GOAL)


def run(code: str) -> float:
    """The ms that this prints in seconds."""
    return output_of(code)[0]


def moments(model: str) -> tuple[float, float, float]:
    first, second, third = output_of(SERVE.format(model))
    return first, second, third


def output_of(code: str) -> list[float]:
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [1000 * float(line) for line in output.split()]
