"""Names and answers of a model hub: no name leaves the folder of weights, and whatever a hub answers is an error that says so."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from callsmith.core.errors import CallsmithError
from callsmith.models.weights import hub

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


class Hub(BaseHTTPRequestHandler):
    answer: dict[str, str]

    def do_GET(self) -> None:
        self.send_response(302 if "Location" in self.answer else 200)
        for name, value in self.answer.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for _ in range(1 if self.answer else 2_000):
                self.wfile.write(b"GGUF" * (1 << 16))
        except OSError:
            pass  # the asker has hung up

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_odd_answer_of_a_hub_is_an_error_and_leaves_no_weights(
    answer: dict[str, str], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(Hub, "answer", answer, raising=False)
    target = tmp_path / "model.gguf"
    with pytest.raises(CallsmithError, match=r"org/repo/model\.gguf|free"):
        hub.download(hub.HubFile("org/repo", "model.gguf"), target, lambda done, total: None)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1 << 24


def test_the_token_goes_to_no_address_that_is_not_encrypted_where_the_hub_is():
    request = hub.Request("https://hub.example/a")
    request.add_unredirected_header("Authorization", "Bearer secret")
    onward = hub._Redirects().redirect_request(request, None, 302, "", {}, "http://hub.example/b")  # pyright: ignore
    assert onward is not None and not onward.has_header("Authorization")
