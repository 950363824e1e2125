"""`callsmith mcp`: the real command, asked by the SDK's client over standard input and output and over HTTP."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

import httpx2
import pytest

pytest.importorskip("mcp")

import mcp_types as types
from mcp import Client, StdioServerParameters

from callsmith.core.ports import Context
from callsmith.core.values import Call
from callsmith.tools.mcp import McpHost, ServerConfig
from tests.tools.contract import outcome

pytestmark = pytest.mark.processes

TOOLS = '''
import subprocess
import sys

from callsmith import ToolProgress, tool

print("a module that talks when it is imported")
subprocess.run([sys.executable, "-c", "print('and a child of it')"])


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    print("a tool that talks")
    subprocess.run([sys.executable, "-c", "print('and a child of that')"])
    return a + b


@tool(side_effects=True)
def pay(euros: int) -> str:
    """Pays."""
    return f"paid {euros}"


@tool
async def count(to: int):
    """Counts."""
    for number in range(1, to + 1):
        yield ToolProgress("", str(number), number, to)
    yield "counted"
'''
COMMAND = [sys.executable, "-m", "callsmith", "mcp", "--tools", "offered_tools"]
ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "offered_tools.py").write_text(TOOLS, "utf-8")
    return tmp_path


@contextmanager
def over_http(folder: Path) -> Iterator[str]:
    """The address of a server."""
    command = [*COMMAND, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            output = next(line for line in process.stdout if "/mcp" in line)
            yield re.search(r"http://\S+/mcp", output)[0]  # type: ignore[index]
        finally:
            process.terminate()


async def yes(context: object, params: object) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"run": True})


async def use(client: Client, version: str) -> None:
    """What a client does with a server."""
    assert client.protocol_version == version
    assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "pay", "count"]
    output: list[float] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        output.append(progress)

    async def said(name: str, **arguments: int) -> str:
        result = await client.call_tool(name, arguments, progress_callback=watch)
        return result.content[0].text  # type: ignore[union-attr]

    assert await asyncio.gather(said("add", a=1, b=2), said("add", a=3, b=4)) == ["3", "7"]
    assert (await said("count", to=3), output) == ("counted", [1, 2, 3])
    assert await said("pay", euros=5) == "paid 5"


@pytest.mark.parametrize("mode", ERAS)
async def test_it_serves_over_standard_input_and_output(folder: Path, mode: str):
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], cwd=folder)
    async with Client(server, mode=mode, elicitation_callback=yes, read_timeout_seconds=60) as client:
        await use(client, ERAS[mode])


async def test_it_serves_over_http(folder: Path):
    with over_http(folder) as url:
        for mode, version in ERAS.items():
            async with Client(url, mode=mode, elicitation_callback=yes, read_timeout_seconds=60) as client:
                await use(client, version)


async def test_pages_of_others_cannot_use_it_over_http(folder: Path):
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    takes = {"accept": "application/json, text/event-stream"}
    with over_http(folder) as url:
        async with httpx2.AsyncClient(headers=takes) as page:
            for headers, status in (
                ({"host": "evil.example"}, 421),
                ({"origin": "https://evil.example"}, 403),
                ({"origin": "null"}, 403),
                ({"content-type": "text/plain"}, 415),
            ):
                assert (await page.post(url, json=listing, headers=headers)).status_code == status


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_it_does_not_serve_others_over_http_unless_insisted_on(callsmith, address: str):
    result = callsmith("mcp", "--http", address)
    assert (result.code, "--open" in result.err) == (2, True)


def test_nothing_but_the_protocol_is_written_to_standard_output(folder: Path):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}},
    ]
    with subprocess.Popen(
        COMMAND, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("".join(json.dumps(message) + "\n" for message in sent))
        process.stdin.flush()
        answers = [process.stdout.readline() for _ in range(2)]
        process.stdin.close()  # that is how a client leaves
        answers += process.stdout.readlines()
        talk = process.stderr.read()
        assert process.wait(30) == 0
    assert [json.loads(line)["id"] for line in answers] == [1, 2]
    assert json.loads(answers[1])["result"]["content"][0]["text"] == "3"
    for words in ("a module that talks", "and a child of it", "a tool that talks", "and a child of that"):
        assert words in talk


async def test_our_own_host_can_use_it(folder: Path):
    async with McpHost([ServerConfig("ours", COMMAND[0], tuple(COMMAND[1:]), cwd=str(folder), trust=True)]) as host:
        assert {tool.name: tool.side_effects for tool in await host.tools()} == {"add": False, "pay": True, "count": False}
        progress, result = await outcome(host.call(Call("count", {"to": 2}, "c1"), Context()))  # type: ignore[arg-type]
    assert ([item.current for item in progress], result.content) == ([1, 2], "counted")


@pytest.mark.parametrize("address", ["8000x", "localhost", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_told(callsmith, address: str):
    result = callsmith("mcp", "--http", address)
    assert (result.code, "expected HOST:PORT" in result.err) == (2, True)


def test_without_the_extra_it_is_told_how_to_get_it(callsmith, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callsmith.cli.mcp.find_spec", lambda name: None if name == "mcp" else util.find_spec(name))
    result = callsmith("mcp")
    assert (result.code, "pip install 'callsmith[mcp]'" in result.err) == (2, True)


def test_it_explains_itself(callsmith):
    result = callsmith("mcp", "--help")
    assert (result.code, "--http" in result.out) == (0, True)
