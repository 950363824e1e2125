"""A program that downloads something is run, and how much has arrived is reported meanwhile."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, CompletedProcess

LOOK_SECONDS = 0.5  # how often the progress of a download is looked at


def run_watched(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], report: Callable[[int], None]
) -> CompletedProcess[str]:
    """Run a program in a folder, and report how many bytes are in there while it runs."""
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE, text=True, errors="replace") as running:
        while True:
            try:
                stdout, stderr = running.communicate(timeout=LOOK_SECONDS)
                return CompletedProcess(command, running.returncode, stdout, stderr)
            except subprocess.TimeoutExpired:
                report(_size_of(folder))
            except BaseException:
                running.kill()
                raise


def _size_of(folder: Path) -> int:
    """The bytes in a folder whose files come and go."""
    found = 0
    for place, _, names in os.walk(folder):  # which passes over folders that are gone meanwhile, as Path.rglob does not
        for name in names:
            with suppress(OSError):
                found += Path(place, name).stat().st_size
    return found
