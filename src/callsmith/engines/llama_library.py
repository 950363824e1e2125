"""Where llama.cpp's C library is: the one the user names, one fetched for this processor, or the one in the pinned package.

`CALLSMITH_LIBLLAMA=/path/to/libllama.so`, or a folder with one in it, names a library of v0.5.0 or the pinned build;
`CALLSMITH_LIBLLAMA=pinned` is the one in the package. Without it the library of `callsmith library fetch` is used, if it has been
fetched and the processor has what it is for.
"""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from callsmith.core.errors import MissingExtra, Unavailable
from callsmith.engines.cache_folder import cache_folder

PACKAGE: Final = "xllamacpp"
BUILD: Final = "2026.10.11549"
MEND: Final = f"pip install '{PACKAGE}=={BUILD}'"
VARIABLE: Final = "CALLSMITH_LIBLLAMA"
PINNED: Final = "pinned"


@dataclass(frozen=True, slots=True)
class NpmLibrary:
    """A build of the library in a package of npm: its exact version, the sha256 and size of its tarball."""

    package: str
    sha256: str
    size: int

    @property
    def folder(self) -> Path:
        """Where its files are once they have been fetched; another version has another folder."""
        return cache_folder() / "libraries" / self.package.rpartition("/")[2].replace("@", "-")


# Of v0.5.0, with code for each kind of ARM processor. The pinned build has none for dot products.
LINUX_ARM: Final = NpmLibrary(
    "@node-llama-cpp/linux-arm64@3.22.1", "39c76b998e35ed2f236c01472fc79eda0fc558b1c8b535023c2d7ded8c327cc4", 7_340_902
)


def faster_library() -> NpmLibrary | None:
    """The build that is faster than the pinned one on this machine, if one is known."""
    is_arm = sys.platform == "linux" and platform.machine() == "aarch64"
    return LINUX_ARM if is_arm and "asimddp" in processor().split() else None


def locate() -> Path:
    """The file of the library to use."""
    named = os.environ.get(VARIABLE)
    if named and named != PINNED:
        path = Path(named).expanduser()
        if found := library_in(path) if path.is_dir() else path if path.is_file() else None:
            return found
        raise Unavailable(f"{VARIABLE} names no library: {path}", hint=f"unset it, and {MEND}")
    if not named and (faster := faster_library()) and (found := library_in(faster.folder)):
        return found
    return pinned_library()


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


def mend_for(path: Path) -> str:
    """What to do if this library cannot be loaded."""
    fetched = path.is_relative_to(cache_folder())
    return f"Run: callsmith library fetch --force, or set {VARIABLE}={PINNED}" if fetched else MEND


def processor() -> str:
    """What the processor can do, in the system's words; empty where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(("Features", "flags"))), "")
