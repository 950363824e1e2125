"""Answers in the Responses dialect: nothing is lost on the way out or back, whoever sends them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from openai._models import validate_type
from openai.types.responses import Response, ResponseStreamEvent

from callsmith.core.errors import ModelError
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Stopped,
    Text,
    Thought,
    Unenforced,
    Unreadable,
)
from callsmith.core.values import Call, Message, Usage
from callsmith.wire.openai.common import write_failure
from callsmith.wire.openai.responses import read_request
from callsmith.wire.openai.responses_events import EventReader, EventWriter, ResponsesHeading, write_response
from tests.effort import tries
from tests.wire.drawn import answers
from tests.wire.openai.test_responses import call, messages

HEADING = ResponsesHeading("resp_1", "m", 1, read_request({"model": "m", "input": "hi"}).repeated)


def sent_for(events: list[ModelEvent], heading: ResponsesHeading = HEADING) -> list[dict[str, Any]]:
    writer = EventWriter(heading)
    return [sent_event for event in events for sent_event in writer.write(event)] + writer.close()


def events_of(sent: list[Any]) -> list[ModelEvent]:
    reader = EventReader()
    return [event for item in sent for event in reader.feed(item)] + reader.close()


@given(answers())
def test_events_survive_the_way_there_and_back(events: list[ModelEvent]):
    assert events_of(json.loads(json.dumps(sent_for(events)))) == events


@given(answers())
@settings(max_examples=tries(15, 50))
def test_streamed_or_whole_the_answer_is_the_same_and_keeps_to_the_rules(events: list[ModelEvent]):
    sent = sent_for(events)
    last = sent[-1]["response"]
    assert last == write_response(events, HEADING)
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert [event["type"] for event in sent[:2]] == ["response.created", "response.in_progress"]
    added = {event["output_index"]: event["item"] for event in sent if event["type"] == "response.output_item.added"}
    done = {event["output_index"]: event["item"] for event in sent if event["type"] == "response.output_item.done"}
    assert list(done.values()) == last["output"]
    assert [(item["id"], item["type"], item.get("call_id")) for item in added.values()] == [
        (item["id"], item["type"], item.get("call_id")) for item in done.values()
    ]
    assert len({item["id"] for item in done.values()}) == len(done)
    assert {item["status"] for item in added.values()} <= {"in_progress"}
    text = "".join(part["text"] for item in last["output"] if item["type"] == "message" for part in item["content"])
    assert text == "".join(event.text for event in events if isinstance(event, Text))


@given(answers())
@settings(max_examples=tries(10, 30), deadline=None)
def test_the_clients_own_models_accept_every_event(events: list[ModelEvent]):
    for event in sent_for(events):
        validate_type(type_=ResponseStreamEvent, value=event)
    validate_type(type_=Response, value=write_response(events, HEADING))


# What is answered

CALL = Call("add", {"a": 1}, "c1", '{"a": 1}')
ONE_CALL: list[ModelEvent] = [
    CallStarted(0, "add", "c1"),
    CallArguments(0, '{"a": '),
    CallArguments(0, "1}"),
    CallReady(0, CALL),
    Stopped("calls", Usage(3, 2, 1, 1)),
]


@pytest.mark.req("R103")
def test_events_come_in_the_order_clients_count_on():
    sent = sent_for([Thought("h"), Thought("m"), Text("so"), *ONE_CALL])
    assert [event["type"].removeprefix("response.") for event in sent] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]  # fmt: skip
    response = sent[-1]["response"]
    assert response["status"] == "completed"
    assert response["output"] == [
        {
            "id": "rs_1_0",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "status": "completed",
        },
        {
            "id": "msg_1_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so", "annotations": [], "logprobs": []}],
            "status": "completed",
        },
        {"id": "fc_1_2", "type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "status": "completed"},
    ]
    assert response["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 5,
    }


def test_thoughts_are_a_summary_for_whoever_asks_for_one():
    heading = replace(HEADING, repeated={**HEADING.repeated, "reasoning": {"effort": None, "summary": "auto"}})
    sent = sent_for([Thought("h"), Thought("m"), Text("so"), Stopped("stop", Usage(3, 2))], heading)
    assert [event["type"].removeprefix("response.") for event in sent[2:10]] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done", "output_item.added",
    ]  # fmt: skip
    assert [event["summary_index"] for event in sent[3:8]] == [0] * 5
    for event in sent:
        validate_type(type_=ResponseStreamEvent, value=event)
    summary = [{"type": "summary_text", "text": "hm"}]
    reasoning = sent[-1]["response"]["output"][0]
    assert reasoning == {"id": "rs_1_0", "type": "reasoning", "summary": summary, "status": "completed"}
    assert messages(reasoning) == (Message.assistant(reasoning="hm"),)
    read_back = [Thought("h"), Thought("m"), Text("so"), Stopped("stop", Usage(3, 2))]
    assert events_of(sent) == read_back
    assert events_of([{"type": "response.output_item.done", "output_index": 0, "item": reasoning}])[0] == Thought("hm")


def test_calls_side_by_side_keep_their_places_and_get_ids_of_their_own():
    events: list[ModelEvent] = [
        CallStarted(0, "a", "x"),
        CallStarted(1, "b", "x"),
        CallArguments(1, "{}"),
        CallArguments(0, "{}"),
        CallReady(1, Call("b", {}, "x")),
        CallReady(0, Call("a", {}, "x")),
        CallReady(2, Call("c", {"d": 1})),
        Stopped("calls"),
    ]
    output = write_response(events, HEADING)["output"]
    assert [(item["name"], item["arguments"]) for item in output] == [("a", "{}"), ("b", "{}"), ("c", '{"d": 1}')]
    assert len({item["call_id"] for item in output} - {""}) == 3
    assert [event.call.name for event in events_of(sent_for(events)) if isinstance(event, CallReady)] == ["b", "a", "c"]


def test_an_answer_that_was_cut_is_incomplete_and_says_why():
    sent = sent_for([Text("so f"), Stopped("length", Usage(1, 2))])
    assert sent[-1]["type"] == "response.incomplete"
    response = sent[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete"
    assert events_of(sent) == [Text("so f"), Stopped("length", Usage(1, 2))]


def test_what_is_unreadable_is_said_unless_its_call_has_begun_to_stream():
    lost = write_response([Unreadable("<tool_call>{", "cut", None), Stopped("stop")], HEADING)
    assert lost["output"][0]["content"][0]["text"] == "<tool_call>{"
    begun = [CallStarted(0, "add", "c"), CallArguments(0, "{"), Unreadable("<tool_call>{", "cut", 0), Stopped("length")]
    (item,) = write_response(begun, HEADING)["output"]
    assert (item["type"], item["arguments"], item["status"]) == ("function_call", "{", "incomplete")


def test_an_answer_that_just_ends_is_ended():
    assert sent_for([Text("a")])[-1]["response"]["status"] == "completed"
    assert [event["type"] for event in sent_for([])] == ["response.created", "response.in_progress", "response.completed"]


def test_an_answer_that_fails_or_is_cancelled_ends_every_item_it_has_begun():
    for end in ("failed", "cancelled"):
        writer = EventWriter(HEADING)
        sent = [sent_event for event in (Text("a"), CallStarted(0, "add", "c")) for sent_event in writer.write(event)]
        sent += writer.fail(write_failure(503, "gone")) if end == "failed" else writer.cancel()
        assert sum(event["type"].endswith("item.added") for event in sent) == 2
        assert sum(event["type"].endswith("item.done") for event in sent) == 2
        assert sent[-1]["response"]["status"] == end
        assert writer.write(Text("more")) == []
    with pytest.raises(ModelError, match="gone"):
        events_of([{"type": "response.failed", "response": {"error": {"code": "server_error", "message": "gone"}}}])


def test_a_call_in_a_namespace_is_given_back_in_it():
    heading = ResponsesHeading("resp_1", "m", 1, {}, {"crm__sub": ("crm", "sub")})
    sent = sent_for([CallReady(0, Call("crm__sub", {}, "c1")), Stopped("calls")], heading)
    (item,) = sent[-1]["response"]["output"]
    assert (item["name"], item["namespace"]) == ("sub", "crm")
    assert CallReady(0, Call("crm__sub", {}, "c1")) in events_of(sent)


def test_how_far_an_answer_was_held_to_its_schemas_is_told():
    report = Report((Unenforced("add", "#", "not"),), 1)
    sent = sent_for([Stopped("stop", Usage(), report)])
    assert sent[-1]["response"]["callsmith"]["retries"] == 1
    assert events_of(sent) == [Stopped("stop", Usage(), report)]


# What other servers send


def test_items_that_come_whole_are_read():
    items: list[Any] = [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "so"}]},
        call("c1", "add", '{"a": 1}'),
        call("c2", "now", ""),
        call("c3", "bad", "{"),
    ]
    sent = [{"type": "response.output_item.done", "output_index": place, "item": item} for place, item in enumerate(items)]
    kept = [event for event in events_of(sent) if not isinstance(event, CallStarted | CallArguments)]
    assert kept == [
        Thought("hm"),
        Text("so"),
        CallReady(0, Call("add", {"a": 1}, "c1")),
        CallReady(1, Call("now", {}, "c2")),
        Unreadable("{", "the arguments are no JSON object", 2),
        Stopped("calls"),
    ]


@pytest.mark.parametrize("sent", [{"error": {"message": "busy"}}, {"type": "error", "message": "busy"}])
def test_an_error_in_the_stream_is_raised(sent: Any):
    with pytest.raises(ModelError, match="busy"):
        EventReader().feed(sent)
