"""`callsmith models`: the catalogue, what is on this machine, fetching, verifying. No network: the weights are of a pretended
store, or from a hub on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp")

from callsmith.core.errors import MissingExtra, Unavailable
from callsmith.engines.llama import libllama
from callsmith.models.weights import fetch as weights
from callsmith.models.weights.catalogue import catalogue, default_model
from callsmith.models.weights.hub_models import hub_models
from tests.folders_of_others import CONTENT, write_lm_studio, write_ollama
from tests.hub_fixtures import home, hub_server
from tests.hub_server import FakeHub

__all__ = ["home", "hub_server"]


@pytest.fixture(autouse=True)
def empty_cache(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    rows = {row["name"]: row["good_for"] for row in json.loads(callsmith("models", "--json").out) if row["verified"]}
    assert set(rows) == {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"}
    assert all(good_for and f"{name}: {good_for}" in result for name, good_for in rows.items())


def test_models_of_the_hub_are_listed_apart_as_not_tried(callsmith):
    tried, told, known = callsmith("models").out.partition("On the hub, not tried here")
    assert told and all(name in known and name not in tried for name in hub_models())
    rows = {row["name"]: row for row in json.loads(callsmith("models", "--json").out) if not row["verified"]}
    assert set(rows) == set(hub_models())
    assert (rows["qwen3.5-4b"]["hub"], rows["qwen3.5-4b"]["path"]) == ("hf:unsloth/Qwen3.5-4B-GGUF:Q4_K_M", None)


def test_a_short_name_of_the_hub_is_fetched_from_it_and_found_again(callsmith, hub_server: FakeHub):
    hub_server.add("ibm-granite/granite-4.0-micro-GGUF", {"g-Q8_0.gguf": CONTENT * 2, "g-Q4_K_M.gguf": CONTENT})
    result = callsmith("models", "fetch", "granite-4.0-micro")
    assert result.out.strip().endswith("g-Q4_K_M.gguf") and "ibm-granite/granite-4.0-micro-GGUF: Q4_K_M" in result.err
    hub_server.down = 503
    assert callsmith("models", "fetch", "granite-4.0-micro").out == result.out
    rows = {row["name"]: row for row in json.loads(callsmith("models", "--json").out)}
    assert rows["granite-4.0-micro"]["path"] == result.out.strip()
    assert "did you mean 'granite-4.0-micro'" in callsmith("models", "fetch", "granite-4.0-micr").err


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
    libllama._load.cache_clear()
    result = callsmith("chat", "--model", "smollm2-135m", "Hi")
    assert result.code == 1
    assert "CALLSMITH_LIBLLAMA names no library" in result.err


def test_what_other_programs_have_is_listed_with_the_names_that_are_taken(callsmith, home: Path):
    blob = write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/qwen3/4b")
    write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/gpt-oss/120b-cloud", None)
    write_lm_studio(home / ".lmstudio", "org/A-GGUF", "A-Q4_0.gguf")
    result = callsmith("models")
    lines = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
    assert "Ollama" in lines["qwen3:4b"] and "LM Studio" in lines["org/A-GGUF:Q4_0"]
    assert "Not usable: gpt-oss:120b-cloud of Ollama: it has no GGUF file" in result.out
    rows = {row["name"]: row for row in json.loads(callsmith("models", "--json").out)}
    assert (rows["qwen3:4b"]["path"], rows["qwen3:4b"]["program"]) == (str(blob), "Ollama")
    assert rows["smollm2-135m"]["program"] == "callsmith"
    assert callsmith("models", "fetch", "qwen3:4b").out.strip() == str(blob)


def test_a_model_of_a_hub_is_fetched_and_the_choice_is_told(callsmith, hub_server: FakeHub):
    hub_server.add("org/repo", {"m-Q4_K_M.gguf": CONTENT, "m-Q8_0.gguf": CONTENT * 2})
    result = callsmith("models", "fetch", "hf:org/repo")
    assert result.code == 0
    assert result.out.strip().endswith("m-Q4_K_M.gguf")
    told, others, place = result.err.splitlines()[:3]
    assert told.startswith("org/repo: Q4_K_M (0 MB): the usual one; ")
    assert others == "Also there: Q8_0 (0 MB); another one is taken by its name, as in hf:org/repo:Q8_0"
    assert place.startswith("Fetching it into ")
    hub_server.down = 503
    assert callsmith("models", "fetch", "org/repo").out == result.out


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ("org/gated", 1, "error: org/gated is gated: its authors ask you to accept its terms first\nAccept them at http://"),
        ("org/none", 1, "error: the hub knows no org/none, and no file or folder org/none here (401)"),
        ("hf:org/repo:Q9", 2, "error: org/repo has no Q9; there: Q8_0 (0 MB)"),
        ("hf:org/repo@v2", 1, "error: org/repo has no revision v2 (404)"),
        ("org/tensors", 2, "error: running Hugging Face checkpoints in process needs an optional part: pip install 'callsmith["),
    ],
)
def test_what_a_hub_does_not_give_is_said_in_a_line_or_two(
    callsmith, hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch, spec: str, code: int, message: str
):
    def find_engine(scheme: str) -> None:
        if scheme == "transformers":
            raise MissingExtra("transformers", "running Hugging Face checkpoints in process")

    monkeypatch.setattr("callsmith.engines.find_engine", find_engine)
    hub_server.add("org/repo", {"m-Q8_0.gguf": CONTENT})
    hub_server.add("org/gated", {"m-Q8_0.gguf": CONTENT}, tokens=frozenset({"hf_x"}))
    hub_server.add("org/tensors", {"model.safetensors": b"x", "config.json": b"{}"})
    result = callsmith("chat", "--model", spec, "Hi")
    assert (result.code, message in result.err) == (code, True), result.err
