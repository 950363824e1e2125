"""Answers in the Anthropic dialect: nothing is lost on the way out or back, whoever sends them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.errors import ModelError
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    Text,
    Thought,
    Unenforced,
    Unreadable,
)
from callsmith.core.values import Call, Usage
from callsmith.wire.anthropic.blocks import SIGNATURE
from callsmith.wire.anthropic.events import EventReader, MessagesHeading, write_response
from tests.wire.blocks import HEADING, events_of, sent_of, text, use
from tests.wire.drawn import DECISIONS, reasons, said


@st.composite
def answers(draw: st.DrawFn) -> list[ModelEvent]:
    events = draw(said())
    reason = draw(reasons(events))
    matched = draw(st.sampled_from(["", "END"])) if reason == "stop" else ""
    report = draw(st.sampled_from([Report(), Report((Unenforced("add", "#", "not"),), 1, ("copy",))]))
    report = replace(report, decision=draw(DECISIONS))
    usage = draw(st.builds(Usage, *[st.integers(9, 99)] * 2, *[st.integers(0, 9)] * 2))
    return [*events, Stopped(reason, usage, report, matched)]


@given(answers())
def test_events_survive_the_way_there_and_back(events: list[ModelEvent]):
    sent = sent_of(events, MessagesHeading("i", "m", stops=("END",)))
    assert events_of(json.loads(json.dumps(sent))) == events


@given(answers())
def test_blocks_are_numbered_without_gaps_and_one_is_open_at_a_time(events: list[ModelEvent]):
    sent, began = sent_of(events), 0
    assert [event["type"] for event in sent[:1] + sent[-2:]] == ["message_start", "message_delta", "message_stop"]
    current = None
    for event in sent[1:-2]:
        if event["type"] == "content_block_start":
            assert current is None
            assert event["index"] == began
            current, began = event["index"], began + 1
        else:
            assert event["index"] == current
            current = None if event["type"] == "content_block_stop" else current
    assert current is None


@given(answers())
def test_streamed_or_whole_the_answer_is_the_same(events: list[ModelEvent]):
    blocks = write_response(events, HEADING)["content"]
    output = {"text": "", "thinking": ""}
    calls: list[Call] = []
    for block in blocks:
        if block["type"] == "tool_use":
            calls.append(Call(block["name"], block["input"], block["id"]))
        else:
            output[block["type"]] += block[block["type"]]
    assert output["text"] == "".join(event.text for event in events if isinstance(event, Text))
    assert output["thinking"] == "".join(event.text for event in events if isinstance(event, Thought))
    assert calls == [event.call for event in events if isinstance(event, CallReady)]


# What is answered


def test_events_come_in_the_order_and_shape_clients_count_on():
    call = Call("add", {"a": 1}, "c1", '{"a": 1}')
    events = [Thought("hm"), Text("so"), CallStarted(0, "add", "c1"), CallArguments(0, '{"a": '), CallArguments(0, "1}")]
    sent = sent_of([Started(Usage(7, cached=2)), *events, CallReady(0, call), Stopped("calls", Usage(7, 3, 2, 1))])
    start, *blocks, delta, stop = sent
    assert start["message"] == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": start["message"]["usage"],
    }
    usage = start["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (5, 2, 0)
    assert [(block["index"], block.get("content_block") or block.get("delta")) for block in blocks] == [
        (0, {"type": "thinking", "thinking": "", "signature": ""}),
        (0, {"type": "thinking_delta", "thinking": "hm"}),
        (0, {"type": "signature_delta", "signature": SIGNATURE}),
        (0, None),
        (1, {"type": "text", "text": ""}),
        (1, {"type": "text_delta", "text": "so"}),
        (1, None),
        (2, {"type": "tool_use", "id": "c1", "name": "add", "input": {}}),
        (2, {"type": "input_json_delta", "partial_json": '{"a": '}),
        (2, {"type": "input_json_delta", "partial_json": "1}"}),
        (2, None),
    ]
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"] == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 1},
    }
    assert stop == {"type": "message_stop"}


@pytest.mark.req("R121")
def test_a_whole_answer_holds_its_blocks_its_reason_and_its_cost():
    events = [Thought("hm"), Text("so"), CallReady(0, Call("add", {"a": 1})), CallReady(4, Call("now")), Stopped("calls")]
    message = write_response(events, HEADING)
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
        text("so"),
        use("toolu_msg_1_0", a=1),
        use("toolu_msg_1_4", "now"),
    ]
    assert (message["stop_reason"], message["type"], message["role"]) == ("tool_use", "message", "assistant")
    assert message["usage"]["output_tokens"] == 0
    assert "delta" not in message


@pytest.mark.parametrize(
    ("stopped", "stops", "reason", "matched"),
    [
        (Stopped("stop"), (), "end_turn", None),
        (Stopped("length"), (), "max_tokens", None),
        (Stopped("stop", matched="END"), ("END",), "stop_sequence", "END"),
        (Stopped("stop", matched="</s>"), (), "end_turn", None),  # a stop string of the model's own is none of the client's
        (Stopped("calls", matched="END"), ("END",), "tool_use", None),
    ],
)
def test_every_reason_to_stop_is_told(stopped: Stopped, stops: tuple[str, ...], reason: str, matched: str | None):
    message = write_response([Text("a"), stopped], MessagesHeading("i", "m", stops=stops))
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, matched)


def test_thoughts_that_were_not_wanted_are_not_shown():
    message = write_response([Thought("hm"), Text("so"), Stopped("stop")], MessagesHeading("i", "m", shows_thoughts=False))
    assert message["content"] == [text("so")]


def test_a_call_that_is_cut_off_is_never_shown_as_one_without_arguments():
    events = [CallStarted(0, "add", "c"), Unreadable("<tool_call>add", "cut", 0), Stopped("length")]
    assert write_response(events, HEADING)["content"] == [text("<tool_call>add")]
    assert "tool_use" not in json.dumps([event for event in sent_of(events) if event["type"] == "content_block_start"])
    begun = [CallStarted(0, "add", "c"), CallArguments(0, '{"a'), Unreadable('<tool_call>add{"a', "cut", 0), Stopped("length")]
    assert write_response(begun, HEADING)["content"] == [text('{"a')]
    assert events_of(sent_of(begun))[2] == Unreadable('{"a', "the arguments are no JSON object", 0)


def test_an_answer_that_just_ends_is_ended():
    assert [event["type"] for event in sent_of([])] == ["message_start", "message_delta", "message_stop"]
    assert sent_of([Text("a")])[-3]["type"] == "content_block_stop"
    assert write_response([], HEADING)["content"] == []


# What other servers send


def test_a_call_whose_arguments_never_come_or_come_at_once_is_understood():
    def block(index: int, **more: Any) -> list[Any]:
        start = {"type": "content_block_start", "index": index, "content_block": {**use(f"c{index}"), **more}}
        return [start, {"type": "ping"}, {"type": "content_block_stop", "index": index}]

    ready = [event.call for event in events_of(block(0) + block(1, input={"a": 1})) if isinstance(event, CallReady)]
    assert ready == [Call("add", {}, "c0"), Call("add", {"a": 1}, "c1")]


def test_a_stream_that_breaks_off_leaves_no_call_that_looks_whole():
    start = {"type": "content_block_start", "index": 0, "content_block": use("c")}
    assert isinstance(events_of([start])[1], Unreadable)


def test_counts_of_the_beginning_stay_where_the_end_has_none():
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 2}}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3, "input_tokens": None}}
    assert events_of([start, end]) == [Stopped("stop", Usage(7, 3, 2))]


def test_an_error_in_the_stream_is_raised():
    with pytest.raises(ModelError, match="busy") as caught:
        EventReader().feed({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert caught.value.retryable
