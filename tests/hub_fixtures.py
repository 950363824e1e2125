"""A home of its own for every test, and a hub on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import FakeHub

VARIABLES = (
    "HF_HOME",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_HUB_CACHE",
    "LLAMA_CACHE",
    "OLLAMA_MODELS",
    "OLLAMA_HOST",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has nothing yet."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in (*VARIABLES, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.setenv("CALLSMITH_CACHE", str(folder / "callsmith"))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / ".cache" / "huggingface" / "hub"))
    return folder


@pytest.fixture
def hub_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that the client asks: it has read its variables when it was imported."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface-hub comes with callsmith[llama]")

    with FakeHub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
        yield server
