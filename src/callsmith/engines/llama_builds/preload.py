"""The libraries that llama.cpp's GPU code is linked to: loaded where they are found, also where the system does not look."""

import ctypes
from pathlib import Path
from typing import Final

from callsmith.engines.llama_builds.machine import Machine, this_machine

_BACKENDS: Final = ("libggml-cuda.so", "libggml-vulkan.so")


def preload(library: Path, machine: Machine | None = None) -> str:
    """Load the GPU code beside this library, and first whatever it lacks. Returns what cannot be loaded, and why."""
    for backend in (path for name in _BACKENDS if (path := library.parent / name).is_file()):
        machine = machine or this_machine()
        if why := _load(backend, machine):
            return why
    return ""


def _load(path: Path, machine: Machine, tried: frozenset[Path] = frozenset()) -> str:
    """Load a shared library for all that come after it, and what it lacks before it; what is wrong if that cannot be done."""
    while True:
        try:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
            return ""
        except OSError as error:
            why = str(error)
        missing = machine.find_library(why.partition(":")[0])  # the loader names what it does not find
        if missing is None or missing in tried:
            return why
        tried |= {missing}
        if why := _load(missing, machine, tried):
            return why
