"""The default model, the OpenAI client and a real file server: a file is read in one answer, and written only after a word."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.lib.responses_tool_runner import ResponsesToolRunner

from tests.tools.mcp.test_real import NODE, real

pytestmark = [pytest.mark.mcp, pytest.mark.slow, pytest.mark.weights]

MODEL = "qwen2.5-coder-1.5b"
FILES: Any = {"type": "mcp", "server_label": "files", "allowed_tools": ["write_file"]}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`callsmith serve` with a file server, in a process of its own; everything it must remember is in the folder."""
    server = real(NODE / "mcp-server-filesystem")
    entry = {
        "command": server.command,
        "args": [str(folder / "files")],
        "env": dict(server.env),
        "trust": True,
        "allow": ["read_text_file", "write_file"],  # the model is slow to read
    }
    config = {"mcpServers": {"files": entry}}
    (folder / "mcp.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "callsmith", "serve", "--model", MODEL, "--port", "0"]
    command += ["--tool-choice-policy", "required_first_hop", "--mcp-config", str(folder / "mcp.json")]
    command += ["--set", f"server.store={folder / 'store.db'}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        banner = process.stdout.readline()
        assert " at http" in banner, banner
        yield banner.partition(" at ")[2].partition("/v1")[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("The password of the vault is swordfish.\n")
    return tmp_path


def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)


@pytest.mark.req("R201")
def test_a_file_is_read_in_one_seamless_stream(folder: Path) -> None:
    question = f"What is the password in the file {folder}/files/notes.txt?"
    with serving(folder) as url, client(url) as asking:
        stream = asking.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}], stream=True, temperature=0, max_tokens=120
        )
        chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert "swordfish" in text
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["stop"]
    assert not any(choice.delta.tool_calls for chunk in chunks for choice in chunk.choices)


def test_a_file_is_written_after_the_clients_own_runner_has_approved(folder: Path) -> None:
    target = folder / "files" / "hello.txt"
    questions: list[str] = []

    def approve(request: Any) -> bool:
        if not questions:
            assert not target.exists()
        questions.append(request.name)
        return len(questions) == 1  # a small model may want to write it again

    with serving(folder) as url, client(url) as asking:
        runner = ResponsesToolRunner(functions=[])
        params: Any = {
            "model": MODEL,
            "input": f"Write the word hello into the file {target}.",
            "tools": [FILES],
            "temperature": 0,
        }
        runner.run(asking, params, approve_mcp=approve)
    assert questions[0] == "write_file"
    assert "hello" in target.read_text()


def test_a_file_is_written_after_a_word_over_plain_http_and_a_restart_in_between(folder: Path) -> None:
    target = folder / "files" / "hello.txt"
    with serving(folder) as url:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Write the word hello into the file {target}."}],
            "server_tools": ["write_file"],
            "temperature": 0,
        }
        httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=600).raise_for_status()
        (pending,) = httpx2.get(f"{url}/v1/approvals").json()["data"]
        assert (pending["tool"], pending["status"]) == ("write_file", "pending")
    assert not target.exists()
    with serving(folder) as url:
        answer = httpx2.post(f"{url}/v1/approvals/{pending['id']}", json={"approve": True}, timeout=600).raise_for_status().json()
    assert answer["status"] == "done"
    assert answer["result"]["ok"]
    assert "hello" in target.read_text()
