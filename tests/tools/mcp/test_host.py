"""The host: tools of several servers under names that fit, calls and what comes back, and the toolset's contract in both eras."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import MissingExtra, UsageError
from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.mcp import host as host_module
from tests.tools.contract import ToolsetContract, outcome
from tests.tools.mcp.trying import call, called, plain, status
from tests.waiting import until

OLD, NEW = {"modern": False}, {"modern": True}


class TestTheHostOverAnOlderServer(ToolsetContract):
    working = Call("echo", {"text": "hello"}, "c1")

    @pytest.fixture
    async def toolset(self) -> AsyncIterator[Toolset]:
        async with McpHost([plain(options=OLD)]) as host:
            yield host


class TestTheHostOverANewerServer(ToolsetContract):
    working = Call("progress", {}, "c1")

    @pytest.fixture
    async def toolset(self) -> AsyncIterator[Toolset]:
        async with McpHost([plain(options=NEW)]) as host:
            yield host


@pytest.mark.parametrize(("options", "version"), [(OLD, "2025-11-25"), (NEW, "2026-07-28")])
async def test_the_era_is_found_out(options: dict[str, Any], version: str):
    async with McpHost([plain(options=options)]) as host:
        await host.tools()
        assert (status(host).state, status(host).protocol) == ("ready", version)


async def test_a_version_can_be_asked_for():
    async with McpHost([plain("a", options=OLD, protocol="2025-06-18"), plain("b", options=NEW, protocol="2026-07-28")]) as host:
        await host.tools()
        assert [server_status.protocol for server_status in host.status()] == ["2025-11-25", "2026-07-28"]


async def test_300_tools_come_in_pages():
    async with McpHost([plain(options={"more": 300, "page": 7, "tools": []})]) as host:
        assert [tool.name for tool in await host.tools()] == [f"more_{number}" for number in range(300)]


@pytest.mark.req("R155")
@pytest.mark.parametrize("prefix", ["auto", "always"])
async def test_with_several_servers_tools_have_the_name_of_their_server_as_a_prefix(prefix: Any):
    a = plain("a", options={"tools": ["echo", "pid"]}, prefix=prefix)
    b = plain("b", options={"tools": ["echo", "pid", "sleep"]}, prefix=prefix)
    async with McpHost([a, b]) as host:
        tools = await host.tools()
        assert [tool.name for tool in tools] == ["a_echo", "a_pid", "b_echo", "b_pid", "b_sleep"]
        assert {tool.source for tool in tools} == {"mcp:a", "mcp:b"}
        assert tools[0].original == "echo"
        pids = {(await call(host, f"{name}_pid")).text for name in "ab"}
        assert len(pids) == 2
        assert (await call(host, "a_echo", text="x")).name == "a_echo"


@pytest.mark.parametrize(("prefix", "name"), [("auto", "echo"), ("always", "a_echo"), ("never", "echo")])
async def test_the_tools_of_one_server_have_a_prefix_only_where_it_is_asked_for(prefix: Any, name: str):
    async with McpHost([plain("a", options={"tools": ["echo"]}, prefix=prefix)]) as host:
        assert [tool.name for tool in await host.tools()] == [name]


async def test_without_prefixes_the_first_of_two_tools_of_one_name_is_shown():
    a = plain("a", options={"tools": ["echo"]}, prefix="never")
    b = plain("b", options={"tools": ["pid"]}, prefix="never")
    async with McpHost([a, b]) as host:
        assert [tool.name for tool in await host.tools()] == ["echo", "pid"]
    async with McpHost([a, plain("b", options={"tools": ["echo"]}, prefix="never")]) as host:
        assert [(tool.name, tool.source) for tool in await host.tools()] == [("echo", "mcp:a")]
        (notice,) = status(host, "b").notices
        assert notice.startswith("echo: a tool of mcp:a is called echo already")


async def test_names_stay_as_they_are_when_another_server_comes_up_later(tmp_path: Path):
    late = {"tools": ["pid"], "fail_once": str(tmp_path / "tried")}
    async with McpHost([plain("a", options={"tools": ["pid"]}), plain("b", options=late)]) as host:
        assert [tool.name for tool in await host.tools()] == ["a_pid"]
        await until(lambda: status(host, "b").state == "ready")
        assert [tool.name for tool in await host.tools()] == ["a_pid", "b_pid"]


async def test_names_are_made_to_fit_every_api():
    odd = ["rag.query", "x" * 100]
    async with McpHost([plain("my.server", options={"tools": odd}, prefix="always")]) as host:
        names = [tool.name for tool in await host.tools()]
        assert names[0] == "my_server_rag_query"
        assert len(names[1]) == 64
        for name in names:
            assert (await call(host, name, text="x")).ok


async def test_tools_can_be_left_out():
    async with McpHost([plain(options={"tools": ["echo", "grow", "pid"]}, allow=("*o*",), deny=("gro*",))]) as host:
        assert [tool.name for tool in await host.tools()] == ["echo"]
        for left_out in ("grow", "pid"):  # one is denied, the other not allowed
            assert (await call(host, left_out)).code == "bad_request"


async def test_a_tool_that_runs_only_as_a_task_is_not_offered_and_that_is_said():
    async with McpHost([plain(options={"tools": ["echo", "task_only"]})]) as host:
        assert [tool.name for tool in await host.tools()] == ["echo"]
        assert status(host).notices == (
            "task_only cannot be offered: it runs only as a task, and its server does not say that it has tasks",
        )


@pytest.mark.parametrize("options", [OLD, NEW], ids=["older", "newer"])
async def test_a_malformed_tool_is_left_out_and_costs_none_of_the_others(options: dict[str, Any]):
    async with McpHost([plain(options={"tools": ["echo", "malformed", "pid"], "page": 2, **options})]) as host:
        assert [tool.name for tool in await host.tools()] == ["echo", "pid"]
        assert status(host).notices == ("malformed cannot be offered: inputSchema.type: Input should be 'object'",)
        assert (await call(host, "malformed")).code == "bad_request"
        assert (await call(host, "echo", text="x")).ok


@pytest.mark.parametrize(("trust", "expected"), [(False, [True, True]), (True, [False, False])])
async def test_what_a_server_says_of_its_tools_is_believed_only_where_it_is_trusted(trust: bool, expected: list[bool]):
    async with McpHost([plain(options={"tools": ["echo", "pid"]}, trust=trust)]) as host:
        assert [tool.side_effects for tool in await host.tools()] == expected


async def test_a_tool_has_the_timeout_of_its_server():
    async with McpHost([plain(options={"tools": ["echo"]}, timeout=7)]) as host:
        assert [tool.timeout for tool in await host.tools()] == [7]


async def test_a_call_before_the_first_list_waits_for_the_servers():
    async with McpHost([plain()]) as host:
        assert (await call(host, "echo", text="early")).content == "early"


async def test_the_servers_are_started_when_they_are_first_needed():
    host = McpHost([plain()])
    assert status(host).state == "configured"
    try:
        assert (await call(host, "echo", text="x")).ok
    finally:
        await host.close()


@pytest.mark.parametrize("options", [OLD, NEW])
async def test_progress_is_told(options: dict[str, Any]):
    async with McpHost([plain(options=options)]) as host:
        progress, result = await called(host, "progress")
        assert progress == [ToolProgress("c1", f"step {step}", step, 3) for step in (1, 2, 3)]
        assert result.content == "done"


async def test_what_is_no_text_is_described():
    async with McpHost([plain()]) as host:
        assert (await call(host, "many_things")).text.splitlines() == [
            "look:",
            "[image, image/png, 9 bytes]",
            "[audio, audio/wav, 9 bytes]",
            "[resource a.txt: file:///a.txt]",
            "[resource file:///b.txt]",
            "inside b",
            "[resource file:///c.bin, application/zip, 9 bytes]",
        ]


async def test_structured_content_is_the_result_where_there_is_no_text():
    async with McpHost([plain()]) as host:
        (tool,) = [tool for tool in await host.tools() if tool.name == "structured"]
        assert tool.output is not None and tool.output["required"] == ["result"]
        assert (await call(host, "structured")).content == {"result": 3}


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("fails", "tool_error", "no such file"),
        ("errs", "tool_error", "something is wrong with the server"),
        ("wrong_structure", "bad_result", "three"),
        ("nonsense", "bad_result", "content"),
    ],
)
@pytest.mark.parametrize("options", [OLD, NEW])
async def test_a_call_that_goes_wrong_is_a_result_that_says_so_and_the_server_goes_on(
    options: dict[str, Any], name: str, code: str, words: str
):
    async with McpHost([plain(options=options)]) as host:
        result = await call(host, name)
        assert (result.ok, result.code) == (False, code)
        assert words in result.text
        assert (await call(host, "echo", text="x")).ok
        assert status(host).starts == 1


async def test_arguments_arrive_as_they_are():
    arguments = {"text": 'quote " and \\ and é and 日本 and \u2028', "deep": {"a": [1, 2.5, None, True]}}
    async with McpHost([plain(options={"tools": ["echo"]})]) as host:
        _, result = await outcome(host.call(Call("echo", {"text": json.dumps(arguments)}, "c1"), Context()))  # type: ignore[arg-type]
        assert json.loads(result.text) == arguments


async def test_a_server_gets_the_environment_it_is_given_and_little_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_SECRET", "hush")
    code = "import os, sys; sys.stderr.write(repr(dict(os.environ)))"
    async with McpHost([ServerConfig("plain", sys.executable, ("-c", code), {"GIVEN": "yes"})]) as host:
        assert await host.tools() == []
        assert "'GIVEN': 'yes'" in status(host).error
        assert "hush" not in status(host).error


def test_without_the_sdk_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"callsmith\[mcp\]"):
        McpHost([plain()])
    McpHost([])


def test_two_servers_of_one_name_are_an_error():
    with pytest.raises(UsageError, match="two MCP servers are called 'plain'"):
        McpHost([plain(), plain()])
