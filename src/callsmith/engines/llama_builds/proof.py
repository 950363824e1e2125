"""Whether a build of llama.cpp works on this machine: a process of its own decodes with it, before anything else uses it.

A library without kernels for the card there is loads, sees the card, and aborts the whole process at its first decode. The
outcome is remembered with a fingerprint of the machine, also where the build was thrown away because of it. On another machine it
is tried again.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from callsmith.engines.llama_builds.machine import Machine
from callsmith.engines.llama_builds.table import Build, libraries_folder

PROVE: Final = ("-m", "callsmith.engines.llama.gpu.trial_decode")
_PATIENCE: Final = 300.0  # seconds; a driver that has to compile the kernels for its card first may take minutes
_VERSION: Final = 1  # of what is tried


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of trying a build: on what it computed, or why it does not work."""

    ok: bool
    message: str


def proof_of(build: Build, machine: Machine) -> Proof:
    """The remembered outcome for this machine; the build is tried now if there is none."""
    return remembered(build, machine) or prove(build, build.folder, machine)


def remembered(build: Build, machine: Machine) -> Proof | None:
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
