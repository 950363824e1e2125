"""A hostile MCP server: whatever it sends is bounded, the limit and the server are named, and others go on."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.mcp.config import read_servers
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationReply, ElicitationRequest
from callsmith.tools.mcp.transport.messages import MOST_PER_SECOND, MessageBounds
from tests.tools.mcp.test_http import serving
from tests.tools.mcp.trying import call, called, plain, status

SERVER = Path(__file__).with_name("hostile.py")


def hostile(how: str, **config: Any) -> ServerConfig:
    return ServerConfig("hostile", sys.executable, ("-I", "-S", str(SERVER), how), protocol="legacy", **config)


async def notices(how: str, **config: Any) -> tuple[list[str], tuple[str, ...]]:
    """What is offered of the server, and what is said of it."""
    async with McpHost([hostile(how, **config)]) as host:
        return [tool.name for tool in await host.tools()], status(host, "hostile").notices


async def test_of_too_many_tools_the_first_are_offered():
    names, notices_shown = await notices("many tools", max_tools=100)
    assert (names, notices_shown) == (
        [f"t{n}" for n in range(100)],
        ("it lists more than 100 tools (max_tools); the others are not offered",),
    )


async def test_a_list_whose_pages_never_end_is_cut():
    names, notices_shown = await notices("endless pages", max_tools=20)
    assert (len(names), notices_shown) == (20, ("it lists more than 20 tools (max_tools); the others are not offered",))
    names, notices_shown = await notices("empty pages")
    assert (names, notices_shown) == ([], ("its list of tools has more than 200 pages; the others were not read",))


@pytest.mark.parametrize(("how", "name"), [("many properties", "wide"), ("long description", "long")])
async def test_a_definition_that_is_too_large_is_not_looked_at(how: str, name: str):
    names, notices_shown = await notices(how)
    limit = "its definition is larger than 100,000 (max_definition_bytes)"
    assert (names, notices_shown) == (["good"], (f"{name} cannot be offered: {limit}",))


async def test_the_bounds_are_settings_of_the_server():
    entry = {"command": "x", "max_tools": 5, "max_message_bytes": 10, "max_definition_bytes": 7}
    (config,) = read_servers({"mcpServers": {"a": entry}})
    assert (config.max_tools, config.max_message_bytes, config.max_definition_bytes) == (5, 10, 7)
    names, notices_shown = await notices("long description", max_definition_bytes=2_000_000)
    assert (names, notices_shown) == (["long", "good"], ())


async def test_a_message_of_too_many_values_fails_the_server_and_no_other():
    async with McpHost([hostile("many values"), plain("other", options={"tools": ["echo"]})]) as host:
        assert [tool.name for tool in await host.tools()] == ["other_echo"]
        assert "the MCP server hostile sent a message of more than 100,000 values" in status(host, "hostile").error
        assert (await call(host, "other_echo", text="on")).text == "on"


async def test_a_result_that_is_too_long_fails_its_call_alone():
    async with McpHost([hostile("long result")]) as host:
        first, second = await call(host, "good"), await call(host, "good")
        why = "the MCP server hostile sent a message of more than 4,194,304 bytes (max_message_bytes)"
        assert (first.code, first.text) == ("tool_error", f"tool_error: {why}")
        assert (second.text, status(host, "hostile").starts) == (first.text, 1)  # the same process still


async def test_blocks_of_content_are_counted():
    async with McpHost([hostile("many blocks")]) as host:
        assert (await call(host, "good")).text.endswith("x\n(19,000 more blocks of content were left out)")
    async with McpHost([hostile("malformed blocks")]) as host:
        assert (await call(host, "good")).code in ("bad_result", "tool_error")


async def test_a_line_that_never_ends_is_the_end_of_the_server():
    async with McpHost([hostile("endless line", max_message_bytes=100_000)]) as host:
        await host.tools()
        assert (await call(host, "good")).code == "unavailable"


@pytest.mark.parametrize("how", ["logs", "stderr", "other ids", "not utf-8"])
async def test_noise_is_passed_over(how: str):
    async with McpHost([hostile(how)]) as host:
        assert (await call(host, "good")).text == "done"


async def test_reports_of_progress_are_cut_and_still_lead_to_the_result():
    async with McpHost([hostile("progress")]) as host:
        progress, answer = await called(host, "good")
        assert answer.text == "done"
        assert {len(item.text) for item in progress} == {1_000}


async def test_a_server_that_goes_away_half_way_fails_the_call():
    async with McpHost([hostile("half way")]) as host:
        assert (await call(host, "good")).code == "unavailable"


async def test_a_flood_of_questions_reaches_nobody_beyond_a_few():
    questions: list[ElicitationRequest] = []

    async def never(question: ElicitationRequest) -> ElicitationReply:
        questions.append(question)
        await asyncio.Event().wait()
        raise AssertionError

    async with McpHost([hostile("questions")], features=ClientFeatures(ask=never)) as host:
        assert set((await call(host, "good")).text.split()) == {"cancel"}
        assert len(questions) == 8


async def test_who_sends_too_many_messages_is_read_more_slowly():
    loop, bounds = asyncio.get_running_loop(), MessageBounds("hostile", 100)
    began = int(loop.time())
    for _ in range(2 * MOST_PER_SECOND + 2):
        await bounds.pace()
    assert int(loop.time()) > began  # some of them waited for the next second


@pytest.mark.parametrize("how", ["json", "events", "gzip"])
async def test_a_server_behind_a_url_is_bounded_too(how: str):
    async def answer(request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if "id" not in message:
            return Response(status_code=202 if message else 405)
        match message["method"]:
            case "initialize":
                info = {"name": "x", "version": "1"}
                able = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                return _json(message["id"], able)
            case "tools/list":
                return _json(message["id"], {"tools": [{"name": "good", "inputSchema": {"type": "object"}}]})
            case _:
                return _json(message["id"], {"content": [{"type": "text", "text": "x" * 1_000_000}]}, how)

    app = Starlette(routes=[Route("/mcp", answer, methods=["POST", "GET", "DELETE"])])
    with serving(app) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        config = ServerConfig("hostile", url=url, protocol="legacy", max_message_bytes=100_000, timeout=20)
        async with McpHost([config]) as host:
            refused = await call(host, "good")
            assert not refused.ok
            assert len(refused.text) < 1_000


def _json(id: int, result: Any, how: str = "json") -> Response:
    import gzip

    body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
    if how == "events":
        return Response(b"data: " + body + b"\n\n", media_type="text/event-stream")
    if how == "gzip":
        return Response(gzip.compress(body), media_type="application/json", headers={"content-encoding": "gzip"})
    return Response(body, media_type="application/json")


async def test_the_id_of_a_message_that_is_too_long_is_found_where_it_is_written_first():
    bounds = MessageBounds("hostile", 100)
    refused: Any = bounds.read(json.dumps({"jsonrpc": "2.0", "id": 7, "result": "x" * 200}).encode())
    assert refused.message.id == 7
    nameless = bounds.read(json.dumps({"result": "x" * 300, "id": 7}).encode())
    assert isinstance(nameless, Exception)
    assert isinstance(bounds.read(b"[" * 90), ValueError)
