"""Large files on disk: free space, digest, magic bytes, a lock between processes, and downloads that are watched."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Protocol

from callsmith.core.errors import Unavailable

MAGIC = b"GGUF"
LOOK_SECONDS = 0.5  # how often the progress of a download is looked at


class Digest(Protocol):
    """A hash being computed, as hashlib makes them."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def digest_of(path: Path) -> Digest:
    """The sha256 of a file, open to further bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def find_path(spec: str) -> Path | None:
    """The file or folder of this name, if there is one; a text that cannot be a path names none."""
    try:
        path = Path(spec).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError):  # too long for a name, or in the home of an unknown user
        return None


def find_file(spec: str) -> Path | None:
    path = find_path(spec)
    return path if path is not None and path.is_file() else None


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def beside(target: Path, suffix: str) -> Path:
    """`model.gguf` → `model.gguf.partial`."""
    return target.with_name(target.name + suffix)


def require_room(folder: Path, needed: int, variable: str = "CALLSMITH_CACHE") -> None:
    """Raise `Unavailable` if the disk has too little free space; `variable` names another folder."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Unavailable(
            f"{folder} has {free >> 20} MiB free, {needed >> 20} MiB are needed",
            hint=f"Make room, or set {variable} to a folder on another disk.",
        )


@contextmanager
def writing(target: Path) -> Generator[None]:
    """Make a file or a folder, one process at a time. An error of the disk says where there may be room."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(beside(target, ".lock")):
            yield
    except OSError as error:
        hint = "Set CALLSMITH_CACHE to a folder with room."
        raise Unavailable(f"could not write {target}: {error.strerror or error}", hint=hint) from error


@contextmanager
def scratch_folder(path: Path) -> Generator[Path]:
    """A folder that is empty at first and gone afterwards."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def alone(path: Path) -> Generator[None]:
    """One process at a time; the others wait. The system drops the lock with the process, so a crash leaves none behind."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # it gives up after ten seconds
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
    size = 0
    for place, _, names in os.walk(folder):  # which passes over folders that are gone meanwhile, as Path.rglob does not
        for name in names:
            with suppress(OSError):
                size += Path(place, name).stat().st_size
    return size
