"""A build is used only if a process of its own has decoded with it on this machine."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from callsmith.engines.llama_builds.builds import Build, Machine, Package, this_machine
from callsmith.engines.llama_builds.locate import (
    VARIABLE,
    Proof,
    find_proof,
    forget,
    library_in,
    locate,
    pinned_library,
    preload,
    proof_of,
    prove,
    unused_gpu,
)
from tests.real_build import CPU_BUILD, needs_real_build

pytestmark = pytest.mark.processes

HERE = this_machine()
GPU = replace(HERE, driver="580.1", cards=("NVIDIA H200",))
TOY = Build("toy", "tests", "cpu", HERE.processor, (Package("@toys/llama@1.0.0", "", 1),))
TOY_GPU = replace(TOY, name="toy-gpu", accelerator="cuda")
ABORTS = (
    "-c",
    "import os, sys; print('CUDA error: no kernel image\\nggml-cuda.cu:103: CUDA error', file=sys.stderr); os.abort()",
)
WORKS = ("-c", "print('CUDA0 (NVIDIA H200, 139 GiB)')")
compiles = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def plant(build: Build) -> Path:
    """Put a file where the library of the build would be."""
    build.folder.mkdir(parents=True)
    library = build.folder / "libllama.so"
    library.write_bytes(b"no library")
    return library


def test_a_build_whose_process_aborts_is_not_used_and_its_last_words_are_told() -> None:
    plant(TOY)
    assert prove(TOY, TOY.folder, HERE, ABORTS) == Proof(False, "its process was ended by SIGABRT: CUDA error: no kernel image")
    located = locate(HERE, (TOY,))
    assert (located.path, located.build) == (pinned_library(), None)
    assert located.why.endswith(
        "; toy is installed: does not work here: its process was ended by SIGABRT: CUDA error: no kernel image"
    )


def test_what_was_proven_is_remembered_for_this_machine_alone() -> None:
    library = plant(TOY)
    assert prove(TOY, TOY.folder, HERE, WORKS).ok
    assert find_proof(TOY, HERE) == Proof(True, "CUDA0 (NVIDIA H200, 139 GiB)")
    assert locate(HERE, (TOY,)).path == library
    other = replace(HERE, features="another processor")
    assert find_proof(TOY, other) is None
    assert locate(other, (TOY,)).build is None  # it is tried there, and is no library
    assert "cannot be loaded" in proof_of(TOY, other).message
    assert locate(HERE, (TOY,)).build is TOY
    forget(TOY, HERE)
    assert locate(HERE, (TOY,)).build is None


def test_the_first_that_fits_and_works_is_used() -> None:
    best, library = replace(TOY, name="best"), plant(TOY)
    assert plant(best)
    prove(TOY, TOY.folder, HERE, WORKS)
    prove(best, best.folder, HERE, ABORTS)
    located = locate(HERE, (best, TOY))
    assert located.path == library
    assert located.why.startswith("the best that is installed and works here: toy; best is installed: does not work here: ")
    assert locate(HERE, (replace(TOY, processor="vax"),)).build is None
    prove(best, best.folder, HERE, WORKS)
    assert locate(HERE, (best, TOY)).build is best


def test_what_is_remembered_wrongly_is_tried_again() -> None:
    plant(TOY)
    prove(TOY, TOY.folder, HERE, WORKS)
    file = next((TOY.folder.parent / "proofs").iterdir())
    for content in ("", "[]", '{"ok": true}', "\x00"):
        file.write_text(content, "utf-8")
        assert find_proof(TOY, HERE) is None


def test_a_named_library_is_used_without_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prove(TOY, plant(TOY).parent, HERE, WORKS)
    monkeypatch.setenv(VARIABLE, "pinned")
    assert locate(HERE, (TOY,)).path == pinned_library()
    (tmp_path / "libllama.so").write_bytes(b"")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "libllama.so"))
    assert locate(HERE, (TOY,)).path == tmp_path / "libllama.so"


def test_why_a_gpu_is_not_used_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unused_gpu(replace(HERE, driver=""), (TOY, TOY_GPU)) == ""
    output = unused_gpu(GPU, (TOY, TOY_GPU))
    assert output == "NVIDIA H200 is not used: no build of llama.cpp for it is installed. Run: callsmith engines install"
    prove(TOY_GPU, TOY_GPU.folder, GPU, ABORTS)
    assert "toy-gpu: does not work here: its process was ended by SIGABRT" in unused_gpu(GPU, (TOY, TOY_GPU))
    lacking = replace(TOY_GPU, name="lacking", libraries={"libcudart.so.99": "nvidia-cuda-runtime"})
    assert "lacking: libcudart.so.99 not found: pip install nvidia-cuda-runtime" in unused_gpu(GPU, (lacking,))
    monkeypatch.setenv(VARIABLE, "pinned")
    assert unused_gpu(GPU, (TOY, TOY_GPU)) == "NVIDIA H200 is not used: CALLSMITH_LIBLLAMA is pinned"


@needs_real_build
def test_a_real_build_decodes_and_is_found(real_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSMITH_CACHE", str(real_cache))
    assert CPU_BUILD is not None
    forget(CPU_BUILD, HERE)
    located = locate(HERE)
    assert located.build is CPU_BUILD and located.path == library_in(CPU_BUILD.folder)
    assert find_proof(CPU_BUILD, HERE) == Proof(True, "the processor")


@needs_real_build
def test_a_real_build_without_its_gpu_does_not_count_as_one_that_works(real_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSMITH_CACHE", str(real_cache))
    assert CPU_BUILD is not None
    wanted = replace(CPU_BUILD, name="for-gpus", accelerator="cuda")
    assert prove(wanted, CPU_BUILD.folder, HERE) == Proof(False, "it sees no GPU")


@needs_real_build
@compiles
def test_a_real_library_that_aborts_when_it_decodes_takes_only_its_own_process_with_it(
    real_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CPU_BUILD is not None
    monkeypatch.setenv("CALLSMITH_CACHE", str(real_cache))
    real = library_in(CPU_BUILD.folder)
    assert real is not None
    source = '#include <stdio.h>\n#include <stdlib.h>\nint llama_decode() { fputs("CUDA error: no kernel\\n", stderr); abort(); }'
    compile_library(tmp_path / "libllama.so", source, f"-L{real.parent}", f"-l:{real.name}", f"-Wl,-rpath,{real.parent}")
    for file in real.parent.glob("libggml-cpu*"):
        (tmp_path / file.name).symlink_to(file)
    proof = prove(replace(TOY, name="aborting"), tmp_path, HERE)
    assert proof == Proof(False, "its process was ended by SIGABRT: CUDA error: no kernel")


@compiles
def test_what_gpu_code_lacks_is_loaded_from_where_it_is_found_first(tmp_path: Path) -> None:
    pip, build = tmp_path / "pip", tmp_path / "build"
    pip.mkdir(), build.mkdir()
    compile_library(pip / "libtoylt.so.13", "int lt(void) { return 1; }")
    compile_library(pip / "libtoy.so.13", "int lt(void); int toy(void) { return lt(); }", f"-L{pip}", "-l:libtoylt.so.13")
    linked = ("-Wl,--unresolved-symbols=ignore-all", f"-L{pip}", "-l:libtoy.so.13")
    compile_library(build / "libggml-cuda.so", "int toy(void); int x(void) { return toy(); }", *linked)
    library = build / "libllama.so"
    assert "libtoy" in preloaded(library, ()) and "cannot open shared object" in preloaded(library, ())
    assert preloaded(library, (pip,)) == ""
    assert preload(tmp_path / "elsewhere" / "libllama.so", Machine("linux", "x86_64")) == ""


def compile_library(path: Path, source: str, *options: str) -> None:
    name = f"-Wl,-soname,{path.name}"
    command = ["cc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed", name, *options]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)


def preloaded(library: Path, folders: tuple[Path, ...]) -> str:
    """What cannot be loaded, found out by a process of its own."""
    show = f"""
from pathlib import *
from callsmith.engines.llama_builds.builds import Machine
from callsmith.engines.llama_builds.locate import preload
print(preload(Path({str(library)!r}), Machine("linux", "x86_64", folders={folders!r})))"""
    return subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.strip()
