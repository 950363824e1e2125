"""Fetches the benchmark: its cases, its checker and the two packages that this needs, in wheels whose bytes are pinned.

They are data and a program of others, which runs in a process of its own: nothing of them is imported here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from callsmith.engines.cache_folder import cache_folder
from callsmith.models.weights.disk import writing
from callsmith.models.weights.wheels import unpack_wheels

VERSION: Final = "2026.3.23"
SIZE: Final = 2_679_902  # bytes of the wheels
PINS: Final = {
    f"bfcl-eval=={VERSION}": "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
    "filelock==4.2.10": "9479aaeb4db20b5a53e3da28493edd24720b66b8a0b84030aa56ccdf243d6857",
    "mpmath==1.3.0": "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c",
}


def benchmark_folder() -> Path:
    """Where the benchmark is, or will be."""
    return cache_folder() / "bfcl" / VERSION


def is_fetched() -> bool:
    """Whether the benchmark is there."""
    return (benchmark_folder() / "bfcl_eval" / "data").is_dir()


def fetch(report: Callable[[int], None] | None = None) -> Path:
    """Fetch the benchmark unless it is there. `report` is called with the number of bytes that have arrived."""
    folder = benchmark_folder()
    with writing(folder):
        if not is_fetched():
            unpack_wheels(PINS, folder, report)
    return folder
