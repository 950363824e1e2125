"""Tasks and kill -9: of a server of ours, which finds its jobs again, and of a host, which finds tasks of others again."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

pytest.importorskip("mcp")

from mcp import Client, MCPError

from callsmith.tools.mcp.tasks import TaskBegun, TaskClient, TasksExtension
from tests.waiting import until

pytestmark = pytest.mark.processes

TOOLS = '''
import asyncio
from pathlib import Path

from callsmith import tool


async def work(name: str) -> str:
    with Path("begun").open("a") as file:
        file.write(name + "\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return f"{name} is ready"


@tool(background=True, side_effects=True)
async def bake(cake: str) -> str:
    """Bakes a cake."""
    return await work(cake)


@tool(background=True)
async def look_up(cake: str) -> str:
    """Looks a cake up."""
    return await work(cake)
'''

Starting = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bakery.py").write_text(TOOLS, "utf-8")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Starting]:
    """Starts a command of ours; the process, and the address that it prints."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
        command = [sys.executable, "-m", "callsmith", *arguments]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started.append(process)
        assert process.stdout
        line = next(line for line in process.stdout if "http://" in line)
        return process, re.search(r"http://[\w.:]+", line)[0]  # type: ignore[index]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def begun(folder: Path) -> list[str]:
    path = folder / "begun"
    return path.read_text().splitlines() if path.exists() else []


def offer(start: Starting, port: str = "0", *more: str) -> "tuple[subprocess.Popen[str], str]":
    process, url = start("mcp", "--tools", "bakery", "--yes", "--http", f"127.0.0.1:{port}", *more)
    return process, f"{url}/mcp"


async def begin(url: str, name: str, cake: str) -> str:
    async with Client(url, extensions=[TasksExtension()]) as client:
        with pytest.raises(TaskBegun) as task:
            await client.call_tool(name, {"cake": cake})
    return task.value.id


async def follow(url: str, name: str, id: str) -> str:
    async with Client(url, extensions=[TasksExtension()]) as client:
        try:
            result = await TaskClient(client, "ours", 0.2).follow(name, id, lambda _: None)
        except MCPError as error:
            return error.message
        return result.content[0].text  # type: ignore[union-attr]


async def test_a_server_that_is_killed_takes_its_tasks_up_again(folder: Path, start: Starting):
    process, url = offer(start, "0", "--store", "jobs.sqlite")
    looked_up, baked = await begin(url, "look_up", "scone"), await begin(url, "bake", "tart")
    await until(lambda: sorted(begun(folder)) == ["scone", "tart"])
    process.kill()
    process.wait()
    _, again = offer(start, url.rpartition(":")[2].partition("/")[0], "--store", "jobs.sqlite")
    assert again == url
    await until(lambda: sorted(begun(folder)) == ["scone", "scone", "tart"], seconds=60)  # what only reads is repeated
    (folder / "go").touch()
    assert await follow(url, "look_up", looked_up) == "scone is ready"
    assert f"the program was stopped while {baked} was running; it may or may not have taken effect" in (
        await follow(url, "bake", baked)
    )


@pytest.mark.parametrize(("protocol", "stop"), [("legacy", signal.SIGKILL), ("auto", signal.SIGKILL), ("auto", signal.SIGTERM)])
def test_a_host_that_is_stopped_finds_the_tasks_of_its_servers_again(
    folder: Path, start: Starting, protocol: str, stop: signal.Signals
):
    _, url = offer(start)
    servers = {"bakery": {"url": url, "protocol": protocol}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")

    def serve() -> "tuple[subprocess.Popen[str], str]":
        options = ("--set", "llm.tools_background=bake", "--store", "store.sqlite", "--mcp-config", "mcp.json")
        return start("serve", "--port", "0", "--model", "scripted:Hello!", *options)

    process, host = serve()
    call = {"arguments": {"cake": "tart"}, "approve": True}
    result = httpx2.post(f"{host}/v1/tools/bake", json=call, timeout=60).json()["result"]
    assert result["code"] == "accepted"
    id = re.search(r"job_\w+", result["content"])[0]  # type: ignore[index]
    wait_for(lambda: begun(folder) == ["tart"])
    wait_for(lambda: noted_tasks(folder / "store.sqlite") == 1)
    process.send_signal(stop)
    process.wait()
    _, host = serve()
    assert httpx2.get(f"{host}/v1/jobs/{id}").json()["status"] == "running"
    (folder / "go").touch()
    wait_for(lambda: httpx2.get(f"{host}/v1/jobs/{id}").json()["status"] != "running", 60)
    job = httpx2.get(f"{host}/v1/jobs/{id}").json()
    assert (job["status"], job["result"]["content"]) == ("done", "tart is ready")
    assert begun(folder) == ["tart"]  # once


def noted_tasks(store: Path) -> int:
    """How many jobs in the store know their task."""
    with closing(sqlite3.connect(store)) as database:
        jobs = database.execute("SELECT data FROM documents WHERE id LIKE 'job_%' AND kind LIKE 'job%'").fetchall()
    return sum(bool(json.loads(data).get("checkpoint")) for (data,) in jobs)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    latest = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < latest, "it did not come"
        time.sleep(0.1)
