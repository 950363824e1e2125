"""The real OpenAI client uses MCP servers of the server over the Responses dialect: lists, calls, approvals, its own runner."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import (
    AsyncRegisteredFunction,
    AsyncResponsesToolRunner,
    RegisteredFunction,
    ResponsesToolRunner,
    ToolRunnerError,
)
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from starlette.applications import Starlette

from callsmith.core.approval import Policy
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from callsmith.server.store import SqliteStore
from callsmith.tools.functions import tool
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.wrap import Confirmed, Merged, Renamed
from tests.journeys.test_openai_sdk import client_of, served
from tests.server.sourced import Sourced
from tests.serving import served_apart
from tests.tools.mcp.trying import plain
from tests.wire.shapes import complaints, parse_events
from tests.wire.test_shapes import streamed

HERMES = format_named("hermes")
FILES: Any = {"type": "mcp", "server_label": "files"}
ALWAYS: Any = {**FILES, "require_approval": "always"}
NEVER: Any = {**FILES, "require_approval": "never"}
NOW: Any = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}


class Disk:
    """A server of files, and what was done to it. Its tools are called `files_read` and so on here."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def tools(self) -> Renamed:
        def read(path: str) -> str:
            """Read a file."""
            self.done.append(f"read {path}")
            return f"contents of {path}"

        @tool(side_effects=True)
        def erase(path: str) -> str:
            """Erase a file."""
            self.done.append(f"erase {path}")
            if path == "/":
                raise PermissionError("not that one")
            return f"erased {path}"

        return Renamed(Sourced("mcp:files", read, erase), lambda name: f"files_{name}")


READ, ERASE = Call("files_read", {"path": "a"}), Call("files_erase", {"path": "a"})


def calling(*made: Call, text: str = "") -> str:
    return write(HERMES, list(made), text=text)


def model_of(*replies: str) -> tuple[LocalModel, Scripted]:
    engine = Scripted(replies, chunk=5)
    return LocalModel(engine, HERMES, Template(CHATML)), engine


def app_of(disk: Disk, *replies: str, **options: Any) -> tuple[Starlette, Scripted]:
    model, engine = model_of(*replies)
    return create_app({"m": model}, tools=disk.tools, **options), engine


def client(disk: Disk, *replies: str, **options: Any) -> tuple[AsyncOpenAI, Scripted]:
    app, engine = app_of(disk, *replies, **options)
    return client_of(app), engine


async def answered(asking: AsyncOpenAI, stream: bool, **asked: Any) -> Any:
    """The response; if it is streamed, as the client's own helper puts it together."""
    if not stream:
        return await asking.responses.create(model="m", **asked)
    async with asking.responses.stream(model="m", **asked) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


def word(request: Any, approve: bool, **more: Any) -> Any:
    return {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve, **more}


# Calls


@pytest.mark.req("R115")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_tools_of_a_server_are_listed_and_run(stream: bool) -> None:
    disk = Disk()
    asking, engine = client(disk, calling(READ, text="Let me see."), "It says hello.")
    response = await answered(asking, stream, input="What is in a?", tools=[FILES])
    assert kinds(response) == ["mcp_list_tools", "message", "mcp_call", "message"]
    listed, _, call, _ = response.output
    assert [(one.name, one.description) for one in listed.tools] == [("read", "Read a file."), ("erase", "Erase a file.")]
    assert listed.tools[0].input_schema["required"] == ["path"]
    assert (listed.server_label, listed.error) == ("files", None)
    assert (call.server_label, call.name, json.loads(call.arguments)) == ("files", "read", {"path": "a"})
    assert (call.status, call.output, call.error, call.approval_request_id) == ("completed", "contents of a", None, None)
    assert response.output_text.endswith("It says hello.")
    assert disk.done == ["read a"]
    assert "contents of a" in engine.asked[1].prompt.text
    assert response.tools[0].server_label == "files"


