"""Servers that answer in their own way, and hosts that are used from one event loop after another."""

import sys
from pathlib import Path
from typing import Any

import pytest

from callsmith import run_sync
from callsmith.core.values import Call, Result
from callsmith.runtime.loop import run
from callsmith.tools.mcp import McpHost, ServerConfig
from tests.fakes import ASKED, FakeModel, calls, everything, finished, says

SERVER = """
import json, sys
answer, page = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    result = {
        "initialize": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}
        },
        "tools/list": {"tools": [tool], **page},
    }.get(asked["method"])
    if asked["method"] == "tools/list" and "cursor" in (asked.get("params") or {}):
        reply = {"error": {"code": -32602, "message": "Invalid cursor"}}
    else:
        reply = answer if asked["method"] == "tools/call" else {"result": result or {}}
    with open(sys.argv[3], "a") as noted:
        print(asked["method"], file=noted)
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
"""
HI = '{"result": {"content": [{"type": "text", "text": "hi"}]}}'


def host(tmp_path: Path, answer: str, page: str = "{}") -> McpHost:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    arguments = (str(file), answer, page, str(tmp_path / "asked"))
    return McpHost([ServerConfig("s", sys.executable, arguments, trust=True, timeout=5, protocol="legacy")])


def asker() -> FakeModel:
    return FakeModel(calls(Call("echo", {}, "c1")), says("done"))


async def result(tools: Any) -> Result:
    return finished(await everything(asker(), tools))[0]


def tool_text(ended: Any) -> str:
    return next(message.content for message in ended.messages if message.role == "tool")


def test_a_host_serves_one_event_loop_after_another(tmp_path: Path):
    tools = host(tmp_path, HI)
    assert [tool_text(run_sync(asker(), tools, "go")) for _ in range(3)] == ["hi", "hi", "hi"]


async def test_a_host_that_runs_in_another_loop_says_so(tmp_path: Path):
    async with host(tmp_path, HI) as tools:
        await tools.tools()

        def nested() -> str:
            """Ask."""
            return tool_text(run_sync(asker(), tools, "go"))

        model = FakeModel(calls(Call("nested", {}, "c1")), says("done"))
        events = [event async for event in run(model, [nested], ASKED)]
        assert "another event loop" in finished(events)[0].text


async def test_an_error_with_the_code_of_a_lost_connection_is_an_error(tmp_path: Path):
    async with host(tmp_path, '{"error": {"code": -32000, "message": "quota exceeded, come back at nine"}}') as tools:
        answered = await result(tools)
    assert (answered.code, answered.text) == ("tool_error", "tool_error: quota exceeded, come back at nine")
    assert (tmp_path / "asked").read_text().count("tools/call") == 1


async def test_structured_content_needs_no_other_content(tmp_path: Path):
    async with host(tmp_path, '{"result": {"structuredContent": {"degrees": 20}}}') as tools:
        assert (await result(tools)).content == {"degrees": 20}


@pytest.mark.parametrize("page", ['{"nextCursor": ""}', '{"nextCursor": null}'])
async def test_an_empty_cursor_is_the_end_of_a_list(tmp_path: Path, page: str):
    async with host(tmp_path, HI, page) as tools:
        assert (await result(tools)).content == "hi"
        assert not tools.status()[0].notices and not tools.status()[0].error
