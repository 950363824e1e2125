"""Answers in the chat completions dialect: nothing is lost on the way out or back, whoever sends them."""

import json
from typing import Any

import pytest
from hypothesis import given

from callsmith.core.errors import ModelError
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Call, Usage
from callsmith.wire.openai.chat_events import ChatHeading, ChunkWriter, EventReader, write_response
from tests.wire.drawn import answers

HEADING = ChatHeading("chatcmpl-1", "m", 1)


def chunks_of(events: list[ModelEvent], heading: ChatHeading = HEADING) -> list[dict[str, Any]]:
    writer = ChunkWriter(heading)
    return [chunk for event in events for chunk in writer.write(event)] + writer.close()


def events_of(chunks: list[Any]) -> list[ModelEvent]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


@given(answers())
def test_events_survive_the_way_there_and_back(events: list[ModelEvent]):
    chunks = chunks_of(events, ChatHeading("i", "m", 1, include_usage=True))
    assert events_of(json.loads(json.dumps(chunks))) == events


@given(answers())
def test_streamed_or_whole_the_answer_is_the_same(events: list[ModelEvent]):
    message = write_response(events, HEADING)["choices"][0]["message"]
    assert (message["content"] or "") == "".join(event.text for event in events if isinstance(event, Text))
    assert [
        (call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"])
        for call in message.get("tool_calls", [])
    ] == [(event.call.name, event.call.arguments, event.call.id) for event in events if isinstance(event, CallReady)]


# What is answered

ONE_CALL: list[ModelEvent] = [
    CallStarted(0, "add", "c1"),
    CallArguments(0, '{"a": '),
    CallArguments(0, "1}"),
    CallReady(0, Call("add", {"a": 1}, "c1", '{"a": 1}')),
    Stopped("calls", Usage(3, 2)),
]


def deltas(chunks: list[dict[str, Any]]) -> list[Any]:
    return [chunk["choices"][0]["delta"] if chunk["choices"] else chunk["usage"] for chunk in chunks]


@pytest.mark.req("R103")
@pytest.mark.req("R118")
def test_chunks_come_in_the_order_and_shape_clients_count_on():
    events: list[ModelEvent] = [Thought("hm"), Text("so"), *ONE_CALL]
    chunks = chunks_of(events, ChatHeading("i", "m", 1, include_usage=True))
    assert deltas(chunks) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"content": "so"},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {},
        {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 6 + ["tool_calls"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_a_call_that_comes_whole_is_sent_whole_and_gets_an_id_if_it_has_none():
    chunks = chunks_of([CallReady(3, Call("add", {"a": 1})), CallReady(7, Call("add", {})), Stopped("calls")])
    sent = [delta["tool_calls"][0] for delta in deltas(chunks) if "tool_calls" in delta]
    assert [call["index"] for call in sent] == [0, 0, 1, 1]
    assert [call["function"]["arguments"] for call in sent] == ["", '{"a": 1}', "", "{}"]
    assert len({call["id"] for call in sent if "id" in call} - {""}) == 2


def test_what_is_unreadable_is_content_unless_its_call_has_begun_to_stream():
    lost = chunks_of([Unreadable("<tool_call>{", "cut", None), CallReady(1, Call("add")), Stopped("calls")])
    assert deltas(lost)[1] == {"content": "<tool_call>{"}
    assert deltas(lost)[2]["tool_calls"][0]["index"] == 0
    begun = chunks_of(
        [CallStarted(0, "add", "c"), CallArguments(0, "{"), Unreadable("<tool_call>{", "cut", 0), Stopped("length")]
    )
    assert not any("content" in delta for delta in deltas(begun)[1:])
    assert begun[-1]["choices"][0]["finish_reason"] == "length"


def test_an_answer_that_just_ends_is_ended():
    assert chunks_of([Text("a")])[-1]["choices"][0]["finish_reason"] == "stop"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks_of([])] == [None, "stop"]


@pytest.mark.req("R120")
def test_who_asked_with_functions_is_answered_with_a_function_call():
    heading = ChatHeading("i", "m", 1, legacy=True)
    events = [*ONE_CALL[:-1], CallReady(1, Call("add", {}, "c2")), ONE_CALL[-1]]
    assert deltas(chunks_of(events, heading)) == [
        {"role": "assistant", "content": ""},
        {"function_call": {"name": "add", "arguments": ""}},
        {"function_call": {"arguments": '{"a": '}},
        {"function_call": {"arguments": "1}"}},
        {},
    ]
    choice = write_response(events, heading)["choices"][0]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "add", "arguments": '{"a": 1}'}
    assert "tool_calls" not in choice["message"]


@pytest.mark.req("R7")
def test_a_whole_answer_has_null_content_beside_calls_and_text_otherwise():
    called = write_response(ONE_CALL, HEADING)
    assert called["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
    }
    assert called["usage"]["total_tokens"] == 5
    assert write_response([Stopped("stop")], HEADING)["choices"][0]["message"]["content"] == ""


# What other servers send


def test_interleaved_calls_keep_all_their_arguments():
    def delta(index: int, **function: str) -> dict[str, Any]:
        return {"choices": [{"delta": {"tool_calls": [{"index": index, "function": function}]}}]}

    chunks = [
        delta(5, name="a", arguments='{"x"'),
        delta(6, name="b", arguments='{"y"'),
        delta(5, arguments=": 1}"),
        delta(6, arguments=": 2}"),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]
    ready = [event.call for event in events_of(chunks) if isinstance(event, CallReady)]
    assert ready == [Call("a", {"x": 1}), Call("b", {"y": 2})]


def test_calls_without_an_index_or_without_arguments_are_understood():
    function = {"name": "a", "arguments": "{}"}
    chunks = [
        {"choices": [{"delta": {"tool_calls": [{"id": "1", "function": function}, {"id": "2", "function": {"name": "b"}}]}}]},
        {"choices": [{"delta": {"content": "."}, "finish_reason": "stop"}]},
    ]
    ready = [event for event in events_of(chunks) if isinstance(event, CallReady)]
    assert ready == [CallReady(0, Call("a", {}, "1")), CallReady(1, Call("b", {}, "2"))]


def test_arguments_that_never_become_json_are_unreadable():
    chunk = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "a", "arguments": '{"x'}}]}}]}
    events = events_of([chunk])
    assert isinstance(events[-2], Unreadable)
    assert (events[-2].text, events[-2].index) == ('{"x', 0)


def test_an_error_in_the_stream_is_raised():
    with pytest.raises(ModelError, match="overloaded"):
        EventReader().feed({"error": {"message": "overloaded"}})


def test_thoughts_that_are_not_wanted_are_not_shown():
    heading = ChatHeading("i", "m", 0, shows_thoughts=False)
    whole = write_response([Thought("hm"), Text("so"), Stopped("stop")], heading)
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "so", "refusal": None}