async def test_the_stream_of_a_call_is_as_clients_know_it() -> None:
    disk = Disk()
    asking, _ = client(disk, calling(READ, ERASE), "Done.")
    types: list[str] = []
    async with asking.responses.stream(model="m", input="hi", tools=[FILES]) as events:
        async for event in events:
            types.append(event.type.removeprefix("response."))
    call = ["mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done", "mcp_call.completed"]
    item = ["output_item.added", "output_item.done"]
    assert types == [
        "created", "in_progress",
        item[0], "mcp_list_tools.in_progress", "mcp_list_tools.completed", item[1],
        item[0], *call, item[1],
        *item,
        "completed",
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_fails_is_a_call_that_failed(stream: bool) -> None:
    disk = Disk()
    tools = Confirmed(disk.tools, Policy(side_effects="auto"))
    model, _ = model_of(calling(Call("files_erase", {"path": "/"}), Call("files_read", {"file": 1})), "Oh.")
    asking = client_of(create_app({"m": model}, tools=tools))
    response = await answered(asking, stream, input="hi", tools=[FILES])
    broken, wrong = (item for item in response.output if item.type == "mcp_call")
    if json.loads(broken.arguments) == {"file": 1}:
        broken, wrong = wrong, broken
    assert (broken.status, broken.output, broken.error.type) == ("failed", None, "mcp_tool_execution_error")
    assert "not that one" in broken.error.content[0]["text"]
    assert (wrong.status, json.loads(wrong.arguments)) == ("failed", {"file": 1})  # it never ran, but was made
    assert "invalid_arguments" in wrong.error.content[0]["text"]
    assert disk.done == ["erase /"]


async def test_the_history_is_the_same_whether_the_server_or_the_client_keeps_it() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(READ, text="So."), "It says hello.", "Nothing else.", "Nothing else.")
    first = await asking.responses.create(model="m", input="What is in a?", tools=[FILES])
    kept = await asking.responses.create(model="m", input="And?", tools=[FILES], previous_response_id=first.id)
    again: Any = [{"role": "user", "content": "What is in a?"}, *(one.to_dict() for one in first.output)]
    again.append({"role": "user", "content": "And?"})
    resent = await asking.responses.create(model="m", input=again, tools=[FILES], store=False)
    assert engine.asked[3].prompt.text == engine.asked[2].prompt.text
    assert "files_read" in engine.asked[2].prompt.text
    assert "contents of a" in engine.asked[2].prompt.text
    assert engine.asked[2].prompt.text.startswith(engine.asked[1].prompt.text)  # what was read need not be read again
    assert kinds(kept) == kinds(resent) == ["message"]  # the tools were listed already


# Approvals


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [True, False])
async def test_a_call_runs_in_the_response_after_its_approval(stream: bool, store: bool) -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE, text="I will erase it."), "Erased.")
    first = await answered(asking, stream, input="Erase a.", tools=[FILES], store=store)
    assert kinds(first) == ["mcp_list_tools", "message", "mcp_approval_request"]
    request = first.output[-1]
    assert (request.server_label, request.name, json.loads(request.arguments)) == ("files", "erase", {"path": "a"})
    assert first.status == "completed"
    assert "approv" not in first.output_text
    assert disk.done == []
    if store:
        asked: Any = {"previous_response_id": first.id, "input": [word(request, True)]}
    else:
        history = [{"role": "user", "content": "Erase a."}, *(one.to_dict() for one in first.output), word(request, True)]
        asked = {"input": history, "store": False}
    second = await answered(asking, stream, tools=[FILES], **asked)
    assert kinds(second) == ["mcp_call", "message"]
    call = second.output[0]
    assert (call.approval_request_id, call.status, call.output) == (request.id, "completed", "erased a")
    assert (call.name, call.arguments) == (request.name, request.arguments)
    assert second.output_text == "Erased."
    assert disk.done == ["erase a"]
    assert "erased a" in engine.asked[1].prompt.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_denied_is_told_to_the_model_and_makes_no_item(stream: bool) -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE), "Then not.", "As you wish.")
    first = await answered(asking, stream, input="Erase a.", tools=[FILES])
    no = [word(first.output[-1], False, reason="it is needed")]
    second = await answered(asking, stream, input=no, tools=[FILES], previous_response_id=first.id)
    assert kinds(second) == ["message"]
    assert disk.done == []
    assert "denied: it is needed" in engine.asked[1].prompt.text
    await answered(asking, stream, input="Good.", tools=[FILES], previous_response_id=second.id)
    assert engine.asked[2].prompt.text.startswith(engine.asked[1].prompt.text)


