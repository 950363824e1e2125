"""The samples of M21, over a bus of this process, over WebSocket and as server-sent events."""

import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.compat.m21 import ToolCall, ToolDefinition, ToolExecutor, ToolResult
from callsmith.core.approval import ConfirmationRequired
from callsmith.core.errors import UnknownName
from callsmith.server.app import create_app
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.settings_sources import merge_settings, read_settings_file
from tests.capabilities.chatting import called, chat_bus
from tests.fakes import FakeModel, says
from tests.server.asking import http
from tests.server.routes.bus.calling import envelope, frames_of, post, send, socket_to, sse_frames
from tests.serving import served

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}, "corpus": {"type": "string"}}, "required": ["query"]}
ASKED = {"query": "Regenwasser", "corpus": "niederrhein-emergency"}
FOUND = {"chunks": [{"text": "Ein Filter reicht."}]}
REPLIES = "I'll search " + called(("rag.query", ASKED)), "Ein Filter reicht."


def definition(name: str = "rag.query", **options: Any) -> Any:
    bound: dict[str, Any] = {"bound_capability": "rag.query", "bound_version": (1, 0), "side_effects": False} | options
    return ToolDefinition(name=name, description="Search a corpus", parameters_schema=SCHEMA, **bound)


def village(*replies: str) -> tuple[CapabilityBus, list[CapabilityCall]]:
    """A bus with a model, and rag.query, which remembers what it was asked."""
    bus, _ = chat_bus(*replies)
    asked: list[CapabilityCall] = []

    async def query(call: CapabilityCall) -> dict[str, Any]:
        asked.append(call)
        return {"output": FOUND, "meta": {}}

    bus.register(Descriptor("rag.query"), query)
    return bus, asked


@pytest.mark.req("R13", "R14", "R15", "R88", "R89")
async def test_the_data_types_and_the_executor() -> None:
    bus, asked = village()
    executor = ToolExecutor(bus, [definition()], max_iterations=6, per_tool_timeout_seconds=30)
    assert (definition().bound_capability, definition().bound_version) == ("rag.query", (1, 0))
    assert executor.native_definitions == [{"name": "rag.query", "description": "Search a corpus", "parameters_schema": SCHEMA}]

    result = await executor.dispatch(ToolCall(id="tc_1", name="rag.query", arguments=ASKED))
    assert result == ToolResult(tool_call_id="tc_1", name="rag.query", content=FOUND, is_error=False)
    assert [call.input for call in asked] == [ASKED]

    wrong = await executor.dispatch(ToolCall(id="tc_2", name="rag.query", arguments={"query": 5}))
    assert (wrong.is_error, str(wrong.content)[:19]) == (True, "invalid_arguments: ")


@pytest.mark.req("R90")
async def test_a_chat_with_the_native_definitions_of_the_executor_in_its_body() -> None:
    bus, asked = village(*REPLIES)
    executor = ToolExecutor(bus, [definition(), definition("other")])
    frames: list[dict[str, Any]] = []

    async def stream_to(frame: dict[str, Any]) -> None:
        frames.append(frame)

    body = {
        "params": {},
        "input": {
            "messages": [{"role": "user", "content": "Darf man Regenwasser trinken?"}],
            "tools": [
                native_definition for native_definition in executor.native_definitions if native_definition["name"] == "rag.query"
            ],
            "tool_choice": "auto",
        },
    }
    message = await executor.run_chat_with_tools(body, stream_to=stream_to)
    assert (message["role"], message["content"]) == ("assistant", "Ein Filter reicht.")
    assert [call.input for call in asked] == [ASKED]
    assert [frame["event"] for frame in frames][-1] == "done"
    assert next(frame["data"]["arguments"] for frame in frames if frame["event"] == "tool_call") == ASKED


async def test_a_tool_in_the_body_that_the_executor_does_not_have_is_named() -> None:
    bus, _ = village(*REPLIES)
    body = {"input": {"messages": [{"role": "user", "content": "go"}], "tools": [{"name": "rag.qery"}]}}
    with pytest.raises(UnknownName, match=r"unknown tool 'rag\.qery'; did you mean 'rag\.query'\?"):
        await ToolExecutor(bus, [definition()]).run_chat_with_tools(body)


def checked(frames: list[tuple[str, Any]]) -> dict[str, Any]:
    """The call in frames that are those of the document: tokens, deltas of a call, the call."""
    kinds = [event for event, _ in frames if event in ("token", "tool_call_delta", "tool_call")]
    assert list(dict.fromkeys(kinds)) == ["token", "tool_call_delta", "tool_call"]
    assert "".join(data["text"] for event, data in frames if event == "token").strip() == "I'll search"
    deltas = [data for event, data in frames if event == "tool_call_delta"]
    assert deltas[0]["name"] == "rag.query"
    call = next(data for event, data in frames if event == "tool_call")
    assert (call["name"], call["arguments"]) == ("rag.query", ASKED)
    assert json.loads("".join(delta["arguments_delta"] for delta in deltas)) == ASKED
    return call


