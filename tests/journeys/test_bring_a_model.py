"""The model that people bring, as a user brings it: programs of their own, the real client of a hub that is on this machine, and
real weights, which answer."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.engines.memory import model_memory
from tests.folders_of_others import write_ollama
from tests.hub_server import FakeHub
from tests.small import shallow_file, small_file

pytestmark = [pytest.mark.processes, pytest.mark.weights]

REPO = "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"]}}}  # fmt: skip
REQUEST = {
    "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 200,
}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as server:
        yield server


def environment(home: Path, hub: FakeHub | None = None, **variables: str) -> dict[str, str]:
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(home), "no_proxy": "*"}
    return {**own, "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9", "COLUMNS": "200", **variables}


def run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "callsmith", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)


def ask(*arguments: str, env: dict[str, str]) -> tuple[Any, str]:
    """What a server with this model answers, and what it said while it started."""
    command = [sys.executable, "-m", "callsmith", "serve", "--port", "0", "--threads", "1", *arguments]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if "http://127.0.0.1:" in line and "Uvicorn" not in line and "hub" not in line:
                    break
            address = "http://127.0.0.1:" + said[-1].partition("http://127.0.0.1:")[2].split("/")[0].split()[0]
            body = json.dumps(REQUEST).encode()
            request = urllib.request.Request(f"{address}/v1/chat/completions", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer), "".join(said)
        finally:
            process.terminate()


def called(answer: Any) -> str:
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")
    return call["function"]["name"]


def test_a_better_default_is_taken_if_the_user_says_so_and_stays(tmp_path: Path, hub: FakeHub):
    if (model_memory() or 0) < 6e9:
        pytest.skip("it is only offered where 5.5 GB of memory are free")
    hub.add("unsloth/Qwen3.5-4B-GGUF", {"Qwen3.5-4B-Q4_K_M.gguf": small_file()})
    answer, said = ask("--default-model", "best", env=environment(tmp_path, hub))
    assert called(answer) == "get_weather" and answer["model"] == "qwen3.5-4b"
    assert "Model: qwen3.5-4b, 98 MB: the best of the hub that fits into half of the free memory" in said
    answer, said = ask(env=environment(tmp_path))  # nobody to ask, and no hub
    assert answer["model"] == "qwen3.5-4b" and "Model: qwen3.5-4b: it is on this machine" in said


def test_a_model_of_a_hub_is_chosen_fetched_and_answers_and_again_without_the_hub(tmp_path: Path, hub: FakeHub):
    hub.add(REPO, {"smollm2-q4_1.gguf": small_file(), "smollm2-q2_k.gguf": shallow_file(), "README.md": b"#"})
    answer, said = ask("--model", f"hf:{REPO}:Q4_1", env=environment(tmp_path, hub))
    assert called(answer) == "get_weather" and answer["model"] == REPO
    assert f"{REPO}: Q4_1 (98 MB)" in said and str(tmp_path / ".cache" / "huggingface" / "hub") in said
    blob = next((tmp_path / ".cache" / "huggingface" / "hub").rglob("blobs/*"))
    assert blob.stat().st_size == small_file().stat().st_size
    assert not list((tmp_path / ".cache" / "callsmith").rglob("*.gguf"))
    offline = environment(tmp_path, HF_HUB_OFFLINE="1")
    listed = json.loads(run("models", "--json", env=offline).stdout)
    assert [(row["name"], row["program"]) for row in listed[-1:]] == [(f"{REPO}:Q4_1", "Hugging Face")]
    answer, _ = ask("--model", f"https://huggingface.co/{REPO}", env=offline)
    assert called(answer) == "get_weather"
    missing = run("chat", "--model", f"hf:{REPO}:Q2_K", "Hi", env=offline)
    assert missing.returncode == 1 and "HF_HUB_OFFLINE is set" in missing.stderr


def test_the_fetch_of_a_program_that_was_killed_goes_on_in_the_next(tmp_path: Path, hub: FakeHub):
    hub.add(REPO, {"smollm2-q4_1.gguf": small_file()})
    hub.break_after, hub.breaks = 25 << 20, 1
    hub.stalls = True
    command = [sys.executable, "-m", "callsmith", "models", "fetch", f"hf:{REPO}"]
    with subprocess.Popen(command, env=environment(tmp_path, hub), stderr=subprocess.DEVNULL) as process:
        hub.stalled.wait(60)
        partial = hub.wait_for_file(tmp_path, "*.incomplete", 20 << 20)
        process.kill()
    kept = partial.stat().st_size
    assert kept >= 20 << 20
    hub.stalls = False
    done = run("models", "fetch", f"hf:{REPO}", env=environment(tmp_path, hub))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == small_file().read_bytes()
    assert hub.downloads()[-1] == f"bytes={kept}-"
    assert not partial.exists()


def test_what_ollama_has_fetched_answers_without_ollama(tmp_path: Path):
    write_ollama(tmp_path / ".ollama" / "models", "registry.ollama.ai/library/smollm2/135m", small_file())
    table = run("models", env=environment(tmp_path)).stdout
    assert "smollm2:135m" in table and "Ollama" in table
    answer, _ = ask("--model", "smollm2:135m", env=environment(tmp_path))
    assert called(answer) == "get_weather" and answer["model"] == "smollm2:135m"