async def test_what_is_said_along_with_an_approval_comes_before_the_call() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE), "Done, quickly.")
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    both: Any = [word(first.output[-1], True), {"role": "user", "content": "And hurry."}]
    second = await asking.responses.create(model="m", input=both, tools=[FILES], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert engine.asked[1].prompt.text.index("And hurry.") < engine.asked[1].prompt.text.index("erased a")


async def test_somebody_who_talks_on_without_answering_leaves_the_call_undone() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE), "Fine.", "Erased.")
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    second = await asking.responses.create(model="m", input="Wait.", tools=[FILES], previous_response_id=first.id)
    assert kinds(second) == ["message"]
    assert "nobody has approved it yet" in engine.asked[1].prompt.text
    late: Any = [word(first.output[-1], True)]
    third = await asking.responses.create(model="m", input=late, tools=[FILES], previous_response_id=second.id)
    assert kinds(third) == ["mcp_call", "message"]
    assert disk.done == ["erase a"]


async def test_of_two_calls_one_can_be_approved_first() -> None:
    disk = Disk()
    both = calling(ERASE, Call("files_erase", {"path": "b"}))
    asking, _ = client(disk, both, "Both are gone.")
    first = await asking.responses.create(model="m", input="Erase both.", tools=[FILES])
    one, other = (item for item in first.output if item.type == "mcp_approval_request")
    asked: Any = {"model": "m", "tools": [FILES]}
    second = await asking.responses.create(**asked, input=[word(one, True)], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "mcp_approval_request"]
    assert second.output[1].id == other.id
    third = await asking.responses.create(**asked, input=[word(other, True)], previous_response_id=second.id)
    assert (kinds(third), third.output_text) == (["mcp_call", "message"], "Both are gone.")
    assert disk.done == ["erase a", "erase b"]


async def test_an_approval_counts_once() -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), "Erased.", "Erased, as I said.")
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    again: Any = {"model": "m", "input": [word(first.output[-1], True)], "tools": [FILES], "previous_response_id": first.id}
    responses = [await asking.responses.create(**again) for _ in range(2)]
    assert [kinds(one) for one in responses] == [["mcp_call", "message"]] * 2
    assert responses[0].output[0].output == responses[1].output[0].output == "erased a"
    assert disk.done == ["erase a"]


async def test_an_approval_nobody_asked_for_is_refused() -> None:
    disk = Disk()
    asking, _ = client(disk, "never")
    forged: Any = [
        {"role": "user", "content": "hi"},
        {"type": "mcp_approval_request", "id": "x", "server_label": "files", "name": "erase", "arguments": '{"path": "a"}'},
        {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
    ]
    with pytest.raises(openai.BadRequestError, match="there is no approval 'x'"):
        await asking.responses.create(model="m", input=forged, tools=[FILES])
    assert disk.done == []


async def test_an_approval_that_comes_too_late_is_a_call_that_failed() -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), "Too late.", settings=Settings(approval_seconds=0.05))
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    await asyncio.sleep(0.1)
    late: Any = [word(first.output[-1], True)]
    second = await asking.responses.create(model="m", input=late, tools=[FILES], previous_response_id=first.id)
    call: Any = second.output[0]
    assert (call.type, call.status, call.approval_request_id) == ("mcp_call", "failed", first.output[-1].id)
    assert call.error.content[0]["text"].startswith("expired")
    assert call.arguments == first.output[-1].arguments
    assert disk.done == []


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("store", [True, False])
async def test_an_approval_that_was_given_elsewhere_is_known_in_the_conversation(approve: bool, store: bool) -> None:
    disk = Disk()
    app, engine = app_of(disk, calling(ERASE), "So it is.", "Anything else?", "No.")
    asking = client_of(app)
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES], store=store)
    request: Any = first.output[-1]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://callsmith") as http:
        (waiting,) = (await http.get("/v1/approvals")).json()["data"]
        assert (waiting["id"], waiting["source"], waiting["response_id"]) == (request.id, "mcp:files", first.id)
        said = await http.post(f"/v1/approvals/{request.id}", json={"approve": approve})
        assert said.json()["answer"]["text"] == "So it is."
    history: Any = [{"role": "user", "content": "Erase a."}, *(one.to_dict() for one in first.output)]
    go_on: Any = {"role": "user", "content": "Go on."}
    asked: Any = {"input": "Go on.", "previous_response_id": first.id} if store else {"input": [*history, go_on], "store": False}
    second = await asking.responses.create(model="m", tools=[FILES], **asked)
    assert kinds(second) == ["message"]
    prompt = engine.asked[2].prompt.text
    assert ("erased a" if approve else "denied: a person said no") in prompt
    assert prompt.index("So it is.") < prompt.index("Go on.")
    assert disk.done == (["erase a"] if approve else [])
    if store:
        await asking.responses.create(model="m", input="Well?", tools=[FILES], previous_response_id=second.id)
        assert engine.asked[3].prompt.text.startswith(prompt)


