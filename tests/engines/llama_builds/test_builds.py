"""What is found out about a machine without loading anything, and which builds fit it."""

from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.engines.llama_builds.builds import BUILDS, Machine, this_machine
from callsmith.engines.llama_builds.locate import reason_against

BY_NAME = {build.name: build for build in BUILDS}
NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep  1 04:00:00 UTC 2026\nGCC version:  gcc version 12.2.0\n"
CARD = "Model: \t\t NVIDIA H200\nIRQ:   \t\t {}\nGPU UUID: \t GPU-0\n"
GPU = Machine("linux", "x86_64", "avx2", "580.159.03", ("NVIDIA H200",))


def test_driver_cards_and_features_are_read_from_the_kernel(root):
    files = {
        "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\n",
        "proc/driver/nvidia/version": NVRM.format("580.159.03"),
        "proc/driver/nvidia/gpus/0000:01:00.0/information": CARD.format(17),
        "proc/driver/nvidia/gpus/0000:02:00.0/information": CARD.format(18),
    }
    machine = this_machine(root(files), {})
    assert (machine.driver, machine.cards, machine.features) == ("580.159.03", ("NVIDIA H200", "NVIDIA H200"), "fpu avx2")
    assert machine.gpu == "NVIDIA H200, NVIDIA H200"


def test_where_the_kernel_says_nothing_the_drivers_library_does_if_there_is_a_device(root):
    library = {"usr/lib/x86_64-linux-gnu/libcuda.so.570.10": ""}
    assert this_machine(root(library), {}).driver == ""
    assert this_machine(root({**library, "dev/nvidiactl": ""}), {}).driver == "570.10"


def test_a_machine_without_a_gpu_has_none(root):
    machine = this_machine(root({}), {})
    assert (machine.driver, machine.cards, machine.vulkan, machine.gpu, machine.features) == ("", (), (), "", "")


def test_vulkan_drivers_count_unless_they_compute_on_the_processor(root):
    files = {"usr/share/vulkan/icd.d/lvp_icd.x86_64.json": "{}", "etc/vulkan/icd.d/radeon_icd.x86_64.json": "{}"}
    assert this_machine(root(files), {}).vulkan == ("radeon_icd.x86_64.json",)


def test_another_driver_card_or_processor_is_another_fingerprint_and_another_interrupt_is_not(root):
    version, card = "proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0/information"
    first = this_machine(root({version: NVRM.format("580.1"), card: CARD.format(17)}), {}).fingerprint
    assert this_machine(root({card: CARD.format(99)}), {}).fingerprint == first
    others = [replace(GPU, driver="590.1"), replace(GPU, cards=()), replace(GPU, features="avx512f"), replace(GPU, vulkan=("a",))]
    assert len({GPU.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_libraries_are_found_where_pip_has_put_them_and_where_the_environment_says(root, tmp_path: Path, monkeypatch):
    files = {"site/nvidia/cublas/lib/libcublas.so.12": "", "mine/libcudart.so.12": "", "usr/local/cuda-12.9/lib64/libx.so.1": ""}
    place = root(files)
    monkeypatch.syspath_prepend(str(place / "site"))
    machine = this_machine(place, {"LD_LIBRARY_PATH": f":{place / 'mine'}"})
    assert machine.find_library("libcublas.so.12") == place / "site/nvidia/cublas/lib/libcublas.so.12"
    assert machine.find_library("libcudart.so.12") == place / "mine/libcudart.so.12"
    assert machine.find_library("libx.so.1") == place / "usr/local/cuda-12.9/lib64/libx.so.1"
    assert machine.find_library("libx.so.2") is None


@pytest.mark.parametrize(
    ("machine", "build", "obstacle"),
    [
        (GPU, "linux-x64-cuda13", ""),
        (replace(GPU, driver="unknown"), "linux-x64-cuda13", ""),
        (replace(GPU, driver="570.1"), "linux-x64-cuda13", "needs NVIDIA driver 580 or newer, and this is 570.1"),
        (replace(GPU, driver="570.1"), "linux-x64-cuda12", ""),
        (replace(GPU, driver=""), "linux-x64-cuda12", "no NVIDIA driver was found"),
        (GPU, "linux-arm64", "for Linux on aarch64, and this is linux on x86_64"),
        (Machine("darwin", "arm64"), "linux-arm64", "for Linux on aarch64, and this is darwin on arm64"),
        (GPU, "linux-x64", ""),
        (GPU, "linux-x64-vulkan", "no Vulkan driver was found"),
        (
            replace(GPU, vulkan=("a",)),
            "linux-x64-vulkan",
            "libvulkan.so.1 was not found (Debian, Ubuntu: apt install libvulkan1)",
        ),
        (Machine("linux", "aarch64"), "linux-arm64", ""),
    ],
)
def test_a_build_fits_or_it_is_said_why_not(machine: Machine, build: str, obstacle: str) -> None:
    assert machine.obstacle(BY_NAME[build]) == obstacle


def test_missing_libraries_of_cuda_are_named_with_the_packages_that_bring_them(tmp_path: Path) -> None:
    (tmp_path / "libcudart.so.12").write_bytes(b"")
    machine = replace(GPU, folders=(tmp_path,))
    reason = reason_against(BY_NAME["linux-x64-cuda12"], machine)
    assert reason == "libcublasLt.so.12, libcublas.so.12 not found: pip install nvidia-cublas-cu12"
    for name in ("libcublasLt.so.12", "libcublas.so.12"):
        (tmp_path / name).write_bytes(b"")
    assert reason_against(BY_NAME["linux-x64-cuda12"], machine) == ""


def test_every_build_names_its_packages_exactly() -> None:
    assert BY_NAME["linux-x64-cuda12"].size == 10_824_547 + 176_664_119
    for build in BUILDS:
        for package in build.packages:
            assert len(package.sha256) == 64 and package.name.startswith("@node-llama-cpp/")
            assert package.tarball == f"node-llama-cpp-{package.name.partition('/')[2].replace('@', '-')}.tgz"
