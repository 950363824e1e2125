"""`callsmith engines`: what there is, what fits, and installing it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from callsmith.engines.llama_builds import builds as machines
from callsmith.engines.llama_builds import locate as locating
from callsmith.engines.llama_builds.builds import BUILDS
from callsmith.engines.llama_builds.locate import prove
from callsmith.models import library_builds
from tests.real_build import CPU_BUILD, needs_real_build

BY_NAME = {build.name: build for build in BUILDS}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(locating.VARIABLE, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> machines.Machine:
    """A machine with an H200, its driver and the libraries of CUDA 12 and 13."""
    machine = machines.Machine("linux", "x86_64", "avx2", "580.1", ("NVIDIA H200",), folders=(tmp_path,))
    for build in BUILDS:
        for name in build.libraries or {}:
            (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(machines, "this_machine", lambda: machine)
    return machine


def test_engines_and_builds_are_listed_and_which_is_used(callsmith):
    result = callsmith("engines", "--json")
    listed = json.loads(result.out)
    engines = {engine["scheme"]: engine for engine in listed["engines"]}
    assert engines["llama"] == {"scheme": "llama", "purpose": "GGUF models in process, by llama.cpp", "missing": ""}
    assert "scripted" in engines
    assert [build["name"] for build in listed["builds"]] == ["pinned", *BY_NAME]
    assert [build["used"] for build in listed["builds"]] == [True] + [False] * len(BUILDS)
    assert "xllamacpp" in listed["used"]["path"]
    output = callsmith("engines").out
    assert "llama:" in output and "linux-x64-cuda12" in output and "187 MB" in output
    assert "no other that works here is installed" in output


@pytest.mark.usefixtures("gpu")
def test_what_fits_a_machine_and_what_does_not_is_said(callsmith, tmp_path):
    (tmp_path / "libcublas.so.13").unlink()
    states = {build["name"]: build["state"] for build in json.loads(callsmith("engines", "--json").out)["builds"]}
    assert states["linux-x64-cuda13"] == "libcublas.so.13 not found: pip install nvidia-cublas"
    assert states["linux-x64-cuda12"] == "fits" and states["linux-x64"] == "fits"
    assert states["linux-x64-vulkan"] == "no Vulkan driver was found"
    assert states["linux-arm64"] == "for Linux on aarch64, and this is linux on x86_64"


def plant(build, folder, machine, command=("-c", "print('CUDA0')")):
    """Put a file where the library would be, and say that it was proven by this command."""
    build.folder.mkdir(parents=True)
    (build.folder / "libllama.so").write_bytes(b"")
    return prove(build, build.folder, machine, command)


def test_without_a_name_the_best_is_installed_that_works(callsmith, gpu, monkeypatch):
    requests: list[str] = []

    def install(self, build, *, force=False):
        requests.append(build.name)
        aborts = ("-c", "import os, sys; print('CUDA error: unsupported toolchain', file=sys.stderr); os.abort()")
        if build.name == "linux-x64-cuda13":
            proof = prove(build, build.folder, gpu, aborts)
            raise library_builds.Unavailable(f"{build.name} does not work on this machine: {proof.message}")
        plant(build, build.folder, gpu)
        return build.folder / "libllama.so"

    monkeypatch.setattr(library_builds.Installer, "install", install)
    result = callsmith("engines", "install")
    assert result.code == 0 and requests == ["linux-x64-cuda13", "linux-x64-cuda12"]
    assert result.out.strip() == str(BY_NAME["linux-x64-cuda12"].folder / "libllama.so")
    assert "143 MB to download" in result.err and "187 MB to download" in result.err
    assert "ended by SIGABRT: CUDA error: unsupported toolchain\nTrying the next best." in result.err
    rows = {build["name"]: build for build in json.loads(callsmith("engines", "--json").out)["builds"]}
    assert rows["linux-x64-cuda13"]["state"].startswith("does not work here: its process was ended by SIGABRT")
    assert rows["linux-x64-cuda12"]["state"] == "works: CUDA0" and rows["linux-x64-cuda12"]["used"]
    requests.clear()
    BY_NAME["linux-x64-cuda12"].folder.rename(gpu.folders[0] / "away")
    callsmith("engines", "install")
    assert requests == ["linux-x64-cuda12"]  # what has failed is tried again only by name


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_stays_unused_is_told(callsmith, gpu, monkeypatch, tmp_path):
    for name in ("libcudart.so.12", "libcudart.so.13"):
        (tmp_path / name).unlink()
    real = library_builds.Installer.install

    def install(self, build, *, force=False):
        if build.accelerator != "cpu":
            return real(self, build, force=force)
        plant(build, build.folder, gpu)
        return build.folder / "libllama.so"

    monkeypatch.setattr(library_builds.Installer, "install", install)
    result = callsmith("engines", "install")
    assert result.code == 0 and "linux-x64-3.22.1" in result.out
    assert "linux-x64-cuda12 cannot be used here: libcudart.so.12 not found: pip install nvidia-cuda-runtime-cu12" in result.err
    assert "NVIDIA H200 is not used: linux-x64-cuda13: libcudart.so.13 not found" in result.err


def test_what_cannot_be_installed_is_an_error(callsmith, monkeypatch, tmp_path):
    result = callsmith("engines", "install", "nope")
    assert result.code == 2 and "known: linux-arm64, linux-x64" in result.err
    assert callsmith("engines", "install", "--from", str(tmp_path / "nowhere")).code == 2
    other = next(build for build in BUILDS if build.processor != machines.this_machine().processor)
    result = callsmith("engines", "install", other.name)
    assert result.code == 1 and f"{other.name} cannot be used here: for Linux on {other.processor}" in result.err
    monkeypatch.setattr(machines, "this_machine", lambda: machines.Machine("darwin", "arm64"))
    result = callsmith("engines", "install")
    assert result.code == 0 and "No build is known for this machine" in result.err


def test_what_is_not_installed_cannot_be_removed(callsmith):
    result = callsmith("engines", "remove", "linux-x64")
    assert result.code == 0 and result.err == "linux-x64 was not installed.\n"
    assert callsmith("engines", "remove", "nope").code == 2


@needs_real_build
def test_the_real_one_is_installed_used_and_removed(callsmith):
    assert CPU_BUILD is not None
    result = callsmith("engines", "install", CPU_BUILD.name)
    assert result.code == 0 and "to download, into" in result.err
    listed = json.loads(callsmith("engines", "--json").out)
    assert listed["used"]["path"] == result.out.strip()
    row = next(build for build in listed["builds"] if build["used"])
    assert (row["name"], row["state"]) == (CPU_BUILD.name, "works: the processor")
    assert callsmith("engines", "remove", CPU_BUILD.name).err == f"{CPU_BUILD.name} is removed.\n"
    assert "xllamacpp" in json.loads(callsmith("engines", "--json").out)["used"]["path"]
