"""`callsmith doctor`: one line each, what to do, and an exit code."""

import socket
import threading
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from callsmith.cli import doctor
from callsmith.engines import memory
from callsmith.engines.llama import libllama
from callsmith.engines.llama import placement as devices
from callsmith.engines.llama.trial_decode import write_tiny_model
from callsmith.engines.llama_builds import builds as machines
from callsmith.engines.llama_builds.builds import BUILDS
from tests.small import small_file

SCRIPTED = ("doctor", "--model", "scripted:Hi")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """The user's own settings are none of these tests' business."""
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path / "config"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("CALLSMITH_SERVER__PORT", str(free.getsockname()[1]))


def line_of(out: str, what: str) -> str:
    return next(line for line in out.splitlines() if line[5:].startswith(what))


def test_where_everything_is_there_every_line_says_ok(callsmith, monkeypatch):
    monkeypatch.setattr(machines, "_features", lambda root: "")
    result = callsmith(*SCRIPTED)
    assert result.code == 0
    lines = [line for line in result.out.splitlines() if not line.startswith(" ")]
    assert {line.split()[0] for line in lines} == {"ok"}
    assert [line.split()[1] for line in lines] == [
        "python", *["extra"] * 9, "llama.cpp", "gpu", "grammars", "settings", "model", "port",
    ]  # fmt: skip


@pytest.mark.weights
def test_weights_are_held_against_the_catalogue_and_the_memory_there_is(callsmith):
    small_file()
    result = callsmith("doctor", "--model", "smollm2-135m")
    assert "sha256 as in the catalogue" in line_of(result.out, "model")
    assert "needed" in line_of(result.out, "memory")


def test_weights_that_are_damaged_fail_with_the_command_that_mends_them(callsmith, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "smollm2-135m.gguf").write_bytes(b"GGUF")
    result = callsmith("doctor", "--model", "smollm2-135m")
    assert result.code == 1
    assert line_of(result.out, "model").startswith("fail")
    assert "→ Run: callsmith models fetch --force smollm2-135m" in result.out


def test_a_model_that_has_not_been_fetched_fails(callsmith, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path))
    result = callsmith("doctor", "--model", "smollm2-135m")
    assert result.code == 1
    assert "→ Run: callsmith models fetch smollm2-135m" in result.out


def test_too_little_memory_is_a_warning(callsmith, tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"GGUF" * 1000)
    monkeypatch.setattr(memory, "free_memory", lambda: 100)
    result = callsmith("doctor", "--model", str(tmp_path / "m.gguf"))
    assert result.code == 0
    assert line_of(result.out, "memory").startswith("warn")


def test_a_library_of_another_build_fails(callsmith, monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSMITH_LIBLLAMA", str(tmp_path / "libllama.so"))
    libllama._load.cache_clear()
    result = callsmith(*SCRIPTED)
    assert result.code == 1
    assert line_of(result.out, "llama.cpp").startswith("fail")
    assert "unset it" in result.out


def test_a_library_without_code_for_the_processor_is_a_warning_with_the_way_to_a_faster_one(callsmith, monkeypatch, tmp_path):
    library = libllama.load()
    monkeypatch.setattr(machines, "_features", lambda root: "fp asimd asimddp")
    monkeypatch.setattr(machines.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(library, "uses", "CPU : NEON = 1 | ")
    result = callsmith(*SCRIPTED)
    assert result.code == 0
    assert line_of(result.out, "llama.cpp").startswith("warn")
    assert "→ To answer faster: callsmith engines install, and unset CALLSMITH_LIBLLAMA\n" in result.out
    monkeypatch.setenv("CALLSMITH_LIBLLAMA", "")
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path))
    assert "→ To answer faster: callsmith engines install\n" in callsmith(*SCRIPTED).out
    monkeypatch.setattr(library, "uses", "CPU : NEON = 1 | DOTPROD = 1 | ")
    assert line_of(callsmith(*SCRIPTED).out, "llama.cpp").startswith("ok")


