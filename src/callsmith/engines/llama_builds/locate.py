"""Where llama.cpp's C library is: the one the user names, the best build that is installed and works here, or the pinned one.

`CALLSMITH_LIBLLAMA=/path/to/libllama.so`, or a folder with one in it, names a library of v0.5.0 or the pinned build;
`CALLSMITH_LIBLLAMA=pinned` is the one in the package. Without it the builds of `callsmith engines install` are used, if there are
any that fit this machine and were proven on it.
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from callsmith.core.errors import MissingExtra, Unavailable
from callsmith.engines.cache_folder import cache_folder
from callsmith.engines.llama_builds.machine import Machine, this_machine
from callsmith.engines.llama_builds.proof import proof_of, remembered
from callsmith.engines.llama_builds.table import BUILDS, Build

PACKAGE: Final = "xllamacpp"
BUILD: Final = "2026.10.11549"
INSTALL: Final = f"pip install '{PACKAGE}=={BUILD}'"
VARIABLE: Final = "CALLSMITH_LIBLLAMA"
PINNED: Final = "pinned"


@dataclass(frozen=True, slots=True)
class Located:
    """The library to use, the build it belongs to if it is one of ours, and why it is this one."""

    path: Path
    why: str
    build: Build | None = None


def locate(machine: Machine | None = None, builds: tuple[Build, ...] = BUILDS) -> Located:
    """The library to use. An installed build that was not proven on this machine yet is proven first, which takes seconds."""
    named = os.environ.get(VARIABLE)
    if named and named != PINNED:
        path = Path(named).expanduser()
        if found := library_in(path) if path.is_dir() else path if path.is_file() else None:
            return Located(found, f"{VARIABLE} names it")
        raise Unavailable(f"{VARIABLE} names no library: {path}", hint=f"unset it, and {INSTALL}")
    if named:
        return Located(pinned_library(), f"{VARIABLE} is {PINNED}")
    machine = machine or this_machine()
    failed: list[str] = []
    for build in builds:
        if not (library := library_in(build.folder)):
            continue
        why = reason_against(build, machine)
        proof = None if why else proof_of(build, machine)
        if proof and proof.ok:
            better = f"; {'; '.join(failed)}" if failed else ""
            return Located(library, f"the best that is installed and works here: {build.name}{better}", build)
        failed.append(f"{build.name} is installed: {f'does not work here: {proof.message}' if proof else why}")
    return Located(pinned_library(), "; ".join(["no other that works here is installed", *failed]))


def reason_against(build: Build, machine: Machine) -> str:
    """Why the build cannot be used on this machine, as far as is known without trying it; empty if nothing is against it."""
    if obstacle := machine.obstacle(build):
        return obstacle
    if missing := machine.missing_libraries(build):
        return f"{', '.join(missing)} not found: pip install {' '.join(sorted(set(missing.values())))}"
    return ""


def unused_gpu(machine: Machine, builds: tuple[Build, ...] = BUILDS) -> str:
    """Why the GPU of this machine is not used by the library that is located, and what to do; empty if there is none to use."""
    fitting = [build for build in builds if build.accelerator != "cpu" and not machine.obstacle(build)]
    if not fitting:
        return ""
    whys = {build.name: reason_against(build, machine) or failure_of(build, machine) for build in fitting}
    if named := os.environ.get(VARIABLE):
        why = f"{VARIABLE} is {named}"
    elif all(whys.values()):
        why = "; ".join(f"{name}: {reason}" for name, reason in whys.items())
    else:
        why = "no build of llama.cpp for it is installed. Run: callsmith engines install"
    return f"{machine.gpu} is not used: {why}"


def failure_of(build: Build, machine: Machine) -> str:
    """Why a build that was tried on this machine does not work here; empty if it does, or was never tried."""
    proof = remembered(build, machine)
    return "" if proof is None or proof.ok else f"does not work here: {proof.message}"


def library_in(folder: Path) -> Path | None:
    """The library somewhere in a folder."""
    return next(iter(sorted(folder.rglob("libllama.*"))), None)


def pinned_library() -> Path:
    """The library in the pinned package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("llama", "running GGUF files in process")
    for pattern in ("*.so", "*.dylib", "*.pyd"):
        if found := sorted(Path(spec.origin).parent.glob(f"{PACKAGE}*{pattern[1:]}")):
            return found[0]
    raise Unavailable(f"the {PACKAGE} package holds no library", hint=f"pip install --force-reinstall '{PACKAGE}=={BUILD}'")


def suggest_install(path: Path) -> str:
    """What to do if this library cannot be loaded."""
    installed = path.is_relative_to(cache_folder())
    return f"Run: callsmith engines install --force, or set {VARIABLE}={PINNED}" if installed else INSTALL
