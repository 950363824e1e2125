"""A real vLLM server with the plug-in, and a model that writes at random: its calls are valid because of the grammar."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.schema import validate
from tests.adapters.tiny_model import write_model

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")
import aiohttp

pytestmark = pytest.mark.vllm

STARTS_WITHIN = 900  # seconds, on a busy machine
QUESTIONS = 100
AT_ONCE = 16
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", "Rome", "Quito"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "note": {"type": "string", "maxLength": 8},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TIME = {
    "type": "object",
    "properties": {"zone": {"type": "string", "minLength": 2, "maxLength": 6}, "utc": {"type": "boolean"}},
    "required": ["zone"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "get_time": TIME}


def tools(*, strict: bool = False) -> list[Any]:
    functions = [{"name": name, "parameters": schema, "strict": strict} for name, schema in SCHEMAS.items()]
    return [{"type": "function", "function": function} for function in functions]


class Server:
    """A running vLLM server. `call_token` begins a call."""

    def __init__(self, url: str, call_token: int) -> None:
        self.url = url
        self.call_token = call_token

    async def ask(self, client: aiohttp.ClientSession, **fields: Any) -> dict[str, Any]:
        """The message of an answer and its finish reason, whether it was streamed or not."""
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "What is the weather?"}],
            "max_tokens": 400,
            "temperature": 1.0,
            "parallel_tool_calls": False,
            "chat_template_kwargs": {"enable_thinking": False},
            **fields,
        }
        async with client.post(f"{self.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            if not body.get("stream"):
                choice = (await response.json())["choices"][0]
                return {**_message(choice["message"]), "finish": choice["finish_reason"]}
            return _assemble([json.loads(line[6:]) async for line in response.content if line.startswith(b"data: {")])


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    return {"content": message["content"] or "", "reasoning": message.get("reasoning") or "", "calls": calls}


def _assemble(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    content, reasoning, finish, calls = "", "", None, {}
    for chunk in chunks:
        choice = chunk["choices"][0]
        finish = choice.get("finish_reason") or finish
        content += choice["delta"].get("content") or ""
        reasoning += choice["delta"].get("reasoning") or ""
        for call in choice["delta"].get("tool_calls") or []:
            known = calls.setdefault(call["index"], ["", ""])
            known[0] += call["function"].get("name") or ""
            known[1] += call["function"].get("arguments") or ""
    return {"content": content, "reasoning": reasoning, "calls": [tuple(call) for call in calls.values()], "finish": finish}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`vllm serve`, with no more on its command line than a user types."""
    from tokenizers import Tokenizer

    from callsmith.models.weights.fetch import fetch

    folder = tmp_path_factory.mktemp("tiny")
    write_model(fetch("smollm2-135m"), folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / "server.log"
    alone = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    command = [Path(sys.executable).parent / "vllm", "serve", folder, "--served-model-name", "tiny", "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024"]
    command += ["--max-num-seqs", str(AT_ONCE), "--enable-auto-tool-choice", "--tool-call-parser", "callsmith"]
    command += ["--reasoning-parser", "callsmith"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **alone}, cwd=folder)
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", log)
            token = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<tool_call>")
            yield Server(f"http://127.0.0.1:{port}", token)
        finally:
            process.terminate()
            process.wait(60)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urlopen(url, timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(1)
    pytest.fail(f"vLLM did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")


def check(answer: dict[str, Any], *names: str) -> None:
    """The answer is one valid call of one of these tools, and nothing else."""
    assert answer["finish"] in ("tool_calls", "stop"), answer
    assert answer["content"] == answer["reasoning"] == "", answer
    ((name, arguments),) = answer["calls"]
    assert name in names
    assert validate(SCHEMAS[name], json.loads(arguments)) == [], answer


async def ask_all(server: Server, questions: list[dict[str, Any]], at_once: int = AT_ONCE) -> list[dict[str, Any]]:
    limit = asyncio.Semaphore(at_once)
    timeout = aiohttp.ClientTimeout(total=900)

    async with aiohttp.ClientSession(timeout=timeout) as client:

        async def ask(fields: dict[str, Any]) -> dict[str, Any]:
            async with limit:
                return await server.ask(client, **fields)

        return await asyncio.gather(*(ask(fields) for fields in questions))


def seeded(count: int = QUESTIONS, **fields: Any) -> list[dict[str, Any]]:
    """The same question with other seeds; every second answer is streamed."""
    return [{"seed": seed, "stream": seed % 2 == 0, **fields} for seed in range(count)]


async def test_every_required_call_is_valid(server: Server):
    answers = await ask_all(server, seeded(tools=tools(), tool_choice="required"))
    for answer in answers:
        check(answer, *SCHEMAS)
    assert {name for answer in answers for name, _ in answer["calls"]} == set(SCHEMAS)


async def test_every_call_of_the_one_tool_that_is_named_is_valid(server: Server):
    choice = {"type": "function", "function": {"name": "get_time"}}
    for answer in await ask_all(server, seeded(tools=tools(), tool_choice=choice)):
        check(answer, "get_time")


async def test_every_call_of_a_strict_tool_is_valid(server: Server):
    """The model is pushed to begin a call, which it would not do by itself; what follows the marker is its own choice."""
    push = {"logit_bias": {str(server.call_token): 100}}
    for answer in await ask_all(server, seeded(tools=tools(strict=True), **push)):
        check(answer, *SCHEMAS)


async def test_a_streamed_answer_is_the_same_as_a_whole_one(server: Server):
    for fields in (
        {"tools": tools(), "tool_choice": "required", "parallel_tool_calls": True, "max_tokens": 150},
        {"tools": tools(), "max_tokens": 30},
        {"tools": tools(), "max_tokens": 40, "chat_template_kwargs": {"enable_thinking": True}},
        {"max_tokens": 30},
    ):
        questions = [{"seed": seed, "stream": stream, **fields} for seed in range(4) for stream in (False, True)]
        answers = await ask_all(server, questions, at_once=1)
        assert answers[0::2] == answers[1::2]


async def test_a_schema_that_cannot_be_enforced_is_refused(server: Server):
    parameters = {"type": "object", "properties": {"at": {"type": "place"}}}
    broken = [{"type": "function", "function": {"name": "go", "parameters": parameters}}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Go."}], "tools": broken, "tool_choice": "required"}
    async with aiohttp.ClientSession() as client, client.post(f"{server.url}/v1/chat/completions", json=body) as response:
        assert response.status == 400
        assert "place" in await response.text()