def test_a_gpu_that_no_installed_build_can_use_is_a_warning_with_the_command_that_installs_one(callsmith, monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path))
    monkeypatch.delenv("CALLSMITH_LIBLLAMA")
    gpu = machines.Machine("linux", "x86_64", "", "580.1", ("NVIDIA H200",), folders=(tmp_path,))
    monkeypatch.setattr(machines, "this_machine", lambda: gpu)
    for name in (name for build in BUILDS for name in build.libraries or {}):
        (tmp_path / name).write_bytes(b"")
    result = callsmith(*SCRIPTED)
    assert line_of(result.out, "gpu").startswith(
        "warn gpu       NVIDIA H200 is not used: no build of llama.cpp for it is installed"
    )
    assert "→ Run: callsmith engines install\n" in result.out


def test_the_gpus_that_the_library_sees_are_listed_with_the_layers_they_would_get(callsmith, monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "gpus", lambda library: (devices.Device("CUDA0", "NVIDIA H200", 138 << 30, 139 << 30),))
    assert line_of(callsmith(*SCRIPTED).out, "gpu") == "ok   gpu       CUDA0 (NVIDIA H200, 139 GiB), 138 GiB free"
    write_tiny_model(tmp_path / "m.gguf")
    result = callsmith("doctor", "--model", str(tmp_path / "m.gguf"))
    assert line_of(result.out, "memory") == "ok   memory    2 of 2 layers on CUDA0 (NVIDIA H200, 139 GiB)"


def test_a_part_that_is_not_installed_is_a_warning_with_the_way_to_get_it(callsmith, monkeypatch):
    monkeypatch.setattr(doctor, "extras", lambda: {"otel": ["no-such-package"]})
    result = callsmith(*SCRIPTED)
    assert result.code == 0
    assert "pip install 'callsmith[otel]'" in result.out


def test_each_of_several_models_is_looked_at(callsmith, tmp_path: Path):
    (tmp_path / "c.toml").write_text('[models.a]\nmodel = "scripted:Hi"\n[models.b]\nmodel = "/no/such.gguf"\n', "utf-8")
    result = callsmith("doctor", "--config", str(tmp_path / "c.toml"))
    lines = [line for line in result.out.splitlines() if line[5:].startswith("model")]
    assert result.code == 1 and [line.split()[0] for line in lines] == ["ok", "fail"]


def test_settings_that_make_no_sense_fail(callsmith, tmp_path: Path):
    (tmp_path / "c.toml").write_text("[server]\nprot = 1\n", "utf-8")
    result = callsmith(*SCRIPTED, "--config", str(tmp_path / "c.toml"))
    assert result.code == 1
    assert "did you mean 'server.port'" in line_of(result.out, "settings")


def test_a_port_in_use_is_told(callsmith, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("CALLSMITH_SERVER__PORT", str(listener.getsockname()[1]))
        result = callsmith(*SCRIPTED)
    assert line_of(result.out, "port").startswith("warn")


def test_a_server_that_does_not_answer_fails(callsmith):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = callsmith(*SCRIPTED, "--url", f"http://127.0.0.1:{port}/v1")
    assert result.code == 1
    assert line_of(result.out, "server").startswith("fail")


def test_something_else_that_listens_there_fails(callsmith):
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        result = callsmith(*SCRIPTED, "--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert result.code == 1
    assert line_of(result.out, "server").startswith("fail")


def test_free_memory_can_be_told_here():
    free = memory.free_memory()
    assert free is None or free > 1_000_000


@pytest.mark.parametrize("url", ["http://exa mple", "http://[::1", "nonsense"])
def test_what_is_no_address_is_told(callsmith, url: str):
    result = callsmith(*SCRIPTED, "--url", url)
    assert result.code == 1
    assert f"{url} does not answer as callsmith does: " in result.out
