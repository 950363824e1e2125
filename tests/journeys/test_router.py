"""`callsmith serve` with several models: real weights, real memory, real clients."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import ollama
import pytest
from anthropic import Anthropic
from openai import OpenAI

from callsmith.models.opening import open_model
from callsmith.server.app import create_app
from tests.llama_servers import llama_server
from tests.serving import served_apart
from tests.small import small_file

pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read in /proc"),
    pytest.mark.processes,
]

HI: Any = [{"role": "user", "content": "Say hi."}]
MB = 1024  # kB


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


class Serving:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "callsmith", "serve", "--port", "0", "--threads", "1", "--context", "2048", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().partition(" at ")[2].partition("/v1")[0]
        assert self.url, self.process.communicate()
        self.openai = OpenAI(base_url=f"{self.url}/v1", api_key="x", max_retries=0)
        self.anthropic = Anthropic(base_url=self.url, api_key="x", max_retries=0)
        self.ollama = ollama.Client(self.url)

    def memory(self) -> int:
        """The kB of memory that the process takes now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def loaded(self) -> set[str | None]:
        return {model.model for model in self.ollama.ps().models}

    def ask(self, model: str) -> str:
        answer = self.openai.chat.completions.create(model=model, messages=HI, max_tokens=4)
        assert answer.usage and answer.usage.completion_tokens
        return answer.model

    def stop(self) -> str:
        """End it; what it has logged."""
        self.process.terminate()
        return self.process.communicate(timeout=30)[1]


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: str) -> Serving:
        started.append(server := Serving(*arguments))
        return server

    yield start
    for server in started:
        server.process.kill()
        server.process.communicate()


def test_two_models_an_alias_and_room_for_one_of_them(serve: Callable[..., Serving]) -> None:
    server = serve("--model", "a=smollm2-135m", "--model", f"b={small_file()}", "--alias", "claude-*=b", "--memory", "300MB")
    empty = server.memory()
    listed = {item.id: item.to_dict()["callsmith"] for item in server.openai.models.list()}
    assert [item["loaded"] for item in listed.values()] == [False, False]  # pyright: ignore
    assert server.ollama.show("a").modelinfo == server.ollama.show("b").modelinfo | {"general.basename": "a"}  # pyright: ignore
    assert server.loaded() == set()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(server.ask, ["a"] * 8)) == ["a"] * 8
    full = server.memory()
    assert full - empty > 100 * MB and server.loaded() == {"a"}
    message = server.anthropic.messages.create(model="claude-sonnet-5", max_tokens=4, messages=HI)
    assert message.model == "b" and server.loaded() == {"b"}
    assert server.ollama.generate("b", keep_alive=0).done_reason == "unload"
    wait_until(lambda: not server.loaded() and full - server.memory() > 80 * MB)
    logged = [line for line in server.stop().splitlines() if " loaded " in line]
    assert len(logged) == 2 and "loaded a in" in logged[0] and "loaded b in" in logged[1]


def test_a_model_goes_when_nobody_asks_and_comes_back(serve: Callable[..., Serving]) -> None:
    server = serve("--model", "smollm2-135m", "--name", "only", "--unload-after", "200ms")
    wait_until(lambda: not server.loaded())
    assert server.ask("only") == server.ask("default") == "only"
    wait_until(lambda: not server.loaded())
    assert httpx2.get(f"{server.url}/ready").json() == {"ready": True}


def test_models_of_several_kinds_behind_one_server(serve: Callable[..., Serving], tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    remote = create_app({"parrot": open_model("scripted:I am remote.")})
    with served_apart(remote) as far, llama_server(1024) as raw:
        config = tmp_path / "callsmith.toml"
        config.write_text(
            f"""
            [models.local]
            model = "smollm2-135m"
            [models.remote]
            model = "{far}/v1#parrot"
            [models.raw]
            model = "completions:llama-server+{raw}"
            context = 512
            [aliases]
            default = "raw"
            "gpt-*" = "remote"
            """,
            "utf-8",
        )
        server = serve("--config", str(config))
        health = httpx2.get(f"{server.url}/health").json()
        assert health["models"] == {"local": "unloaded", "remote": "ready", "raw": "unloaded"}
        assert [server.ask(name) for name in ("local", "gpt-5-mini", "default")] == ["local", "remote", "raw"]
        assert server.openai.models.retrieve("raw").to_dict()["max_model_len"] == 512
        assert server.loaded() == {"local", "remote", "raw"}


def test_an_upstream_that_is_away_is_an_error_for_who_asks_it_and_for_nobody_else(serve: Callable[..., Serving]) -> None:
    pytest.importorskip("aiohttp")
    server = serve("--model", "here=scripted:Hello", "--model", "away=completions:llama-server+http://127.0.0.1:9")
    body = {"model": "away", "messages": HI}
    refused = httpx2.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)
    assert refused.status_code == 503 and "127.0.0.1:9" in refused.json()["error"]["message"]
    assert server.ask("here") == "here"
    health = httpx2.get(f"{server.url}/health").json()
    assert (health["status"], health["models"]) == ("degraded", {"here": "ready", "away": "failed"})
    assert httpx2.get(f"{server.url}/ready").status_code == 200
