"""Resources and prompts of MCP servers: a real one made with the SDK, and one that behaves badly."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from callsmith.core.errors import Unavailable, UnknownName, UsageError
from callsmith.core.values import Call, Message
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.mcp.resources import PromptArgument
from callsmith.tools.wrap import Confirmed
from tests.fakes import FakeModel, calls, everything, says
from tests.tools.mcp.trying import call, plain, status

pytestmark = pytest.mark.processes

READ = Call("read_resource", {"uri": "note://today"}, "c2")
KINDS = [("plain", "list", "s"), ("plain", "read", ""), ("own", "list", "s"), ("own", "read", "")]
LIBRARY = Path(__file__).with_name("library.py")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, str(LIBRARY), str(port)], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.fixture(params=["stdio", "http", "http, 2025-11-25"])
def library(request: pytest.FixtureRequest) -> ServerConfig:
    if request.param == "stdio":
        return ServerConfig("library", sys.executable, (str(LIBRARY),), resources=True, start_timeout=60)
    protocol = "auto" if request.param == "http" else "legacy"
    return ServerConfig("library", url=request.getfixturevalue("url"), resources=True, protocol=protocol)


async def test_resources_are_listed_and_read_and_prompts_are_got(library: ServerConfig):
    async with McpHost([library]) as host:
        resources, notices = await host.resources("library")
        assert {(item.uri, item.mime_type, item.is_template) for item in resources} == {
            ("note://today", "text/plain", False),
            ("picture://cat", "image/png", False),
            ("note://{day}", "text/plain", True),
        }
        assert not notices
        assert [item.text for item in await host.read_resource("library", "note://today")] == ["Feed the cat."]
        assert [item.described for item in await host.read_resource("library", "note://monday")] == ["Nothing on monday."]
        (picture,) = await host.read_resource("library", "picture://cat")
        assert (picture.blob, picture.described) == ("iVBORw==", "[resource picture://cat, image/png, 6 bytes]")
        (prompt,), _ = await host.prompts("library")
        assert (prompt.name, prompt.description) == ("review", "Reviews code.")
        assert prompt.arguments == (PromptArgument("language", required=True), PromptArgument("style"))
        assert await host.prompt("library", "review", {"language": "Python"}) == (
            Message.user("Review this Python code. Be kind."),
        )
        with pytest.raises(UsageError, match="the MCP server library says: "):
            await host.read_resource("library", "book://none")
        with pytest.raises((UsageError, Unavailable), match="the MCP server library says: "):
            await host.prompt("library", "nothing")
        with pytest.raises(UnknownName, match="known: library"):
            await host.resources("files")


async def test_the_model_lists_and_reads_them_where_the_operator_says_so(library: ServerConfig):
    model = FakeModel(calls(Call("list_resources", {"query": "TODAY"}, "c1")), calls(READ), says("Feed the cat."))
    async with McpHost([library]) as host:
        events = await everything(model, host)
        assert says("Feed the cat.")[0] in events
        listed, read = [message.content for message in model.asked[-1].messages if message.role == "tool"]
        assert [item["uri"] for item in json.loads(listed)] == ["note://today"]
        assert read == "Feed the cat."
        assert all(tool.side_effects for tool in await host.tools() if tool.name.endswith("resource"))  # it is not trusted
    async with McpHost([ServerConfig("plain", library.command, library.args, url=library.url)]) as host:
        assert not [tool.name for tool in await host.tools() if "resource" in tool.name]


async def test_a_person_is_asked_about_resources_of_a_server_that_is_not_trusted():
    material: dict[str, Any] = {"material": {}, "tools": ["echo"]}
    async with McpHost(
        [plain(options=material, resources=True), plain("own", options=material, resources=True, trust=True)]
    ) as host:
        names = [tool.name for tool in await host.tools()]
        assert names == ["plain_echo", "own_echo", *(f"{name}_{kind}_resource{s}" for name, kind, s in KINDS)]
        asked = await everything(
            FakeModel(calls(Call("plain_read_resource", {"uri": "x:1"}, "c1"))), Confirmed(host, host.policy)
        )
        assert "ConfirmationNeeded" in [type(event).__name__ for event in asked]
        assert (await call(host, "own_read_resource", uri="x:1")).text == "part 0"


async def test_a_tool_of_the_server_s_own_goes_first():
    options = {"material": {}, "tools": ["read_resource"]}
    async with McpHost([plain(options=options, resources=True)]) as host:
        assert [tool.name for tool in await host.tools()] == ["read_resource", "list_resources"]
        assert (await call(host, "read_resource", text="mine")).text == "mine"
        assert [notice for notice in status(host).notices if notice.startswith("read_resource: another tool")]


LISTS = {
    "endless pages": ({"pages": 10**9}, 200, "has more than 200 pages; the others were not read"),
    "too many on a page": ({"each": 5_000}, 1_000, "it lists more than 1,000 {}; the others are not offered"),
    "too many in all": ({"each": 600, "pages": 10**9}, 1_000, "it lists more than 1,000 {}; the others are not offered"),
    "malformed ones": ({"also": [{"title": "nameless"}, 5]}, 1, "an entry without a name cannot be offered"),
    "a huge one": ({"also": [{"name": "huge", "uri": "x:y", "description": "x" * 2_000}]}, 1, "huge cannot be offered"),
}


@pytest.mark.parametrize("modern", [False, True], ids=["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("kind", LISTS)
async def test_lists_of_a_hostile_server_are_bounded_and_it_is_told(modern: bool, kind: str):
    material, many, why = LISTS[kind]
    options = {"material": material, "modern": modern, "tools": ["echo"]}
    async with McpHost([plain(options=options, max_definition_bytes=1_000)]) as host:
        prompts, notices = await host.prompts("plain")
        assert len(prompts) == many
        assert any(why.format("prompts") in notice for notice in notices), notices
        resources, notices = await host.resources("plain")
        assert len(resources) == 2 * many
        assert any(why.format("resources") in notice for notice in notices), notices
        assert not status(host).notices  # those are about tools


async def test_what_is_read_is_bounded_and_a_server_that_says_nothing_is_not_waited_for():
    async with McpHost([plain(options={"material": {"each": 5_000}})]) as host:
        assert len(await host.read_resource("plain", "x:1")) == 1_000
        assert len(await host.prompt("plain", "any")) == 1_000
    async with McpHost([plain(options={"material": {"hang": True}}, timeout=0.5)]) as host:
        async with asyncio.timeout(20):
            with pytest.raises(Unavailable, match=r"did not answer within 0\.5 seconds"):
                await host.resources("plain")
    async with McpHost([plain()]) as host:  # it has none
        assert await host.resources("plain") == ([], [])
        assert await host.prompts("plain") == ([], [])
        with pytest.raises(UsageError, match="no method resources/read"):
            await host.read_resource("plain", "x:1")
