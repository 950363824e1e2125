"""`callsmith models`: the catalogue, fetching, verifying. No network: the weights come out of a pretended store."""

import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.engines.llama import libllama
from callsmith.models.weights import fetch as weights
from callsmith.models.weights.catalogue import catalogue, default_model


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path))
    return tmp_path / "models"


def pretend(target: Path, name: str) -> None:
    """A file that is as large as the weights should be."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / f"{name}.gguf").open("wb") as file:
        file.write(b"GGUF")
        file.truncate(catalogue()[name].size)


def test_the_table_names_every_model_and_what_is_installed(callsmith, empty_cache: Path):
    pretend(empty_cache, "smollm2-135m")
    result = callsmith("models")
    assert result.code == 0
    lines = {name: next(line for line in result.out.splitlines() if name in line) for name in catalogue()}
    assert "yes" in lines["smollm2-135m"]
    assert "(default)" in lines[default_model()]
    assert "no" in lines[default_model()].split()


def test_each_model_says_what_it_is_good_for(callsmith):
    result = callsmith("models").out.partition("Good for:")[2]
    rows = {row["name"]: row["good_for"] for row in json.loads(callsmith("models", "--json").out)}
    assert set(rows) == {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"}
    assert all(good_for and f"{name}: {good_for}" in result for name, good_for in rows.items())


def test_the_list_says_the_same_as_json(callsmith, empty_cache: Path):
    pretend(empty_cache, "smollm2-135m")
    rows = {row["name"]: row for row in json.loads(callsmith("models", "--json").out)}
    assert rows["smollm2-135m"]["path"] == str(empty_cache / "smollm2-135m.gguf")
    assert rows[default_model()]["default"]
    assert rows[default_model()]["path"] is None


def test_fetching_tells_size_and_place_and_prints_the_path(callsmith, empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    def fetch(spec: str, *, progress: Any, force: bool) -> Path:
        progress(50_000_000, 98_362_432)
        return empty_cache / f"{spec}.gguf"

    monkeypatch.setattr(weights, "fetch", fetch)
    result = callsmith("models", "fetch", "smollm2-135m")
    assert result.code == 0
    assert "98 MB" in result.err
    assert str(empty_cache) in result.err
    assert result.out.strip() == str(empty_cache / "smollm2-135m.gguf")


def test_what_is_there_is_not_fetched_again(callsmith, empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    pretend(empty_cache, "smollm2-135m")
    monkeypatch.setattr(weights, "fetch", lambda *_, **__: pytest.fail("fetched"))
    assert callsmith("models", "fetch", "smollm2-135m").out.strip() == str(empty_cache / "smollm2-135m.gguf")


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_an_unknown_model_is_refused_with_a_suggestion(callsmith, command: str):
    result = callsmith("models", command, "smollm2-135")
    assert result.code == 2
    assert result.err == "error: unknown model 'smollm2-135'; did you mean 'smollm2-135m'?\n"


def test_verifying_damaged_weights_says_how_to_mend_them(callsmith, empty_cache: Path):
    pretend(empty_cache, "smollm2-135m")
    result = callsmith("models", "verify", "smollm2-135m")
    assert result.code == 1
    assert "callsmith models fetch --force smollm2-135m" in result.err


def test_a_model_that_is_not_there_is_fetched_when_it_is_used(callsmith, monkeypatch: pytest.MonkeyPatch):
    def fetch(spec: str, **_: Any) -> Path:
        raise Unavailable(f"fetching {spec}")

    monkeypatch.setattr(weights, "fetch", fetch)
    result = callsmith("chat", "--model", "smollm2-135m", "Hi")
    assert result.code == 1
    assert "fetching smollm2-135m" in result.err


def test_nothing_is_fetched_for_an_engine_that_does_not_work(callsmith, empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weights, "fetch", lambda *_, **__: pytest.fail("fetched"))
    monkeypatch.setenv("CALLSMITH_LIBLLAMA", "/nowhere/libllama.so")
    libllama.load.cache_clear()
    result = callsmith("chat", "--model", "smollm2-135m", "Hi")
    assert result.code == 1
    assert "CALLSMITH_LIBLLAMA names no library" in result.err
