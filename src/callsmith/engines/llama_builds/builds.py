"""The builds of llama.cpp that can be installed, best first: what each consists of and needs, and what this machine has of that.

All are of v0.5.0, whose layout `engines/llama/libllama.py` knows. The builds with a GPU can be used without one too.
"""

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from callsmith.engines.cache_folder import cache_folder

Accelerator: TypeAlias = Literal["cuda", "vulkan", "cpu"]
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
class Package:
    """A package of npm: its exact version, the sha256 and size of its tarball."""

    name: str
    sha256: str
    size: int

    @property
    def tarball(self) -> str:
        """The file name that `npm pack` gives its tarball."""
        return self.name.removeprefix("@").replace("/", "-").replace("@", "-") + ".tgz"


@dataclass(frozen=True, slots=True)
class Build:
    """A build of the library. Of several packages, files of the later ones take the place of those of the same name.

    `processor` is as `platform.machine` has it, on Linux. `driver` is the oldest NVIDIA driver that will do. `libraries` are what
    it is linked to and not every system has, by their sonames, each with the package of pip that brings it.
    """

    name: str
    purpose: str
    accelerator: Accelerator
    processor: str
    packages: tuple[Package, ...]
    driver: int = 0
    libraries: Mapping[str, str] | None = None

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(package.size for package in self.packages)

    @property
    def folder(self) -> Path:
        """Where its files are once it is installed; another version has another folder."""
        return libraries_folder() / f"{self.name}-{self.packages[0].name.rpartition('@')[2]}"


def libraries_folder() -> Path:
    return cache_folder() / "libraries"


def _package(platform: str, sha256: str, size: int) -> Package:
    return Package(f"@node-llama-cpp/{platform}@3.22.1", sha256, size)


_X64: Final = _package("linux-x64", "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0", 10_824_547)
_ARM64: Final = _package("linux-arm64", "39c76b998e35ed2f236c01472fc79eda0fc558b1c8b535023c2d7ded8c327cc4", 7_340_902)
_VULKAN: Final = _package("linux-x64-vulkan", "e10577190fc4bd1649d3b655588e5c7a85fc6b6dbf7136fee596cbe9e25521e7", 24_311_427)
_CUDA: Final = _package("linux-x64-cuda", "d6cd3ff39a43b024816952e0bc6452d6711608d26256ff6eb0fe8cf7ff55bb2c", 142_898_030)
_CUDA_EXT: Final = _package("linux-x64-cuda-ext", "1c4817215f51d0ebea37ea684a409a418e62cfb19fcbb5b6e0300e50c6ee9bee", 176_664_119)

BUILDS: Final = (
    # Made by CUDA 13.1: machine code for compute capabilities 8.6, 8.9, 12.0 and 12.1, and PTX for 7.5, 8.0 and 9.0, which only
    # drivers from 590 on can compile. On a Hopper card with an older one it aborts at the first decode.
    Build(
        "linux-x64-cuda13",
        "NVIDIA GPUs, CUDA 13: RTX 30 and newer; with driver 590 or newer all since Turing",
        "cuda",
        "x86_64",
        (_CUDA,),
        driver=580,
        libraries={
            "libcudart.so.13": "nvidia-cuda-runtime",
            "libcublasLt.so.13": "nvidia-cublas",
            "libcublas.so.13": "nvidia-cublas",
        },
    ),
    # Made by CUDA 12.4: PTX for 5.0 to 8.0, which every driver since then compiles for its card. The rest of the library is the
    # same as without CUDA.
    Build(
        "linux-x64-cuda12",
        "NVIDIA GPUs, CUDA 12: all since Maxwell",
        "cuda",
        "x86_64",
        (_X64, _CUDA_EXT),
        driver=550,
        libraries={
            "libcudart.so.12": "nvidia-cuda-runtime-cu12",
            "libcublasLt.so.12": "nvidia-cublas-cu12",
            "libcublas.so.12": "nvidia-cublas-cu12",
        },
    ),
    Build("linux-x64-vulkan", "GPUs with a Vulkan driver: AMD, Intel, NVIDIA", "vulkan", "x86_64", (_VULKAN,)),
    Build("linux-x64", "x86-64 processors, with code for each generation", "cpu", "x86_64", (_X64,)),
    Build("linux-arm64", "ARM processors, with code for each kind (dot products)", "cpu", "aarch64", (_ARM64,)),
)


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
        if line.startswith("NVRM") and (match := re.search(r"\s(\d+\.[\d.]+)\s", line)):
            return match[1]
    if not any((root / "dev" / name).exists() for name in ("nvidiactl", "nvidia0", "dxg")):
        return ""
    for folder in folders:
        for path in folder.glob("libcuda.so.*"):
            if match := re.fullmatch(r"libcuda\.so\.(\d+\.[\d.]+)", path.name):
                return match[1]
        if (folder / "libcuda.so.1").exists():
            return "unknown"
    return ""


def _cards(root: Path) -> tuple[str, ...]:
    files = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    lines = [line for file in files for line in _lines(file)]
    return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))


def _vulkan_drivers(root: Path) -> tuple[str, ...]:
    names = (path.name for place in ("usr/share", "etc", "usr/local/share") for path in root.glob(f"{place}/vulkan/icd.d/*.json"))
    return tuple(sorted(name for name in names if not name.startswith(_SOFTWARE_RENDERERS)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
