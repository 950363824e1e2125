"""The builds of llama.cpp that can be installed, best first: what each is for, what it consists of, what it needs.

All are of v0.5.0, whose layout `engines/llama/libllama.py` knows. The builds with a GPU can be used without one too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from callsmith.engines.cache_folder import cache_folder

Accelerator: TypeAlias = Literal["cuda", "vulkan", "cpu"]


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
    """The folder of all builds that are installed."""
    return cache_folder() / "libraries"


_X64: Final = Package(
    "@node-llama-cpp/linux-x64@3.22.1", "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0", 10_824_547
)
_ARM64: Final = Package(
    "@node-llama-cpp/linux-arm64@3.22.1", "39c76b998e35ed2f236c01472fc79eda0fc558b1c8b535023c2d7ded8c327cc4", 7_340_902
)
_VULKAN: Final = Package(
    "@node-llama-cpp/linux-x64-vulkan@3.22.1", "e10577190fc4bd1649d3b655588e5c7a85fc6b6dbf7136fee596cbe9e25521e7", 24_311_427
)
_CUDA: Final = Package(
    "@node-llama-cpp/linux-x64-cuda@3.22.1", "d6cd3ff39a43b024816952e0bc6452d6711608d26256ff6eb0fe8cf7ff55bb2c", 142_898_030
)
_CUDA_EXT: Final = Package(
    "@node-llama-cpp/linux-x64-cuda-ext@3.22.1", "1c4817215f51d0ebea37ea684a409a418e62cfb19fcbb5b6e0300e50c6ee9bee", 176_664_119
)

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
