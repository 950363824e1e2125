"""`callsmith serve`: the real command in a process of its own, and how it ends what is under way."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

from callsmith.cli.draining import Draining
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app

ASK = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}


def _heed_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def serving() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """The command, and the address it says it serves at."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "callsmith", "serve", "--port", "0", *arguments]
        # Whoever runs the tests in the background has SIGINT ignored, and a child would inherit that.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_sigint)
        started.append(process)
        assert process.stdout
        first = process.stdout.readline()
        return process, first.partition(" at ")[2].partition("/v1")[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_command_serves_and_ends_quietly_on_a_signal(serving, number: signal.Signals, code: int):
    process, url = serving("--model", "scripted:Hello!", "--name", "parrot")
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK | {"model": "parrot"})
    assert answer.json()["choices"][0]["message"]["content"] == "Hello!"
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    assert process.stderr.read() == ""
    assert f"curl {url}/v1/chat/completions" in process.stdout.read()


def test_tools_given_to_the_command_are_run_by_the_server(serving, tmp_path):
    call = '<tool_call>\n<name>calculate</name>\n<arguments>{"expression": "6 * 7"}</arguments>\n</tool_call>'
    (tmp_path / "replies.jsonl").write_text(json.dumps(call) + "\n" + json.dumps("Done."), "utf-8")
    _, url = serving("--model", f"scripted:{tmp_path / 'replies.jsonl'}", "--tools", "demo")
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK).json()
    assert answer["choices"][0]["message"]["content"] == "Done."
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_port_in_use_is_told_before_anything_slow_is_done(callsmith):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = callsmith("serve", "--model", "scripted:Hi", "--port", str(taken.getsockname()[1]))
    assert told.code == 1
    assert "in use" in told.err
    assert "--port" in told.err


def test_a_host_that_is_not_ours_is_told(callsmith):
    told = callsmith("serve", "--model", "scripted:Hi", "--host", "no.such.host.invalid")
    assert told.code == 1
    assert told.err.startswith("error: cannot listen on no.such.host.invalid")


@asynccontextmanager
async def slow_server() -> AsyncIterator[tuple[Draining, str]]:
    """A server whose model takes for ever to say what it has to say."""
    engine = Scripted(["word " * 10_000], pause=0.01, repeat=True)
    app = Draining(create_app({"scripted": LocalModel(engine, format_named("hermes"), Template(CHATML))}))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield app, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


async def test_a_stream_that_is_ended_ends_with_an_error_frame():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        lines: list[str] = []
        async with client.stream("POST", f"{url}/v1/chat/completions", json=ASK | {"stream": True}) as answer:
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if len(lines) == 5:
                    app.stop()
    last: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    assert last["error"]["message"] == "the server is shutting down"


async def test_an_answer_that_has_not_begun_is_refused_with_503():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        asking = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=ASK))
        await asyncio.sleep(0.2)
        app.stop()
        answer = await asking
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the server is shutting down"


async def test_until_it_is_told_to_stop_it_changes_nothing():
    engine = Scripted(["Hello!"], repeat=True)
    inner = create_app({"scripted": LocalModel(engine, format_named("hermes"), Template(CHATML))})
    for app in (inner, Draining(inner)):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/v1/chat/completions", json=ASK)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello!"
            assert (await client.get("/nowhere")).status_code == 404