async def test_a_stream_that_waits_has_the_call_behind_its_approval() -> None:
    disk = Disk()
    app, _ = app_of(disk, calling(ERASE), "Erased.")
    async with served(app) as url, httpx2.AsyncClient(base_url=url) as http:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        waits: Any = {"wait_for_approval": True}
        async with asking.responses.stream(model="m", input="Erase a.", tools=[FILES], extra_body=waits) as events:
            async for event in events:
                if event.type == "response.output_item.done" and event.item.type == "mcp_approval_request":
                    assert (await http.post(f"/v1/approvals/{event.item.id}", json={"approve": True})).status_code == 200
            final: Any = await events.get_final_response()
    assert kinds(final) == ["mcp_list_tools", "mcp_approval_request", "mcp_call", "message"]
    assert final.output[2].approval_request_id == final.output[1].id
    assert disk.done == ["erase a"]


async def test_what_waits_is_forgotten_with_its_response() -> None:
    disk, store = Disk(), SqliteStore()
    asking, _ = client(disk, calling(ERASE), store=store)
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    assert len(await store.list("approval")) == len(await store.list("paused_run")) == 1
    await asking.responses.delete(first.id)
    for kind in ("approval", "paused_run", "response", "response_item"):
        assert await store.list(kind) == ()


# Which tools, under which rules


@pytest.mark.parametrize(
    ("entry", "asks"),
    [
        ({}, []),
        ({"require_approval": "never"}, []),
        ({"require_approval": "always"}, ["read"]),
        ({"require_approval": {"always": {"tool_names": ["read"]}}}, ["read"]),
        ({"require_approval": {"always": {"tool_names": ["erase"]}}}, []),
        ({"require_approval": {"never": {"tool_names": ["erase"]}}}, ["read"]),
        ({"require_approval": {"never": {"tool_names": ["read"]}}}, []),
        ({"require_approval": {"always": {"read_only": True}}}, ["read"]),
        ({"require_approval": {"always": {"read_only": False}}}, []),
    ],
)
async def test_a_request_says_which_calls_it_wants_to_be_asked_about(entry: Any, asks: list[str]) -> None:
    asking, _ = client(Disk(), calling(READ), "So.")
    response = await asking.responses.create(model="m", input="hi", tools=[{**FILES, **entry}])
    assert [item.name for item in response.output if item.type == "mcp_approval_request"] == asks


async def test_a_request_cannot_loosen_what_the_operator_wants_to_be_asked_about() -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), "never")
    response = await asking.responses.create(model="m", input="hi", tools=[NEVER])
    assert kinds(response)[-1] == "mcp_approval_request"
    assert disk.done == []


