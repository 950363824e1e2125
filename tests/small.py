"""SmolLM2 135M, the one model of which tests use the weights. What needs a larger one is marked slow."""

import os
from pathlib import Path
from typing import Any

from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch

SMALL = "smollm2-135m"
THREADS = (
    1 if "PYTEST_XDIST_WORKER" in os.environ else None
)  # several workers share the cores; threads that wait for each other spin


def small_file() -> Path:
    """The file of its weights, fetched on first use."""
    return fetch(SMALL)


def open_small(**options: Any) -> LocalModel:
    """The model with an engine of its own; the caller closes it."""
    fetch(SMALL)
    return open_local(SMALL, Options(threads=THREADS, **options))
