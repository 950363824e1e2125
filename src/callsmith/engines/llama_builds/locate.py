"""Where llama.cpp's C library is: the one the user names, the best build that is installed and works here, or the pinned one.

`CALLSMITH_LIBLLAMA=/path/to/libllama.so`, or a folder with one in it, names a library of v0.5.0 or the pinned build;
`CALLSMITH_LIBLLAMA=pinned` is the one in the package. Without it the builds of `callsmith engines install` are used, if there are
any that fit this machine and were proven on it.

A build is proven by a process of its own that decodes with it, before anything else uses it: a library without kernels for the
card there is loads, sees the card, and aborts the whole process at its first decode. The outcome is remembered with a fingerprint
of the machine, also where the build was thrown away because of it. On another machine it is tried again.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from callsmith.core.errors import MissingExtra, Unavailable
from callsmith.engines.cache_folder import cache_folder
from callsmith.engines.llama_builds.builds import BUILDS, Build, Machine, libraries_folder, this_machine

PROVE: Final = ("-m", "callsmith.engines.llama.trial_decode")
_PATIENCE: Final = 300.0  # seconds; a driver that has to compile the kernels for its card first may take minutes
_VERSION: Final = 1  # of what is tried
_BACKENDS: Final = ("libggml-cuda.so", "libggml-vulkan.so")
PACKAGE: Final = "xllamacpp"
BUILD: Final = "2026.10.11549"
INSTALL: Final = f"pip install '{PACKAGE}=={BUILD}'"
VARIABLE: Final = "CALLSMITH_LIBLLAMA"
PINNED: Final = "pinned"


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of trying a build: on what it computed, or why it does not work."""

    ok: bool
    message: str


def proof_of(build: Build, machine: Machine) -> Proof:
    """The remembered outcome for this machine; the build is tried now if there is none."""
    return find_proof(build, machine) or prove(build, build.folder, machine)


def find_proof(build: Build, machine: Machine) -> Proof | None:
    """The outcome that was found on this machine before."""
    try:
        saved = json.loads(_file(build, machine).read_text("utf-8"))
        return Proof(bool(saved["ok"]), str(saved["message"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def prove(build: Build, folder: Path, machine: Machine, command: Sequence[str] = PROVE) -> Proof:
    """Try the build in that folder, and remember the outcome."""
    proof = _try(build, folder, command)
    with suppress(OSError):  # a folder that cannot be written: it is tried again the next time
        file = _file(build, machine)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(proof)), "utf-8")
    return proof


def forget(build: Build, machine: Machine) -> None:
    """Have the build tried again before it is used the next time."""
    _file(build, machine).unlink(missing_ok=True)


def _file(build: Build, machine: Machine) -> Path:
    return libraries_folder() / "proofs" / f"{build.folder.name}-{machine.fingerprint}-{_VERSION}.json"


def _try(build: Build, folder: Path, command: Sequence[str]) -> Proof:
    run = [sys.executable, "-P", *command, str(folder), build.accelerator]
    # Without the last one a debugger is started when it aborts, if there is one.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            run, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return Proof(False, f"it had not decoded a token after {_PATIENCE:g} seconds")
    if done.returncode == 0:
        return Proof(True, done.stdout.strip())
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return Proof(False, f"its process was ended by {name}: {_last_words(done.stderr) or 'without a word'}")
    return Proof(False, _last_words(done.stderr) or f"its process ended with status {done.returncode}")


def _last_words(output: str) -> str:
    """The line that says what is wrong: the last that has a reason behind "error:", else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reasons = [line for line in lines if "error: " in line or "Unavailable: " in line]
    return (reasons or lines or [""])[-1].rpartition("Unavailable: ")[2]


def preload(library: Path, machine: Machine | None = None) -> str:
    """Load the GPU code beside this library, and first whatever it is linked to, also where the system does not look for that.
    Returns what cannot be loaded, and why."""
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


@dataclass(frozen=True, slots=True)
class Located:
    """The library to use, the build it belongs to if it is one of ours, and why it is this one."""

    path: Path
    why: str
    build: Build | None = None


def locate(machine: Machine | None = None, builds: tuple[Build, ...] = BUILDS) -> Located:
    """The library to use. An installed build that was not proven on this machine yet is proven first, which takes seconds."""
    choice = os.environ.get(VARIABLE)
    if choice and choice != PINNED:
        path = Path(choice).expanduser()
        if chosen_library := library_in(path) if path.is_dir() else path if path.is_file() else None:
            return Located(chosen_library, f"{VARIABLE} names it")
        raise Unavailable(f"{VARIABLE} names no library: {path}", hint=f"unset it, and {INSTALL}")
    if choice:
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
    if choice := os.environ.get(VARIABLE):
        why = f"{VARIABLE} is {choice}"
    elif all(whys.values()):
        why = "; ".join(f"{name}: {reason}" for name, reason in whys.items())
    else:
        why = "no build of llama.cpp for it is installed. Run: callsmith engines install"
    return f"{machine.gpu} is not used: {why}"


def failure_of(build: Build, machine: Machine) -> str:
    """Why a build that was tried on this machine does not work here; empty if it does, or was never tried."""
    proof = find_proof(build, machine)
    return "" if proof is None or proof.ok else f"does not work here: {proof.message}"


def library_in(folder: Path) -> Path | None:
    """The library somewhere in a folder."""
    return next(iter(sorted(folder.rglob("libllama.*"))), None)


def pinned_library() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("llama", "running GGUF files in process")
    for pattern in ("*.so", "*.dylib", "*.pyd"):
        if libraries := sorted(Path(spec.origin).parent.glob(f"{PACKAGE}*{pattern[1:]}")):
            return libraries[0]
    raise Unavailable(f"the {PACKAGE} package holds no library", hint=f"pip install --force-reinstall '{PACKAGE}=={BUILD}'")


def suggest_install(path: Path, why: str) -> str:
    """What to do if this library cannot be loaded; `why` is what the loader says."""
    if path.is_relative_to(cache_folder()):
        return f"Run: callsmith engines install --force, or set {VARIABLE}={PINNED}"
    if why.startswith("libgomp.so.1:"):  # all that a bare system may lack
        return "Install it: apt-get install libgomp1, or dnf install libgomp"
    return INSTALL