@pytest.mark.parametrize("allowed", [["read"], {"tool_names": ["read"]}, {"read_only": True}])
async def test_only_allowed_tools_are_listed_and_offered(allowed: Any) -> None:
    asking, engine = client(Disk(), "Hm.")
    response: Any = await asking.responses.create(model="m", input="hi", tools=[{**FILES, "allowed_tools": allowed}])
    assert [one.name for one in response.output[0].tools] == ["read"]
    assert "files_read" in engine.asked[0].prompt.text
    assert "files_erase" not in engine.asked[0].prompt.text


async def test_only_servers_that_are_configured_can_be_used() -> None:
    asking, _ = client(Disk(), "Hm.")
    with pytest.raises(openai.BadRequestError, match=r"no MCP server 'web' here; there are: files$") as refused:
        await asking.responses.create(model="m", input="hi", tools=[{"type": "mcp", "server_label": "web"}])
    assert refused.value.param == "tools"
    elsewhere: Any = {"type": "mcp", "server_label": "web", "server_url": "https://example.org/mcp"}
    with pytest.raises(openai.BadRequestError, match="server_url is not followed"):
        await asking.responses.create(model="m", input="hi", tools=[elsewhere], stream=True)
    for key, value, why in (
        ("server_url", "https://example.org/mcp", "is not at"),
        ("authorization", "secret", "by the operator"),
    ):
        theirs: Any = {**FILES, key: value}
        with pytest.raises(openai.BadRequestError, match=why):
            await asking.responses.create(model="m", input="hi", tools=[theirs])
    ours: Any = {**FILES, "server_url": "mcp:files"}
    assert (await asking.responses.create(model="m", input="hi", tools=[ours])).output_text == "Hm."


@pytest.mark.parametrize("named", [{"name": "erase"}, {}])
async def test_a_tool_of_a_server_can_be_demanded(named: Any) -> None:
    asking, engine = client(Disk(), calling(ERASE), "Done.")
    choice: Any = {"type": "mcp", "server_label": "files", **named}
    response = await asking.responses.create(model="m", input="hi", tools=[FILES, NOW], tool_choice=choice)
    assert kinds(response)[-1] == "mcp_approval_request"
    assert engine.asked[0].grammar is not None


# Beside the client's own functions


@pytest.mark.parametrize("stream", [False, True])
async def test_functions_of_the_client_stand_beside_a_servers_tools(stream: bool) -> None:
    disk = Disk()
    made = calling(READ, Call("now"), ERASE)
    asking, engine = client(disk, made, "All done.")
    first = await answered(asking, stream, input="hi", tools=[FILES, NOW])
    assert sorted(kinds(first)) == ["function_call", "mcp_approval_request", "mcp_call", "mcp_list_tools"]
    request = next(item for item in first.output if item.type == "mcp_approval_request")
    function = next(item for item in first.output if item.type == "function_call")
    output = {"type": "function_call_output", "call_id": function.call_id, "output": "noon"}
    asked: Any = {"input": [output, word(request, True)], "tools": [FILES, NOW], "previous_response_id": first.id}
    second = await answered(asking, stream, **asked)
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "All done.")
    assert disk.done == ["read a", "erase a"]
    for told in ("contents of a", "noon", "erased a"):
        assert engine.asked[1].prompt.text.count(told) == 1


async def test_a_call_that_waits_beside_a_function_is_made_once() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(Call("now"), ERASE), "All done.")
    first: Any = await asking.responses.create(model="m", input="hi", tools=[FILES, NOW])
    request, function = first.output[1:]
    output: Any = {"type": "function_call_output", "call_id": function.call_id, "output": "noon"}
    said: Any = [output, word(request, True)]
    await asking.responses.create(model="m", input=said, tools=[FILES, NOW], previous_response_id=first.id)
    prompt = engine.asked[1].prompt.text
    assert prompt.count('"name": "files_erase", "arguments"') == prompt.count("erased a") == prompt.count("noon") == 1


# The client's own runner

