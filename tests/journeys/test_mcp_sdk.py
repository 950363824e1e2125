"""The real OpenAI client uses MCP servers of the server over the Responses dialect: lists, calls, rules."""

import json
from typing import Any

import openai
import pytest

from callsmith.core.approval import Policy
from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.wrap import Confirmed, Merged
from tests.fakes import Sourced
from tests.journeys.disk import ERASE, FILES, NEVER, NOW, READ, Disk, answered, app_of, client, kinds, model_of, word
from tests.journeys.scripts import calling, client_of
from tests.tools.mcp.trying import plain
from tests.wire.shapes import complaints, parse_events
from tests.wire.streams import streamed

# Calls


@pytest.mark.req("R115")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_tools_of_a_server_are_listed_and_run(stream: bool) -> None:
    disk = Disk()
    asking, engine = client(disk, calling(READ, text="Let me see."), "It says hello.")
    response = await answered(asking, stream, input="What is in a?", tools=[FILES])
    assert kinds(response) == ["mcp_list_tools", "message", "mcp_call", "message"]
    listed, _, call, _ = response.output
    assert [(tool.name, tool.description) for tool in listed.tools] == [("read", "Read a file."), ("erase", "Erase a file.")]
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
    asking, engine = client(disk, calling(READ), "It says hello.", "Nothing else.", "Nothing else.")
    first = await asking.responses.create(model="m", input="What is in a?", tools=[FILES])
    kept = await asking.responses.create(model="m", input="And?", tools=[FILES], previous_response_id=first.id)
    again: Any = [{"role": "user", "content": "What is in a?"}, *(item.to_dict() for item in first.output)]
    again.append({"role": "user", "content": "And?"})
    resent = await asking.responses.create(model="m", input=again, tools=[FILES], store=False)
    assert engine.asked[3].prompt.text == engine.asked[2].prompt.text
    assert "files_read" in engine.asked[2].prompt.text
    assert "contents of a" in engine.asked[2].prompt.text
    assert engine.asked[2].prompt.text.startswith(engine.asked[1].prompt.text)  # what was read need not be read again
    assert kinds(kept) == kinds(resent) == ["message"]  # the tools were listed already


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
    assert [tool.name for tool in response.output[0].tools] == ["read"]
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


@pytest.mark.parametrize("tool_choice", [{"name": "erase"}, {}])
async def test_a_tool_of_a_server_can_be_demanded(tool_choice: Any) -> None:
    asking, engine = client(Disk(), calling(ERASE), "Done.")
    choice: Any = {"type": "mcp", "server_label": "files", **tool_choice}
    response = await asking.responses.create(model="m", input="hi", tools=[FILES, NOW], tool_choice=choice)
    assert kinds(response)[-1] == "mcp_approval_request"
    assert engine.asked[0].grammar is not None


# Beside the client's own functions


@pytest.mark.parametrize("stream", [False, True])
async def test_functions_of_the_client_stand_beside_a_servers_tools(stream: bool) -> None:
    disk = Disk()
    answer_text = calling(READ, Call("now"), ERASE)
    asking, engine = client(disk, answer_text, "All done.")
    first = await answered(asking, stream, input="hi", tools=[FILES, NOW])
    assert sorted(kinds(first)) == ["function_call", "mcp_approval_request", "mcp_call", "mcp_list_tools"]
    request = next(item for item in first.output if item.type == "mcp_approval_request")
    function = next(item for item in first.output if item.type == "function_call")
    output = {"type": "function_call_output", "call_id": function.call_id, "output": "noon"}
    body: Any = {"input": [output, word(request, True)], "tools": [FILES, NOW], "previous_response_id": first.id}
    second = await answered(asking, stream, **body)
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "All done.")
    assert disk.done == ["read a", "erase a"]
    for result in ("contents of a", "noon", "erased a"):
        assert engine.asked[1].prompt.text.count(result) == 1


async def test_a_call_that_waits_beside_a_function_is_made_once() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(Call("now"), ERASE), "All done.")
    first: Any = await asking.responses.create(model="m", input="hi", tools=[FILES, NOW])
    request, function = first.output[1:]
    output: Any = {"type": "function_call_output", "call_id": function.call_id, "output": "noon"}
    body: Any = [output, word(request, True)]
    await asking.responses.create(model="m", input=body, tools=[FILES, NOW], previous_response_id=first.id)
    prompt = engine.asked[1].prompt.text
    assert prompt.count('"name": "files_erase", "arguments"') == prompt.count("erased a") == prompt.count("noon") == 1


# A real server


@pytest.mark.req("R115")
async def test_a_real_servers_tools_wait_for_approval_and_run() -> None:
    async with McpHost([plain("desk")]) as host:
        model, engine = model_of(calling(Call("echo", {"text": "a"})), "It echoed.")
        asking = client_of(create_app({"m": model}, mcp=host))
        desk: Any = {"type": "mcp", "server_label": "desk", "allowed_tools": ["echo"], "require_approval": "always"}
        first: Any = await asking.responses.create(model="m", input="hi", tools=[desk])
        assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
        assert [tool.name for tool in first.output[0].tools] == ["echo"]
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
    assert [(item.server_label, [tool.name for tool in item.tools]) for item in response.output[:2]] == [
        ("web", ["read"]),
        ("files", ["read"]),
    ]
    assert (response.output[2].server_label, response.output[2].name) == ("web", "read")
    assert disk.done == []
