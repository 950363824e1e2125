"""SmolLM2 135M, the one model of which tests use the weights. What needs a larger one is marked slow.

Most tests need no sense in what it says: they take the shallow one, two of its thirty layers, fifteen times as quick.
"""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, _parts, open_local
from callsmith.models.weights.fetch import fetch
from tests.fewer_layers import write_fewer_layers

SMALL = "smollm2-135m"
THREADS = (
    1 if "PYTEST_XDIST_WORKER" in os.environ else None
)  # several workers share the cores; threads that wait for each other spin


def small_file() -> Path:
    """The file of its weights, fetched on first use."""
    return fetch(SMALL)


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="callsmith-shallow-")


@cache
def shallow_file() -> Path:
    """A file with two of its layers, which lives as long as the process."""
    path = Path(_folder().name) / "SmolLM2-135M-Instruct.gguf"
    write_fewer_layers(small_file(), path, 2)
    return path


def open_small(**options: Any) -> LocalModel:
    """The model with an engine of its own; the caller closes it."""
    fetch(SMALL)
    return open_local(SMALL, Options(threads=THREADS, **options))


def open_shallow(**options: Any) -> LocalModel:
    """The same with two of its layers."""
    settings = Options(threads=THREADS, **options)
    engine = open_local(str(shallow_file()), settings).engine
    return LocalModel(engine, *_parts(SMALL, settings, engine.info))
