"""What a build of llama.cpp has to fit: this machine's processor, its GPU drivers, the libraries that it has."""

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from callsmith.engines.llama_builds.table import Build

_SYSTEM_FOLDERS = (
    "usr/local/cuda/lib64",
    "usr/local/cuda-*/lib64",
    "usr/local/cuda*/targets/x86_64-linux/lib",
    "opt/cuda/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/local/nvidia/lib64",  # where containers get the driver
    "usr/lib/wsl/lib",
)
_SOFTWARE_RENDERERS = ("lvp_", "llvmpipe")  # a Vulkan driver without a GPU


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: what is known of it without loading any library. In `folders` shared libraries are looked for."""

    system: str
    processor: str
    features: str = ""
    driver: str = ""  # the version of the NVIDIA driver
    cards: tuple[str, ...] = ()  # NVIDIA's, by their names
    vulkan: tuple[str, ...] = ()  # drivers
    folders: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def fingerprint(self) -> str:
        """Another one on a machine on which another build might work."""
        known = (self.system, self.processor, self.features, self.driver, self.cards, self.vulkan)
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]

    @property
    def gpu(self) -> str:
        """The GPUs in words; empty if there is none, or none that is known."""
        if self.driver:
            return ", ".join(self.cards) or "an NVIDIA GPU"
        return "a GPU with a Vulkan driver" if self.vulkan else ""

    def find_library(self, soname: str) -> Path | None:
        """The file of a shared library."""
        return next((path for folder in self.folders if (path := folder / soname).is_file()), None)

    def missing_libraries(self, build: Build) -> dict[str, str]:
        """What the build is linked to and this machine does not have, with the packages that bring it."""
        return {soname: package for soname, package in (build.libraries or {}).items() if not self.find_library(soname)}

    def obstacle(self, build: Build) -> str:
        """Why the build is not for this machine; empty if it is."""
        if self.system != "linux" or self.processor != build.processor:
            return f"for Linux on {build.processor}, and this is {self.system} on {self.processor}"
        if build.accelerator == "cuda":
            if not self.driver:
                return "no NVIDIA driver was found"
            major = self.driver.partition(".")[0]
            if major.isdecimal() and int(major) < build.driver:
                return f"needs NVIDIA driver {build.driver} or newer, and this is {self.driver}"
        if build.accelerator == "vulkan":
            if not self.vulkan:
                return "no Vulkan driver was found"
            if not self.find_library("libvulkan.so.1"):
                return "libvulkan.so.1 was not found (Debian, Ubuntu: apt install libvulkan1)"
        return ""


def this_machine(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Machine:
    """The machine that this process runs on; `root` is where its file system begins."""
    folders = tuple(_library_folders(root, environment))
    return Machine(
        sys.platform,
        platform.machine(),
        _features(root),
        _driver(root, folders),
        _cards(root),
        _vulkan_drivers(root),
        folders,
    )


def _library_folders(root: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Where shared libraries are: those of pip first, because these have just the version that was asked for."""
    for place in dict.fromkeys(sys.path):
        yield from sorted(Path(place or ".").glob("nvidia/*/lib"))
    yield from (Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part)
    yield Path(sys.prefix) / "lib"
    for pattern in _SYSTEM_FOLDERS:
        yield from sorted(root.glob(pattern), reverse=True)


def _features(root: Path) -> str:
    """What the processor can do, in the system's words; empty where it does not say."""
    lines = _lines(root / "proc/cpuinfo")
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("Features", "flags"))), "")


def _driver(root: Path, folders: Sequence[Path]) -> str:
    """The version of the NVIDIA driver: the kernel's word for it, else the name of its library, where there is a device."""
    for line in _lines(root / "proc/driver/nvidia/version"):
        if line.startswith("NVRM") and (found := re.search(r"\s(\d+\.[\d.]+)\s", line)):
            return found[1]
    if not any((root / "dev" / name).exists() for name in ("nvidiactl", "nvidia0", "dxg")):
        return ""
    for folder in folders:
        for path in folder.glob("libcuda.so.*"):
            if found := re.fullmatch(r"libcuda\.so\.(\d+\.[\d.]+)", path.name):
                return found[1]
        if (folder / "libcuda.so.1").exists():
            return "unknown"
    return ""


def _cards(root: Path) -> tuple[str, ...]:
    files = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    lines = [line for file in files for line in _lines(file)]
    return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))


def _vulkan_drivers(root: Path) -> tuple[str, ...]:
    found = (path.name for place in ("usr/share", "etc", "usr/local/share") for path in root.glob(f"{place}/vulkan/icd.d/*.json"))
    return tuple(sorted(name for name in found if not name.startswith(_SOFTWARE_RENDERERS)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
