"""Resources and prompts of MCP servers at the command line and in the chat."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from callsmith.cli.inputs.mcp_material import get_prompt, read_resource
from callsmith.core.errors import UsageError
from callsmith.tools.mcp import McpHost
from tests.cli.terminal.emulator import Terminal
from tests.tools.mcp.test_resources import LIBRARY
from tests.tools.mcp.trying import plain

pytestmark = pytest.mark.processes


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"library": {"command": sys.executable, "args": [str(LIBRARY)]}}}), "utf-8")
    return str(path)


def test_resources_and_prompts_are_listed_and_printed(callsmith: Callable[..., Any], config: str):
    listed = callsmith("tools", "resources", "--mcp-config", config)
    assert (listed.code, "note://{day}" in listed.out, "picture://cat" in listed.out) == (0, True, True)
    assert callsmith("tools", "resources", "note://monday", "--mcp-config", config).out == "Nothing on monday.\n"
    prompts = json.loads(callsmith("tools", "prompts", "--json", "--mcp-config", config).out)
    assert [(prompt["name"], len(prompt["arguments"])) for prompt in prompts] == [("review", 2)]
    printed = callsmith("tools", "prompts", "review", "language=Python", "--mcp-config", config)
    assert printed.out == "Review this Python code. Be kind.\n"


def test_what_is_missing_is_told(callsmith: Callable[..., Any], config: str):
    for arguments, why in (
        (("prompts", "review"), "this prompt also needs language: review language=… [style=…]"),
        (("prompts", "review", "colour=red"), "'colour=red' is no argument of this prompt"),
        (("prompts", "revue"), "unknown prompt 'revue'"),
        (("resources", "book://none"), "the MCP server library says"),
        (("resources", "--server", "files"), "unknown MCP server 'files'"),
    ):
        result = callsmith("tools", *arguments, "--mcp-config", config)
        assert (result.code, why in result.err) == (2, True), result.err
    nothing = callsmith("tools", "resources")
    assert (nothing.code, "--mcp-config" in nothing.err) == (2, True)


async def test_of_several_servers_the_one_that_is_meant_is_found_or_asked_for():
    options: dict[str, Any] = {"material": {}, "tools": ["echo"]}
    async with McpHost([plain("one", options=options), plain("two", options=options)]) as host:
        with pytest.raises(UsageError, match=r"several servers have a prompt prompts0-0: which.* one, two"):
            await get_prompt(host, "prompts0-0", ())
        with pytest.raises(UsageError, match=r"which server has x:resources0-0.* one, two"):
            await read_resource(host, "x:resources0-0")
        assert await get_prompt(host, "prompts0-0", (), "two") == "{}"
        assert [item.text for item in await read_resource(host, "x:resources0-0", "two")] == ["part 0"]


def test_in_the_chat_a_prompt_is_said_and_a_resource_goes_along(script: Any, tmp_path: Path, config: str):
    save = tmp_path / "talk.json"
    options = ("--mcp-config", config, "--save", str(save))
    with Terminal("chat", "--model", script("Reviewed.", "Noted."), *options, home=tmp_path, columns=100) as terminal:
        terminal.wait_for_prompt()
        terminal.press("/prompt\r")
        terminal.wait_for("/prompt review language=… [style=…]: Reviews code.")
        terminal.press("/prompt review language=Python 'style=very strict'\r")
        terminal.wait_for("Reviewed.")
        terminal.wait_for_prompt()
        terminal.press("/resource note://today\r")
        terminal.wait_for("note://today (13 characters) goes along with what you say next.")
        terminal.press("What is to do?\r")
        terminal.wait_for("Noted.")
        terminal.wait_for_prompt()
        terminal.press("\x04")
        assert terminal.wait_for_end() == 0
    said = save.read_text("utf-8")
    assert "Review this Python code. Be very strict." in said
    assert r"note://today:\nFeed the cat.\n\nWhat is to do?" in said