PARAMS: ResponseCreateParamsNonStreaming = {"model": "m", "input": "Erase a.", "tools": [ALWAYS]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("approve", [False, True])
def test_the_clients_runner_asks_and_goes_on(stream: bool, approve: bool) -> None:
    disk, asked = Disk(), list[str]()

    def approving(request: Any) -> bool:
        asked.append(request.name)
        return approve

    app, _ = app_of(disk, calling(READ), calling(ERASE), "So be it.")
    with served_apart(app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking:
        response = ResponsesToolRunner(functions=[]).run(asking, PARAMS, stream=stream, approve_mcp=approving)
    assert response.output_text == "So be it."
    assert asked == ["read", "erase"]
    assert disk.done == (["read a", "erase a"] if approve else [])


@pytest.mark.parametrize("eager", [False, True])
async def test_the_clients_runner_runs_functions_beside_a_servers_tools(eager: bool) -> None:
    disk = Disk()

    async def now(_: Any) -> str:
        disk.done.append("now")
        return "noon"

    async def approving(_: Any) -> bool:
        return True

    app, _ = app_of(disk, calling(Call("now"), ERASE), calling(READ), "So be it.")
    async with served(app) as url:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        runner = AsyncResponsesToolRunner(functions=[AsyncRegisteredFunction(NOW, now)])
        response = await runner.run(asking, PARAMS, stream=True, eager=eager, approve_mcp=approving)
    assert response.output_text == "So be it."
    assert sorted(disk.done) == ["erase a", "now", "read a"]


def test_the_clients_runner_runs_what_needs_no_approval() -> None:
    disk = Disk()
    app, _ = app_of(disk, calling(READ), "Hello.")
    params: ResponseCreateParamsNonStreaming = {**PARAMS, "tools": [NEVER]}
    with served_apart(app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking:
        runner = ResponsesToolRunner(functions=[RegisteredFunction(NOW, lambda _: "noon")])
        assert runner.run(asking, params).output_text == "Hello."
        with pytest.raises(ToolRunnerError):  # the operator's policy asks all the same, which this client takes for a mistake
            runner.run(asking, {**params, "input": "again"})
    assert disk.done == ["read a"]


# After a restart, and after a kill


async def test_an_approval_is_given_to_a_server_that_was_started_again(tmp_path: Path) -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), store=SqliteStore(str(tmp_path / "store.db")))
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    asking, engine = client(disk, "Erased.", store=SqliteStore(str(tmp_path / "store.db")))
    yes: Any = [word(first.output[-1], True)]
    second = await asking.responses.create(model="m", input=yes, tools=[FILES], previous_response_id=first.id)
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "Erased.")
    assert "erased a" in engine.asked[0].prompt.text
    assert disk.done == ["erase a"]


PROGRAM = """
import sys, time
from pathlib import Path

import uvicorn

from callsmith import open_model
from callsmith.server import approvals
from callsmith.server.app import create_app
from callsmith.server.store import SqliteStore
from callsmith.tools.functions import tool
from callsmith.tools.mcp import McpHost, ServerConfig
from tests.server.sourced import Sourced

approvals.LEASE = 0.6
folder, port, says, hang = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "hang"


@tool(side_effects=True)
def erase(path: str) -> str:
    with (folder / "done").open("a") as file:
        file.write(f"{path}\\n")
    if hang:
        time.sleep(60)
    return f"erased {path}"


app = create_app(
    {"m": open_model(f"scripted:{says}")}, tools=Sourced("mcp:files", erase), store=SqliteStore(str(folder / "store.db"))
)
uvicorn.run(app, port=port, log_level="critical", lifespan="off")
"""
MADE = '<tool_call>\n<name>erase</name>\n<arguments>{"path": "a"}</arguments>\n</tool_call>'


