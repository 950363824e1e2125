"""The MCP connector of the real Anthropic client, on a real socket: tools of servers run here, and the answer tells of it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic, beta_async_tool

from callsmith.core.ports import Toolset
from callsmith.engines.scripted import Scripted
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.runtime.execute import Limits
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.wrap import Filtered
from tests.files_tools import Files
from tests.journeys.scripts import HERMES, HI
from tests.journeys.test_anthropic_sdk import written
from tests.serving import served
from tests.tools.mcp import trying
from tests.tools.mcp.test_http import serving, small_server

BETAS = ["mcp-client-2025-11-20"]
FILES: Any = {"type": "url", "name": "files", "url": "mcp:files"}
TOOLSET: Any = {"type": "mcp_toolset", "mcp_server_name": "files"}
BOTH: Any = {"mcp_servers": [FILES], "tools": [TOOLSET]}
READ = ("files_read", {"path": "a"})
LOST = ("files_read", {"path": "東京"})
NOTE: Any = {"name": "note", "description": "Note.", "input_schema": {"type": "object"}}


@asynccontextmanager
async def asked(
    *replies: str, tools: Toolset | None = None, mcp: McpHost | None = None, **settings: Any
) -> AsyncIterator[tuple[Scripted, AsyncAnthropic]]:
    """A model that says these things, again and again, on a socket, and a client."""
    engine = Scripted(replies, chunk=4, repeat=True)
    own = tools if tools or mcp else Files(a="Hello 東京 🐈", b="x" * 50_000)
    app = create_app({"m": LocalModel(engine, HERMES, Template(CHATML))}, tools=own, mcp=mcp, settings=Settings(**settings))
    async with served(app) as url, AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield engine, client


async def both(client: AsyncAnthropic, **more: Any) -> list[Any]:
    """The answer whole, and put together by the streaming helper."""
    request: Any = {"model": "m", "max_tokens": 1000, "messages": HI, "betas": BETAS, **BOTH, **more}
    whole = await client.beta.messages.create(**request)
    async with client.beta.messages.stream(**request) as stream:
        return [whole, await stream.get_final_message()]


def shown(message: Any) -> list[Any]:
    """What a message tells, in order; ids only where they tie something together."""
    output: list[Any] = []
    uses: dict[str, int] = {}
    for block in message.content:
        match block.type:
            case "text":
                output.append(block.text)
            case "mcp_tool_use":
                uses[block.id] = len(uses)
                output.append((block.server_name, block.name, block.input))
            case "mcp_tool_result":
                output.append((uses[block.tool_use_id], block.is_error, "".join(item.text for item in block.content)))
            case other:
                output.append((other, getattr(block, "name", ""), getattr(block, "input", "")))
    return output


@pytest.mark.req("R121")
async def test_tools_of_a_configured_server_run_and_the_answer_tells_what_they_did() -> None:
    first, second = written(READ, LOST, said="Let me see."), written(READ, said="Once more.")
    async with asked(first, second, "It says hello.") as (_, client):
        for message in await both(client):
            read = ("files", "read", {"path": "a"})
            assert shown(message)[:3] == ["Let me see.", read, ("files", "read", {"path": "東京"})]
            assert sorted(shown(message)[3:5]) == [(0, False, "Hello 東京 🐈"), (1, True, "there is no 東京")]
            assert shown(message)[5:] == ["Once more.", read, (2, False, "Hello 東京 🐈"), "It says hello."]
            assert message.stop_reason == "end_turn"
            assert message.usage.output_tokens > 0


async def test_a_history_with_what_ran_makes_the_prompt_the_model_knows() -> None:
    last = "<think>\nEasy.\n</think>\n\nIt says hello."
    async with asked(written(READ, LOST, said="Let me see."), written(READ), last) as (engine, client):
        messages = await both(client)
        before = engine.asked[-1].prompt.text
        for message in messages:
            again = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Sure?"}]
            count = len(engine.asked)
            await client.beta.messages.create(
                model="m", max_tokens=1000, messages=again, betas=BETAS, mcp_servers=[FILES], tools=[TOOLSET]
            )
            after = engine.asked[count].prompt.text
            assert after.startswith(before)
            assert "It says hello." in after[len(before) :]
            # Without its servers a history is welcome, too.
            await client.messages.create(model="m", max_tokens=1000, messages=again)


async def test_a_result_that_was_cut_for_the_model_is_told_and_comes_back_as_cut() -> None:
    limits = Limits(result_characters=100)
    async with asked(written(("files_read", {"path": "b"})), "Long.", limits=limits) as (engine, client):
        for message in await both(client):
            text = message.content[1].content[0].text
            assert "49,900 of 50,000 characters are missing" in text
            assert text in engine.asked[-1].prompt.text


@pytest.mark.parametrize(
    ("wanted", "offered"),
    [
        (BOTH, ["delete", "files_read"]),
        ({"mcp_servers": [FILES], "tools": []}, ["delete", "files_read"]),
        ({"mcp_servers": [], "tools": [TOOLSET, {**TOOLSET, "mcp_server_name": "clock"}]}, ["delete", "files_read", "now"]),
        ({"tools": [{**TOOLSET, "default_config": {"enabled": False}, "configs": {"read": {"enabled": True}}}]}, ["files_read"]),
        ({"tools": [{**TOOLSET, "configs": {"read": {"enabled": False, "defer_loading": True}}}]}, ["delete"]),
        ({"tools": [{**TOOLSET, "default_config": {"enabled": False}}]}, []),
        ({"mcp_servers": [{**FILES, "tool_configuration": {"allowed_tools": ["read"]}}], "tools": []}, ["files_read"]),
        ({"mcp_servers": [{**FILES, "tool_configuration": {"enabled": False}}], "tools": []}, []),
        ({"tools": [TOOLSET, NOTE]}, ["delete", "files_read", "note"]),
    ],
)
async def test_the_model_is_offered_what_the_request_wants_of_a_server_and_it_is_counted(wanted: Any, offered: list[str]) -> None:
    async with asked("Hello.") as (engine, client):
        for _ in await both(client, **wanted):
            prompt = engine.asked[-1].prompt.text
            names = ("delete", "files_read", "note", "now", "weather")
            assert [name for name in names if f"\n- {name}:" in prompt] == offered
        request: Any = {**BOTH, **wanted}
        counted = await client.beta.messages.count_tokens(model="m", messages=HI, betas=BETAS, **request)
        assert counted.input_tokens == await engine.count(engine.asked[-1].prompt.text)


async def test_a_choice_names_a_tool_as_its_server_or_we_call_it() -> None:
    async with asked(written(READ), "Done.") as (engine, client):
        for name in ("read", "files_read"):
            for message in await both(client, tool_choice={"type": "tool", "name": name}):
                assert shown(message)[-1] == "Done."
                assert engine.asked[-2].grammar is not None
        with pytest.raises(anthropic.APIStatusError, match="nope"):
            await both(client, tool_choice={"type": "tool", "name": "nope"})


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_of_a_server_and_of_the_tool_runner_work_together(stream: bool) -> None:
    seen: list[str] = []

    @beta_async_tool
    async def note(text: str) -> str:
        """Note a text."""
        seen.append(text)
        return "noted"

    first = written(READ, said="Let me see.")
    async with asked(first, written(("note", {"text": "hello"})), "Noted.") as (engine, client):
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=100, messages=HI, tools=[note, TOOLSET], mcp_servers=[FILES], betas=BETAS, stream=stream
        )
        final = await runner.until_done()
        assert shown(final) == ["Noted."]
        assert seen == ["hello"]
        assert len(engine.asked) == 3
        prompt = engine.asked[-1].prompt.text
        assert prompt.startswith(engine.asked[-2].prompt.text)
        assert prompt.count("Hello 東京 🐈") == 1
        assert "noted" in prompt


async def test_a_call_that_needs_a_word_ends_the_turn_and_is_answered_elsewhere() -> None:
    files = Files(a="Hello")
    text = written(READ, ("delete", {"path": "a"}), said="Let me see.")
    async with asked(text, "Gone.", tools=files) as (engine, client):
        # The tool runner must not ask again and again while nobody has answered.
        runner = client.beta.messages.tool_runner(model="m", max_tokens=100, messages=HI, betas=BETAS, **BOTH)
        message = await runner.until_done()
        assert len(engine.asked) == 1
        assert message.stop_reason == "end_turn"
        assert shown(message)[:3] == ["Let me see.", ("files", "read", {"path": "a"}), (0, False, "Hello")]
        (waiting,) = message.model_extra["callsmith"]["approvals"]  # type: ignore[index]
        assert waiting["name"] == "delete"
        assert f"/v1/approvals/{waiting['id']}" in shown(message)[3]
        assert [call.name for call in files.ran] == ["files_read"]
        async with httpx2.AsyncClient(base_url=str(client.base_url)) as http:
            answer = (await http.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})).json()
        assert answer["answer"]["text"] == "Gone."
        assert [call.name for call in files.ran] == ["files_read", "delete"]


async def test_who_wants_to_wait_for_the_word_gets_it_all_in_one_stream() -> None:
    files = Files(a="Hello")
    async with asked(written(("delete", {"path": "a"})), "Gone.", tools=files) as (_, client):
        request: Any = {"model": "m", "max_tokens": 100, "messages": HI, "betas": BETAS, **BOTH}
        heard = ""
        async with client.beta.messages.stream(**request, extra_body={"wait_for_approval": True}) as stream:
            async for event in stream:
                heard += event.text if event.type == "text" else ""
                if event.type == "text" and (match := re.search(r"/v1/approvals/(confirm_\w+)\)", heard)):
                    assert files.ran == []
                    heard = ""
                    async with httpx2.AsyncClient(base_url=str(client.base_url)) as http:
                        await http.post(f"/v1/approvals/{match[1]}", json={"approve": True})
            message = await stream.get_final_message()
        assert shown(message)[1:] == [("files", "delete", {"path": "a"}), (0, False, ""), "Gone."]


async def test_tools_that_are_found_by_the_model_are_counted_as_it_is_shown_them() -> None:
    search = written(("find_tools", {"query": "read a file"}))
    async with asked(search, written(READ), "Done.", llm=Llm(tools_budget=1)) as (engine, client):
        for message in await both(client):
            assert shown(message) == [("files", "read", {"path": "a"}), (0, False, "Hello 東京 🐈"), "Done."]
        assert "\n- find_tools:" in engine.asked[0].prompt.text
        counted = await client.beta.messages.count_tokens(model="m", messages=HI, betas=BETAS, **BOTH)
        assert counted.input_tokens == await engine.count(engine.asked[0].prompt.text)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"mcp_servers": [{**FILES, "name": "x", "url": ""}], "tools": []},
            "no MCP server 'x' is configured here; there are: clock, files",
        ),
        ({"tools": [{**TOOLSET, "mcp_server_name": "functions"}]}, "tools.0: no MCP server 'functions'"),
        (
            {"mcp_servers": [{**FILES, "url": "https://example.org/mcp"}]},
            "mcp_servers.0: only MCP servers .* send the url 'mcp:files'",
        ),
        (
            {"mcp_servers": [{**FILES, "authorization_token": "secret"}]},
            "authorization_token: a server is reached with the rights",
        ),
    ],
)
async def test_a_server_that_is_not_configured_here_is_refused_with_what_to_do(more: Any, words: str) -> None:
    async with asked("Hello.") as (engine, client):
        for stream in (False, True):
            with pytest.raises(anthropic.BadRequestError, match=words) as refused:
                await client.beta.messages.create(
                    **{"model": "m", "max_tokens": 9, "messages": HI, "betas": BETAS, "stream": stream, **BOTH, **more}
                )
            assert "secret" not in str(refused.value)
        with pytest.raises(anthropic.BadRequestError, match=words):
            await client.beta.messages.count_tokens(**{"model": "m", "messages": HI, "betas": BETAS, **BOTH, **more})
        assert not engine.asked


async def test_where_there_are_no_tools_there_are_no_servers() -> None:
    async with asked("Hello.", tools=Filtered(Files(), allow="weather")) as (_, client):
        with pytest.raises(anthropic.BadRequestError, match="there are: none"):
            await both(client)


async def test_who_does_not_ask_for_servers_sees_words_only() -> None:
    async with asked(written(READ, said="Let me see."), "Done.") as (_, client):
        for message in await both(client, mcp_servers=[], tools=[]):
            assert shown(message) == ["Let me see.\n\nDone."]


# -- real servers


async def test_real_servers_are_reached_by_their_names_and_by_the_addresses_they_are_configured_with() -> None:
    free = {"approval": (("*", "auto"),)}
    first = written(("files_echo", {"text": "Hello"}), ("far_add", {"a": 1, "b": 2}), ("files_fails", {}))
    gone = ServerConfig("gone", command="/nowhere/at/all")
    with serving(small_server().streamable_http_app()) as port:
        far = f"http://127.0.0.1:{port}/mcp"
        async with (
            McpHost([trying.plain("files", **free), ServerConfig("far", url=far, **free), gone]) as host,  # type: ignore[arg-type]
            asked(first, "Done.", mcp=host) as (engine, client),
        ):
            server = {"type": "url", "name": "far", "url": f"{far}/"}
            for message in await both(client, mcp_servers=[FILES, server], tools=[]):
                # What may change something runs in its turn.
                assert shown(message) == [
                    *(("files", "echo", {"text": "Hello"}), (0, False, "Hello")),
                    *(("far", "add", {"a": 1, "b": 2}), (1, False, "3")),
                    *(("files", "fails", {}), (2, True, "no such file")),
                    "Done.",
                ]
            count = len(engine.asked)
            for url, name in [("http://127.0.0.1:1/mcp", "far"), (far, "files"), ("mcp:files", "far")]:
                with pytest.raises(anthropic.BadRequestError, match=f"{name!r} is not at {url!r}"):
                    await both(client, mcp_servers=[{**server, "name": name, "url": url}], tools=[])
            with pytest.raises(anthropic.InternalServerError, match="'gone' has no tools at the moment") as down:
                await both(client, mcp_servers=[{**server, "name": "gone", "url": ""}], tools=[])
            assert down.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
            assert len(engine.asked) == count
