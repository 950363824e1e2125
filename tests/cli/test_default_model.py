"""`serve` and `chat` without a model: what is taken, told and asked. The hub is on this machine, and nothing is opened."""

from pathlib import Path

import pytest
import typer

from callsmith.cli.inputs import default_model as picking
from callsmith.cli.inputs.default_model import pick_default
from callsmith.engines import memory
from callsmith.models.weights.catalogue import default_model
from tests.hub_fixtures import home, hub_server
from tests.hub_server import FakeHub

__all__ = ["home", "hub_server"]

CONTENT = b"GGUF" + bytes(1000)


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "model_memory", lambda: 16 * 10**9)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A user at a terminal, who says yes; the questions."""
    asked: list[str] = []
    monkeypatch.setattr(picking, "is_at_terminal", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda text, **_: asked.append(text) or True)
    return asked


def test_at_a_terminal_the_size_is_told_and_the_user_decides(
    hub_server: FakeHub, terminal: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    hub_server.add("unsloth/Qwen3.5-4B-GGUF", {"m-Q4_K_M.gguf": CONTENT})
    assert pick_default("ask") == "qwen3.5-4b"
    assert terminal == ["Fetch it, 0 MB instead of 1.1 GB?"]
    told = capsys.readouterr().err
    assert "qwen3.5-4b (Qwen3.5 4B, Apache-2.0) may call tools better" in told and "not tried here" in told
    monkeypatch.setattr(typer, "confirm", lambda text, **_: False)
    assert pick_default("ask") == default_model()


def test_at_a_terminal_without_a_hub_it_is_told_why_it_is_the_default(
    home: Path, terminal: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert pick_default("ask") == default_model() and not terminal
    assert capsys.readouterr().err == f"Model: {default_model()}: the hub has not answered within 2 seconds\n"


def test_where_nobody_is_at_a_terminal_nothing_changes(hub_server: FakeHub, capsys: pytest.CaptureFixture[str]):
    hub_server.add("unsloth/Qwen3.5-4B-GGUF", {"m-Q4_K_M.gguf": CONTENT})
    assert pick_default("ask") == pick_default("embedded") == default_model()
    assert (hub_server.requests, capsys.readouterr().err) == ([], "")
    assert pick_default("best") == "qwen3.5-4b"
    assert capsys.readouterr().err.startswith("Model: qwen3.5-4b, 0 MB: the best of the hub that fits")


def test_a_chat_fetches_it_where_the_variable_says_so(callsmith, hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    hub_server.add("unsloth/Qwen3.5-4B-GGUF", {"m-Q4_K_M.gguf": CONTENT})
    monkeypatch.setenv("CALLSMITH_DEFAULT_MODEL", "best")
    result = callsmith("chat", "Hi")
    assert result.code == 1 and "unsloth/Qwen3.5-4B-GGUF: Q4_K_M" in result.err  # those bytes are no model
    assert len(hub_server.downloads()) == 1
    assert callsmith("serve", "--default-model", "bset").code == 2