NATIVE = {"name": "rag.query", "description": "Search a corpus", "parameters_schema": SCHEMA}
QUESTION: dict[str, Any] = {"role": "user", "content": "Regenwasser?"}


def request(*messages: dict[str, Any]) -> dict[str, Any]:
    body = {"params": {}, "input": {"messages": [QUESTION, *messages], "tools": [NATIVE]}}
    return {"envelope": envelope(body=body, stream=True)}


@pytest.mark.req("R105", "R106", "R107", "R108")
async def test_the_frames_and_a_result_over_websocket() -> None:
    bus, _ = chat_bus(*REPLIES)
    async with served(create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)])) as url, socket_to(url) as socket:
        await send(socket, type="call", **request())
        frames = [json.loads(await socket.recv())]
        while frames[-1]["event"] != "tool_call":
            frames.append(json.loads(await socket.recv()))
            await send(socket, type="ack", upto=frames[-1]["seq"])
        call = checked([(frame["event"], frame["data"]) for frame in frames])
        await send(socket, type="tool_result", tool_call_id=call["id"], body=FOUND)
        rest = await frames_of(socket)
    assert "".join(item["data"]["text"] for item in rest if item["event"] == "token") == "Ein Filter reicht."
    assert rest[-1]["event"] == "done"


@pytest.mark.req("R109", "R110")
async def test_the_frames_and_a_second_call_where_there_are_server_sent_events_only() -> None:
    bus, _ = chat_bus(*REPLIES)
    async with http(create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)])) as client:
        call = checked(sse_frames((await post(client, request())).text))
        again = request(
            {
                "role": "assistant",
                "content": "...",
                "tool_calls": [{"id": call["id"], "name": "rag.query", "arguments": call["arguments"]}],
            },
            {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(FOUND)},
        )
        frames = sse_frames((await post(client, again)).text)
    assert "".join(data["text"] for event, data in frames if event == "token") == "Ein Filter reicht."
    assert frames[-1][0] == "done"


@pytest.mark.req("R93", "R94")
async def test_the_flow_of_a_tool_with_side_effects() -> None:
    bus, asked = village(called(("market.post", ASKED)), "Posted.")
    executor = ToolExecutor(bus, [definition("market.post", side_effects=True)])
    frames: list[dict[str, Any]] = []

    async def stream_to(frame: dict[str, Any]) -> None:
        frames.append(frame)

    await executor.run_chat_with_tools({"input": {"messages": [QUESTION]}}, stream_to=stream_to)
    assert "confirmation_required" in [frame["event"] for frame in frames]
    assert asked == []
    call = ToolCall(id="tc_1", name="market.post", arguments=ASKED)
    with pytest.raises(ConfirmationRequired, match="requires_confirmation"):
        await executor.dispatch(call)
    assert (await executor.dispatch_confirmed(call)).is_error is False  # user clicks yes
    assert len(asked) == 1


@pytest.mark.req("R123")
async def test_a_capability_is_called_as_a_tool_would_be() -> None:
    bus, asked = village()
    target = {"target_capability": "rag.query", "target_version": [1, 0], "target_body": {"input": ASKED}}
    answer = await bus.call("llm.tools.call", (1, 0), {"input": target})
    assert answer["output"] == FOUND
    assert [call.input for call in asked] == [ASKED]


@pytest.mark.req("R162")
def test_the_configuration_under_its_names(tmp_path: Path) -> None:
    written = """
        llm.tools_enabled = true
        llm.tools_max_iterations = 6
        llm.tools_per_tool_timeout_seconds = 30
        llm.tools_max_parallel = 4
        llm.tools_default_set = ["search_corpus", "list_corpora", "translate", "list_marketplace"]
        llm.tools_require_confirmation_for_side_effects = true
    """
    (tmp_path / "callsmith.toml").write_text(written, "utf-8")
    config = merge_settings(read_settings_file(tmp_path / "callsmith.toml")).settings
    assert config.llm.tools_enabled
    assert config.llm.tools_default_set == ("search_corpus", "list_corpora", "translate", "list_marketplace")
    assert config.llm.tools_require_confirmation_for_side_effects
    assert (config.limits.iterations, config.limits.seconds, config.limits.parallel) == (6, 30, 4)