@contextmanager
def killed(folder: Path, says: str, *, hang: bool = False) -> Iterator[AsyncOpenAI]:
    """A server in a process of its own, which is then killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", PROGRAM, str(folder), str(port), says, "hang" if hang else ""]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as server:
        try:
            yield AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=8)
        finally:
            server.kill()
    assert server.returncode == -signal.SIGKILL


async def test_a_call_that_was_running_when_the_server_was_killed_is_not_run_again(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with killed(tmp_path, MADE, hang=True) as asking:
        first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
        again: Any = {"model": "m", "input": [word(first.output[-1], True)], "tools": [FILES]}
        again["previous_response_id"] = first.id
        going_on = asyncio.create_task(asking.with_options(max_retries=0).responses.create(**again))
        deadline = time.monotonic() + 20
        while not done.exists():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    with pytest.raises(openai.APIConnectionError):
        await going_on
    with killed(tmp_path, "I do not know.") as asking:
        second: Any = await asking.responses.create(**again)
        call = second.output[0]
        assert (call.type, call.status, call.approval_request_id) == ("mcp_call", "failed", first.output[-1].id)
        assert call.error.content[0]["text"].startswith("interrupted")
        assert second.output_text == "I do not know."
    assert done.read_text() == "a\n"


# A real server


@pytest.mark.req("R115")
async def test_a_real_servers_tools_wait_for_approval_and_run() -> None:
    async with McpHost([plain("desk")]) as host:
        model, engine = model_of(calling(Call("echo", {"text": "a"})), "It echoed.")
        asking = client_of(create_app({"m": model}, mcp=host))
        desk: Any = {"type": "mcp", "server_label": "desk", "allowed_tools": ["echo"], "require_approval": "always"}
        first: Any = await asking.responses.create(model="m", input="hi", tools=[desk])
        assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
        assert [one.name for one in first.output[0].tools] == ["echo"]
        yes: Any = [word(first.output[-1], True)]
        second: Any = await asking.responses.create(model="m", input=yes, tools=[desk], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert (second.output[0].server_label, second.output[0].name, second.output[0].status) == ("desk", "echo", "completed")
    assert second.output[0].output in engine.asked[1].prompt.text


async def test_a_server_that_is_down_is_told_as_such_and_the_others_are_used() -> None:
    async with McpHost([plain("desk"), ServerConfig("lost", "/no/such/program")]) as host:
        model, _ = model_of("Hello.")
        asking = client_of(create_app({"m": model}, mcp=host))
        both: Any = [{"type": "mcp", "server_label": "desk"}, {"type": "mcp", "server_label": "lost"}]
        types: list[str] = []
        async with asking.responses.stream(model="m", input="hi", tools=both) as events:
            async for event in events:
                types.append(event.type)
            response: Any = await events.get_final_response()
    desk, lost, _ = response.output
    assert (desk.error, lost.tools) == (None, [])
    assert len(desk.tools) > 5
    assert "/no/such/program" in lost.error
    assert types.count("response.mcp_list_tools.failed") == types.count("response.mcp_list_tools.completed") == 1
    assert response.output_text == "Hello."


# The shape


@pytest.mark.parametrize("replies", [(calling(READ, ERASE, text="So."), "x"), (calling(Call("now"), READ), "x"), ("Hi.",)])
async def test_streams_hold_to_the_rules(replies: tuple[str, ...]) -> None:
    app, _ = app_of(Disk(), *replies)
    raw = await streamed(app, "/v1/responses", {"model": "m", "input": "hi", "stream": True, "tools": [FILES, NOW]})
    assert complaints("responses", parse_events(raw)) == {}


async def test_servers_of_different_sources_are_told_apart() -> None:
    def read(path: str) -> str:
        return f"{path} from the web"

    disk = Disk()
    tools = Merged(Sourced("mcp:web", read), Sourced("mcp:files", read))
    model, _ = model_of(calling(Call("mcp_web_read", {"path": "a"})), "So.")
    asking = client_of(create_app({"m": model}, tools=tools))
    both: Any = [{"type": "mcp", "server_label": "web"}, FILES]
    response: Any = await asking.responses.create(model="m", input="hi", tools=both)
    assert kinds(response) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "message"]
    assert [(item.server_label, [one.name for one in item.tools]) for item in response.output[:2]] == [
        ("web", ["read"]),
        ("files", ["read"]),
    ]
    assert (response.output[2].server_label, response.output[2].name) == ("web", "read")
    assert disk.done == []
