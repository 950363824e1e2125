"""Names and answers of a model hub: no name leaves the folder of weights, and whatever a hub answers is an error that says so.

Also what other programs have left on this machine: manifests that lead elsewhere, are endless, or go round in circles.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from callsmith.core.errors import CallsmithError
from callsmith.models.weights import hub
from callsmith.models.weights.fetch import fetch, locate
from callsmith.models.weights.found import SkippedModel, find_model, find_models
from callsmith.models.weights.found.ollama import find_ollama_models

NAMES = [
    "hf:../..:model.gguf",
    "hf:org/..:model.gguf",
    "hf:org/repo:../model.gguf",
    "hf:org/repo:a/../../model.gguf",
    "hf:org/repo:/etc/model.gguf",
    "hf:org/repo:a//model.gguf",
    "hf:org/repo:.hidden/model.gguf",
    "hf:org/repo@../main:model.gguf",
    "hf:org/repo:model.gguf?download=true",
    "hf:org/repo:model.gguf\n",
    "hf:org/repo:model.gguf\0",
    "hf:org/repo:mo\x1b[2Jdel.gguf",
    "hf:org/repo:モデル.gguf",
    "hf:user:password@host/repo:model.gguf",
    "org/repo/../../model.gguf",
    "org\\repo\\model.gguf",
    "hf:" + "a/" * 100_000 + "a.gguf",
    "hf:org/repo:" + "a." * 100_000,
]
ANSWERS: dict[str, dict[str, str]] = {
    "length in words": {"Content-Length": "many"},
    "negative length": {"Content-Length": "-5"},
    "length beyond all disks": {"Content-Length": "9" * 30},
    "no length, and no end": {},
    "a long length": {"Content-Length": "9" * 70_000},
    "a redirect to nowhere": {"Location": "http://[::1"},
    "a redirect to a file": {"Location": "file:///etc/passwd"},
    "a redirect to itself": {"Location": "/org/repo/resolve/main/model.gguf"},
    "a redirect to an odd port": {"Location": "http://localhost:99999999/a"},
    "a redirect to an odd name": {"Location": f"http://{'a' * 70}.x/"},
}


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_name_is_no_file_of_a_hub(name: str):
    assert hub.parse(name) is None


SIZE = 17 << 20  # of the model, as the hub says
COMMIT = "a" * 40
MODEL = {"rfilename": "m-Q4_0.gguf", "size": SIZE, "lfs": {"sha256": "b" * 64, "size": SIZE, "pointerSize": 1}}
GOOD = {"id": "org/repo", "modelId": "org/repo", "sha": COMMIT, "siblings": [MODEL], "tags": [], "private": False}
LISTINGS: dict[str, bytes] = {
    "no JSON": b"<html>",
    "a list": b"[]",
    "nested without end": b"[" * 100_000,
    "nothing": b"{}",
    "a commit that is a path": json.dumps({**GOOD, "sha": "../../../../etc"}).encode(),
    "files that are numbers": json.dumps({**GOOD, "siblings": [1, 2]}).encode(),
    "names that are numbers": json.dumps({**GOOD, "siblings": [{**MODEL, "rfilename": 7}]}).encode(),
    "sizes that are words": json.dumps({**GOOD, "siblings": [{**MODEL, "size": "many"}]}).encode(),
    "a size below nothing": json.dumps({**GOOD, "siblings": [{**MODEL, "size": -1}]}).encode(),
    "a size beyond all disks": json.dumps({**GOOD, "siblings": [{**MODEL, "size": 10**30}]}).encode(),
    "names that lead out": json.dumps({**GOOD, "siblings": [{**MODEL, "rfilename": "../../m-Q4_0.gguf"}]}).encode(),
    "a name from the root": json.dumps({**GOOD, "siblings": [{**MODEL, "rfilename": "/tmp/m-Q4_0.gguf"}]}).encode(),
    "a digest that is a path": json.dumps({**GOOD, "siblings": [{**MODEL, "lfs": {"sha256": "../x", "size": 1}}]}).encode(),
    "files without end": json.dumps({**GOOD, "siblings": [{"rfilename": f"{n}.txt", "size": 1} for n in range(20_000)]}).encode(),
}


class Hub(BaseHTTPRequestHandler):
    """A hub that describes a model in an odd way, or one that sends odd files."""

    listing: bytes
    answer: dict[str, str]

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.path.startswith("/api/"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.listing)))
            self.end_headers()
            self.wfile.write(self.listing)
            return
        self.send_response(302 if "Location" in self.answer else 200)
        for name, value in {"X-Repo-Commit": COMMIT, "ETag": f'"{"b" * 64}"', **self.answer}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for _ in range(0 if self.command == "HEAD" else 1 if self.answer else 2_000):
                self.wfile.write(b"GGUF" * (1 << 16))
        except OSError:
            pass  # the asker has hung up

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the client waits before it tries again
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(Hub, "listing", json.dumps(GOOD).encode(), raising=False)
        monkeypatch.setattr(Hub, "answer", {}, raising=False)
        yield url
        server.shutdown()


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_odd_answer_of_a_hub_is_an_error_and_leaves_no_weights(
    answer: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Hub, "answer", answer)
    with pytest.raises(CallsmithError, match=r"org/repo|free"):
        fetch("hf:org/repo")
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 1 << 24
    assert not list(tmp_path.rglob("*.gguf"))


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_an_odd_description_of_a_repository_is_an_error(listing: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Hub, "listing", listing)
    with pytest.raises(CallsmithError, match=r"org/repo|free"):
        fetch("hf:org/repo")
    assert not list(tmp_path.rglob("*.gguf")) and not list(tmp_path.parent.glob("*.gguf"))


def test_the_token_goes_to_no_address_that_is_not_the_hubs(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tokens: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    monkeypatch.setenv("HF_TOKEN", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(
            Hub, "answer", {"Location": f"http://127.0.0.1:{server.server_address[1]}/a", "X-Linked-Size": str(SIZE)}
        )
        with pytest.raises(CallsmithError):
            fetch("hf:org/repo")
        server.shutdown()
    assert tokens and set(tokens) == {None}


def write_manifest(home: Path, model: str, manifest: bytes) -> Path:
    file = home / "manifests" / "registry.ollama.ai" / "library" / model / "latest"
    file.parent.mkdir(parents=True)
    file.write_bytes(manifest)
    return file


def layers(digest: object) -> bytes:
    return json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": digest}]}).encode()


MANIFESTS: dict[str, bytes] = {
    "a digest that leads out": layers("sha256:../../../../../../etc/passwd"),
    "a digest that is a path": layers("/etc/passwd"),
    "a digest with a path behind it": layers("sha256:" + "0" * 64 + "/../../x"),
    "a digest that is a list": layers([1]),
    "no JSON": b"\x00\xff",
    "nested without end": b"[" * 500_000,
    "larger than any": b" " * (2 << 20),
    "layers that are numbers": b'{"layers": [1, null, "x"]}',
    "layers that are a word": b'{"layers": "x"}',
    "a list": b"[]",
}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_an_odd_manifest_is_skipped_with_a_reason(manifest: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    write_manifest(tmp_path, "odd", manifest)
    (skipped,) = find_ollama_models()
    assert isinstance(skipped, SkippedModel) and skipped.name == "odd:latest" and skipped.reason
    with pytest.raises(CallsmithError, match="Ollama has odd, but"):
        find_model("odd")


def test_folders_that_lead_into_themselves_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HF_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    cache = tmp_path / ".cache" / "huggingface" / "hub" / "models--org--repo"
    rounds = [
        tmp_path / ".ollama" / "models" / "manifests",
        tmp_path / ".lmstudio" / "models",
        cache / "snapshots" / COMMIT,
        cache / "refs",
        tmp_path / ".cache" / "llama.cpp",
    ]
    for folder in rounds:
        folder.mkdir(parents=True)
        (folder / "round").symlink_to(folder, target_is_directory=True)
        (folder / "itself").symlink_to(folder / "itself")
        (folder / "m-Q4_0.gguf").symlink_to(folder / "nowhere")
    (cache / "refs" / "main").write_text("../../../../etc")
    found, _ = find_models()
    assert found == []
    with pytest.raises(CallsmithError):
        locate(str(rounds[1]))
