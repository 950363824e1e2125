"""Calls in every dialect that sends them in pieces: each keeps its own arguments and its own id, whatever order they come in."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Stopped,
    Text,
    ToolFinished,
    ToolStarted,
    Unreadable,
)
from callsmith.core.values import Call, Result
from callsmith.wire.anthropic import events as anthropic
from callsmith.wire.calls import CallAssembler
from callsmith.wire.openai import chat_events as chat
from callsmith.wire.openai import responses_events as responses
from tests.wire.blocks import sent_of

ADD, PAY = Call("add", {"a": 1, "b": 2}, "c1"), Call("pay", {"sum": 10}, "c2")

INTERLEAVED: list[ModelEvent] = [
    CallStarted(0, "add", "c1"),
    CallStarted(1, "pay", "c2"),
    CallArguments(1, PAY.text[:4]),
    CallArguments(0, ADD.text[:5]),
    CallArguments(1, PAY.text[4:]),
    CallReady(1, PAY),
    CallArguments(0, ADD.text[5:]),
    CallReady(0, ADD),
    Stopped("calls"),
]

Made = list[tuple[str, str, str]]  # id, name and arguments of each call


def in_chat(events: Sequence[ModelEvent]) -> Made:
    writer = chat.ChunkWriter(chat.ChatHeading("i", "m", 1))
    chunks = [chunk for event in events for chunk in writer.write(event)]
    calls: dict[int, list[str]] = {}
    for delta in (call_delta for chunk in chunks for call_delta in chunk["choices"][0]["delta"].get("tool_calls", ())):
        call = calls.setdefault(delta["index"], [delta.get("id", ""), delta["function"].get("name", ""), ""])
        call[2] += delta["function"]["arguments"]
    return [(id, name, text) for id, name, text in calls.values()]


def in_responses(events: Sequence[ModelEvent]) -> Made:
    writer = responses.EventWriter(responses.ResponsesHeading("resp_1", "m", 1))
    calls: dict[str, list[str]] = {}
    for sent in (sent_event for event in events for sent_event in writer.write(event)):
        if sent["type"] == "response.output_item.added" and sent["item"]["type"] == "function_call":
            calls[sent["item"]["id"]] = [sent["item"]["call_id"], sent["item"]["name"], ""]
        elif sent["type"] == "response.function_call_arguments.delta":
            calls[sent["item_id"]][2] += sent["delta"]
    return [(id, name, text) for id, name, text in calls.values()]


def in_messages(events: Sequence[ModelEvent]) -> Made:
    calls: dict[int, list[str]] = {}
    for sent in sent_of(events):
        if sent["type"] == "content_block_start" and sent["content_block"]["type"] == "tool_use":
            calls[sent["index"]] = [sent["content_block"]["id"], sent["content_block"]["name"], ""]
        elif sent["type"] == "content_block_delta" and sent["delta"]["type"] == "input_json_delta":
            calls[sent["index"]][2] += sent["delta"]["partial_json"]
    return [(id, name, text) for id, name, text in calls.values()]


dialects = pytest.mark.parametrize("calls_in", [in_chat, in_responses, in_messages])


@dialects
def test_interleaved_calls_keep_their_own_arguments(calls_in: Callable[[Sequence[ModelEvent]], Made]):
    assert sorted(calls_in(INTERLEAVED)) == [("c1", "add", ADD.text), ("c2", "pay", PAY.text)]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (chat.ChunkWriter(chat.ChatHeading("i", "m", 1)), chat.EventReader()),
        (responses.EventWriter(responses.ResponsesHeading("resp_1", "m", 1)), responses.EventReader()),
        (anthropic.EventWriter(anthropic.MessagesHeading("i", "m")), anthropic.EventReader()),
    ],
    ids=["chat", "responses", "anthropic"],
)
def test_interleaved_calls_are_read_back_as_they_were(writer: Any, reader: Any):
    sent = [sent_event for event in INTERLEAVED for sent_event in writer.write(event)]
    read = [event for item in sent for event in reader.feed(item)] + reader.close()
    ready = [event.call for event in read if isinstance(event, CallReady)]
    assert sorted(ready, key=lambda call: call.id) == [ADD, PAY]


@dialects
@pytest.mark.parametrize("id", ["", "same"])
def test_no_two_calls_of_an_answer_have_the_same_id(calls_in: Callable[[Sequence[ModelEvent]], Made], id: str):
    twice = [Call("add", {"a": 1}, id), Call("add", {"a": 2}, id), Call("pay", {}, id)]
    ids = [call_id for call_id, _, _ in calls_in([CallReady(index, call) for index, call in enumerate(twice)])]
    assert len(set(ids)) == 3
    assert all(ids)


def test_an_id_that_a_run_uses_again_in_a_later_round_is_another_one_on_the_wire():
    heading = anthropic.MessagesHeading("msg_1", "m", mcp_tools={"add": ("sums", "add")})
    rounds = [(Call("add", {"a": number}, "c1"), Result("c1", "add", f"{number}")) for number in range(3)]
    ran = [event for call, result in rounds for event in (ToolStarted(call), ToolFinished(result), Text("so"))]
    message = anthropic.write_response([*ran, CallReady(0, Call("pay", {}, "c1")), Stopped("calls")], heading)
    uses = [block for block in message["content"] if block["type"] in ("mcp_tool_use", "tool_use")]
    results = [block for block in message["content"] if block["type"] == "mcp_tool_result"]
    assert len({block["id"] for block in uses}) == 4
    assert [block["tool_use_id"] for block in results] == [block["id"] for block in uses[:3]]
    assert [block["content"][0]["text"] for block in results] == ["0", "1", "2"]


@dialects
def test_what_comes_after_the_end_of_a_call_is_not_sent(calls_in: Callable[[Sequence[ModelEvent]], Made]):
    late: list[ModelEvent] = [CallArguments(0, "x"), CallReady(0, ADD), CallStarted(0, "add", "c9"), Unreadable("x", "why", 0)]
    assert calls_in([CallReady(0, ADD), *late]) == [("c1", "add", ADD.text)]


def test_a_call_that_is_ended_twice_is_read_once():
    calls = CallAssembler()
    assert calls.start(7, "pay", "c2") == [CallStarted(0, "pay", "c2")]
    assert calls.end(7, PAY.text) == [CallArguments(0, PAY.text), CallReady(0, PAY)]
    assert calls.end(7, PAY.text) == []


@pytest.mark.parametrize("reader", [chat.EventReader(), responses.EventReader(), anthropic.EventReader()])
def test_the_pieces_of_arguments_add_up_to_their_text_also_where_there_are_none(reader: Any):
    item = {"type": "function_call", "name": "now", "call_id": "c"}
    block = {"type": "tool_use", "id": "c", "name": "now"}
    bare = {
        chat.EventReader: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "now"}}]}}]},
        responses.EventReader: {"type": "response.output_item.done", "item": item},
        anthropic.EventReader: {"type": "content_block_start", "index": 0, "content_block": block},
    }
    events = [*reader.feed(bare[type(reader)])]
    events += reader.feed({"type": "content_block_stop", "index": 0}) if isinstance(reader, anthropic.EventReader) else []
    events += reader.close()
    assert events[:3] == [CallStarted(0, "now", "c"), CallArguments(0, "{}"), CallReady(0, Call("now", {}, "c"))]
