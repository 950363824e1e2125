"""Measurements beside a rival: both in the same run, in turn, several times; and the file in which they are kept.

A ratio says how many times as good as the rival we are: rival ÷ ours for what should be small, ours ÷ rival for what should be
large. It is taken in each round, so that what else the machine does falls on both; the median counts, and the middle half of the
rounds is its spread.
"""

import json
import os
import platform
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from benchmarks.table import show
from callsmith.evals.plot import lines

ROUNDS = 5
HISTORY, PLOT = Path(__file__).with_name("history.jsonl"), Path(__file__).with_name("history.svg")
PASSED_ON = "CALLSMITH_MEASUREMENTS"  # names the file to which a benchmark in a process of its own writes its measurements


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure of ours beside a rival's. `goal` is the least ratio that is wanted."""

    name: str
    unit: str
    ours: float
    rival: str
    theirs: float
    ratio: float
    low: float
    high: float
    ratio_is: str
    goal: float | None = None


_taken: list[Measurement] = []


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int = ROUNDS, warm: int = 1) -> dict[str, list[float]]:
    """What each way gives, round after round; the first rounds warm up and do not count."""
    values: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warm + rounds):
        for name, work in ways.items():
            value = work()
            if number >= warm:
                values[name].append(value)
    return values


def compare(
    name: str,
    unit: str,
    ours: Sequence[float],
    rival: str,
    theirs: Sequence[float],
    *,
    more_is_better: bool = False,
    goal: float | None = None,
) -> Measurement:
    """Note what both took, round by round."""
    ratios = [a / b if more_is_better else b / a for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    measurement = Measurement(
        name,
        unit,
        *(_rounded(median(ours)), rival, _rounded(median(theirs))),
        *(_rounded(middle), _rounded(low), _rounded(high)),
        "ours ÷ rival" if more_is_better else "rival ÷ ours",
        goal,
    )
    _taken.append(measurement)
    return measurement


def cpu_time(work: Callable[[], object], times: int = 1) -> float:
    """Seconds of CPU for one of so many."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def told(benchmark: str) -> None:
    """Print what was compared, and pass it on to whoever collects it."""
    if not _taken:
        return
    heads = ("", "unit", "callsmith", "rival", "", "times as good", "middle half", "ratio", "goal")
    rows = [
        (
            *(
                measurement.name,
                measurement.unit,
                _cell(measurement.ours),
                measurement.rival,
                _cell(measurement.theirs),
                f"{measurement.ratio:.2f}",
            ),
            f"{measurement.low:.2f}–{measurement.high:.2f}",
            measurement.ratio_is,
            ""
            if measurement.goal is None
            else f"{measurement.goal:g} {'kept' if measurement.ratio >= measurement.goal else 'MISSED'}",
        )
        for measurement in _taken
    ]
    show(f"{benchmark}: beside others, medians", heads, rows)
    if file := os.environ.get(PASSED_ON):
        with Path(file).open("a") as stream:
            stream.writelines(json.dumps({"benchmark": benchmark, **asdict(measurement)}) + "\n" for measurement in _taken)
    _taken.clear()


def record(passed_on: Path) -> None:
    """Add one line to the history: when and where it was measured, and all measurements of this run."""
    measured = [json.loads(line) for line in passed_on.read_text().splitlines()]
    if not measured:
        return
    line = {"date": time.strftime("%Y-%m-%d"), "commit": _commit(), "machine": machine(), "measurements": measured}
    with HISTORY.open("a") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"\n{len(measured)} measurements are in {HISTORY.name}")
    plot()


def plot() -> None:
    """Draw how the ratios of each benchmark have moved since they were first measured, on machines of this kind."""
    runs = [json.loads(line) for line in HISTORY.read_text().splitlines()] if HISTORY.exists() else []
    here = machine()
    PLOT.write_text(
        drawn([run["measurements"] for run in runs if run["machine"] == here], f"{here['processor']}, {here['cores']} cores")
    )


def drawn(runs: Iterable[Sequence[Mapping[str, Any]]], where: str) -> str:
    """The lines: for each benchmark the geometric mean of its ratios, each beside the same ratio when it was first measured."""
    first: dict[tuple[str, str, str], float] = {}
    series: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for number, run in enumerate(runs, 1):
        moved: defaultdict[str, list[float]] = defaultdict(list)
        for row in run:
            key = (row["benchmark"], row["name"], row["rival"])
            if row["ratio"] > 0:
                moved[row["benchmark"]].append(log(row["ratio"] / first.setdefault(key, row["ratio"])))
        for benchmark, changes in moved.items():
            series[benchmark].append((number, exp(mean(changes))))
    return lines(f"Ratios to rivals, beside the first run ({where})", series, "run", "×")


def machine() -> dict[str, Any]:
    """The kind of machine this is."""
    try:
        models = [
            line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
        ]
    except OSError:
        models = []
    return {"processor": models[0] if models else platform.machine(), "cores": os.cpu_count(), "system": platform.system()}


def _commit() -> str:
    completed = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HISTORY.parent)
    return completed.stdout.strip()


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _cell(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
