"""The Responses dialect: what is read, what is refused, and that nothing is lost on the way out or back."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._models import validate_type
from openai.types.responses import Response, ResponseStreamEvent

from callsmith.core.errors import ModelError, UsageError
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
from callsmith.core.values import Call, Choice, Message, Output, Request, Sampling, Tool, Usage
from callsmith.wire.openai import write_error, write_failure
from callsmith.wire.openai_responses import Needs, ResponsesRequest, read_needs, read_request, write_request
from callsmith.wire.openai_responses_events import EventReader, EventWriter, Heading, write_response
from tests.wire.test_openai_chat import CALLS, NAMES, ODD, TOOLS, WORDS, answers

ADD = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": True}
SUB = {"type": "function", "name": "sub"}
HEADING = Heading("resp_1", "m", 1, read_request({"model": "m", "input": "hi"}).repeated)


def read(**body: Any) -> ResponsesRequest:
    return read_request({"model": "m", "input": "hi", **body})


def messages(*items: Any) -> tuple[Message, ...]:
    return read(input=list(items)).request.messages


# What is read


def test_a_plain_request_leaves_everything_to_the_model_and_is_stored():
    assert read() == ResponsesRequest("m", Request((Message.user("hi"),)))
    assert read().store
    assert not read(store=False).store


def test_instructions_stand_before_what_came_earlier_and_that_before_the_input():
    earlier = [{"type": "message", "role": "user", "content": "first"}, {"role": "assistant", "content": "second"}]
    asked = read_request({"model": "m", "instructions": "be brief", "input": "third"}, earlier)
    assert [message.content for message in asked.request.messages] == ["be brief", "first", "second", "third"]
    assert [item["content"] for item in asked.input] == ["third"]


def test_messages_are_read_in_every_form():
    assert messages(
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "e"}]},
    ) == (Message.system("a"), Message.system("b"), Message.user("c\nd"), Message.assistant("e"))


def call(id: str, name: str = "add", arguments: str = "{}", **more: Any) -> Any:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments, **more}


def output(id: str, said: Any) -> Any:
    return {"type": "function_call_output", "call_id": id, "output": said}


def reasoning(*texts: str, **more: Any) -> Any:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": t} for t in texts]}


@pytest.mark.req("R9")
@pytest.mark.req("R12")
def test_the_items_of_one_answer_make_one_message_and_outputs_learn_their_tools_name():
    said = {"type": "message", "role": "assistant", "content": "so"}
    assert messages(reasoning("hm"), said, call("1"), call("2", "sub", '{"a": 1}'), output("1", "3"), output("2", "4")) == (
        Message.assistant("so", reasoning="hm", calls=[Call("add", {}, "1"), Call("sub", {"a": 1}, "2")]),
        Message("tool", "3", call_id="1", name="add"),
        Message("tool", "4", call_id="2", name="sub"),
    )


def test_answers_that_follow_each_other_stay_apart():
    one, two = {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
    assert messages(one, two) == (Message.assistant("a"), Message.assistant("b"))
    assert messages(one, reasoning("hm"), call("1")) == (
        Message.assistant("a"),
        Message.assistant(reasoning="hm", calls=[Call("add", {}, "1")]),
    )
    twice = messages(call("1"), output("1", "x"), call("2"))
    assert [len(message.calls) for message in twice] == [1, 0, 1]


def test_what_is_said_between_calls_belongs_to_the_same_answer():
    one, two = {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
    assert messages(one, call("1"), two, call("2")) == (
        Message.assistant("ab", calls=[Call("add", {}, "1"), Call("add", {}, "2")]),
    )


def test_an_output_may_be_parts_and_reasoning_a_summary():
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "…"}
    assert messages(summary, call("1"), output("1", [{"type": "input_text", "text": "x"}])) == (
        Message.assistant(reasoning="s", calls=[Call("add", {}, "1")]),
        Message("tool", "x", call_id="1", name="add"),
    )


@pytest.mark.req("R171")
@pytest.mark.parametrize("text", ['{"a": ', "null", "[1]", '{"a": "\\ud800"}', "[" * 100_000])
def test_arguments_a_model_once_wrote_wrongly_do_not_stop_a_conversation(text: str):
    (message,) = messages(call("1", arguments=text))
    assert message.calls[0].arguments == {}
    assert message.calls[0].text == text


def test_what_other_servers_tools_left_behind_is_skipped():
    assert messages({"type": "web_search_call", "id": "ws_1"}, {"role": "user", "content": "hi"}) == (Message.user("hi"),)


@pytest.mark.req("R17")
@pytest.mark.req("R6")
def test_unknown_kinds_of_tools_are_skipped_and_namespaces_are_flattened():
    space = {"type": "namespace", "name": "crm", "description": "", "tools": [SUB, {"type": "custom", "name": "x"}]}
    asked = read(tools=[ADD, space, {"type": "web_search"}, {"type": "custom", "name": "patch"}, {"type": "shell"}])
    assert asked.request.tools == (Tool("add", "Add.", {"type": "object"}, strict=True), Tool("crm__sub"))
    assert asked.spaces == {"crm__sub": ("crm", "sub")}
    assert [tool["type"] for tool in asked.repeated["tools"]] == ["function", "namespace"]
    (message,) = messages(call("1", "sub", namespace="crm"))
    assert message.calls[0].name == "crm__sub"


@pytest.mark.req("R5")
@pytest.mark.parametrize(
    ("spelling", "choice"),
    [
        (None, Choice()),
        ("auto", Choice()),
        ("none", Choice("none")),
        ("required", Choice("required")),
        ({"type": "function", "name": "add"}, Choice.only("add")),
        ({"type": "allowed_tools", "mode": "required", "tools": [ADD, SUB]}, Choice("required", ("add", "sub"))),
    ],
)
def test_every_spelling_of_a_choice_is_understood(spelling: Any, choice: Choice):
    assert read(tools=[ADD, SUB], tool_choice=spelling).request.choice == choice


@pytest.mark.parametrize(
    ("body", "thinking"),
    [
        ({}, None),
        ({"reasoning": {"summary": "auto"}}, None),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_thinking_is_asked_for_by_effort(body: dict[str, Any], thinking: bool | None):
    assert read(**body).request.thinking is thinking


def test_the_output_is_read_from_the_texts_format():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    format = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    assert read(text={"format": format}).request.output == Output(schema, strict=True)
    assert read(text={"format": {"type": "json_object"}}).request.output == Output.json_object()
    assert read(text={"format": {"type": "text"}, "verbosity": "low"}).request.output is None


def test_what_a_request_leans_on_is_told_before_it_is_read():
    items = [{"type": "item_reference", "id": "a"}, {"id": "b"}, {"role": "user", "content": "hi", "id": "c"}]
    body = {"model": "m", "previous_response_id": "resp_0", "input": items}
    assert read_needs(body) == Needs("resp_0", ("a", "b"))
    known = {"a": {"role": "user", "content": "A"}, "b": {"role": "assistant", "content": "B"}}
    assert [message.content for message in read_request(body, known=known).request.messages] == ["A", "B", "hi"]


def test_what_clients_really_send_is_read():
    codex = {
        "model": "m", "instructions": "You are …", "store": False, "stream": True, "tool_choice": "auto",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ],
        "tools": [ADD, {"type": "web_search"}, {"type": "namespace", "name": "n", "tools": [SUB]}], "parallel_tool_calls": False,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
        "prompt_cache_key": "k", "text": {"verbosity": "low"}, "client_metadata": {"x": "y"}, "service_tier": "auto",
    }  # fmt: skip
    asked = read_request(codex)
    assert [message.role for message in asked.request.messages] == ["system", "system", "user"]
    assert (asked.stream, asked.store, asked.request.parallel, asked.request.thinking) == (True, False, False, True)


# What is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["hi"]}, "input.0"),
        ({"input": [{"role": "robot", "content": ""}]}, "input.0.role"),
        ({"input": [{"role": "tool", "content": ""}]}, "input.0.role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": [{"type": "computer_call"}]}, "input.0.type"),
        ({"input": [{"type": "function_call", "name": "a"}]}, "input.0.id"),
        ({"input": [{"type": "function_call_output", "output": "a"}]}, "input.0.call_id"),
        ({"input": [{"type": "item_reference", "id": "nope"}]}, "input.0.id"),
        ({"model": ""}, "model"),
        ({"instructions": 5}, "instructions"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools.0.name"),
        ({"tools": [{"type": "function", "name": "a", "parameters": {"type": "array"}}]}, "tools.0.parameters.type"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools.0.tools.0.name"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "nope"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_tool_calls": -1}, "max_tool_calls"),
        ({"temperature": "hot"}, "temperature"),
        ({"store": "yes"}, "store"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_object"}}, "structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        ({"reasoning": "high"}, "reasoning"),
    ],
)
def test_what_is_wrong_or_would_be_ignored_is_refused_by_name(body: dict[str, Any], field: str):
    with pytest.raises(UsageError) as caught:
        read(**body)
    failure = write_error(caught.value)
    assert (failure.status, failure.body["error"]["param"]) == (400, field)


KNOWN = st.sampled_from(
    [
        "input", "tools", "tool_choice", "text", "reasoning", "include", "previous_response_id", "instructions",
        "store", "stop", "metadata", "max_tool_calls",
    ]
)  # fmt: skip


@given(st.dictionaries(KNOWN, ODD, max_size=6) | ODD)
@settings(max_examples=200)
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "input": "hi", **body} if isinstance(body, dict) else body):
        with contextlib.suppress(UsageError):
            read_needs(attempt)
            read_request(attempt)


# The laws


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Conversations as they are: between two answers there is something, and results follow their calls."""
    made: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        made.append(draw(st.builds(Message, st.sampled_from(["system", "user"]), WORDS)))
        if draw(st.booleans()):
            calls = draw(st.lists(CALLS, max_size=2))
            calls = [Call(one.name, one.arguments, f"{one.id}{number}{at}") for at, one in enumerate(calls)]
            number += 1
            made.append(Message("assistant", draw(WORDS), draw(WORDS), tuple(calls)))
            made += [Message("tool", draw(WORDS), call_id=one.id, name=one.name) for one in calls]
    return tuple(made)


@st.composite
def requests(draw: st.DrawFn) -> ResponsesRequest:
    tools = draw(st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name).map(tuple))
    names = tuple(tool.name for tool in tools)
    some = st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple) if names else st.just(())
    choice = st.sampled_from([Choice(), Choice("none"), Choice("required")]) | st.builds(
        Choice, st.sampled_from(["auto", "required"]), some
    )
    sampling = st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 5),
        top_p=st.none() | st.floats(0, 1),
        top_k=st.none() | st.integers(0, 100),
        min_p=st.none() | st.floats(0, 1),
        seed=st.none() | st.integers(-(2**62), 2**62),
        max_tokens=st.none() | st.integers(1, 10**6),
        stop=st.lists(WORDS.filter(bool), max_size=2).map(tuple),
    )
    output = st.sampled_from([None, Output.json_object(), Output({"type": "object", "a": 1}, strict=True), Output(pattern="a+")])
    request = Request(
        draw(histories()),
        tools,
        draw(choice),
        draw(st.sampled_from([None, True, False])),
        draw(sampling),
        draw(st.sampled_from([None, True, False])),
        draw(output),
        draw(st.sampled_from([None, "auto", "required_first_hop"])),
    )
    limit = draw(st.none() | st.integers(0, 9))
    return ResponsesRequest(draw(NAMES), request, draw(st.booleans()), draw(st.booleans()), draw(WORDS), limit)


@given(requests())
def test_a_request_survives_the_way_there_and_back(asked: ResponsesRequest):
    assert read_request(json.loads(json.dumps(write_request(asked)))) == asked


def test_a_namespace_survives_the_way_there_and_back():
    asked = read(tools=[{"type": "namespace", "name": "crm", "tools": [SUB]}, ADD])
    assert read_request(write_request(asked)) == asked


def sent_for(events: list[ModelEvent], heading: Heading = HEADING) -> list[dict[str, Any]]:
    writer = EventWriter(heading)
    return [one for event in events for one in writer.write(event)] + writer.close()


def events_of(sent: list[Any]) -> list[ModelEvent]:
    reader = EventReader()
    return [event for one in sent for event in reader.feed(one)] + reader.close()


@given(answers())
def test_events_survive_the_way_there_and_back(events: list[ModelEvent]):
    ids = [event.call.id for event in events if isinstance(event, CallReady)]
    if len(set(ids)) == len(ids):  # the same id twice is made two, see below
        assert events_of(json.loads(json.dumps(sent_for(events)))) == events


@given(answers())
@settings(max_examples=50)
def test_streamed_or_whole_the_answer_is_the_same_and_keeps_to_the_rules(events: list[ModelEvent]):
    sent = sent_for(events)
    last = sent[-1]["response"]
    assert last == write_response(events, HEADING)
    assert [one["sequence_number"] for one in sent] == list(range(len(sent)))
    assert [one["type"] for one in sent[:2]] == ["response.created", "response.in_progress"]
    added = {one["output_index"]: one["item"] for one in sent if one["type"] == "response.output_item.added"}
    done = {one["output_index"]: one["item"] for one in sent if one["type"] == "response.output_item.done"}
    assert list(done.values()) == last["output"]
    assert [(item["id"], item["type"], item.get("call_id")) for item in added.values()] == [
        (item["id"], item["type"], item.get("call_id")) for item in done.values()
    ]
    assert len({item["id"] for item in done.values()}) == len(done)
    assert {item["status"] for item in added.values()} <= {"in_progress"}
    text = "".join(part["text"] for item in last["output"] if item["type"] == "message" for part in item["content"])
    assert text == "".join(event.text for event in events if isinstance(event, Text))


@given(answers())
@settings(max_examples=30, deadline=None)
def test_the_clients_own_models_accept_every_event(events: list[ModelEvent]):
    for one in sent_for(events):
        validate_type(type_=ResponseStreamEvent, value=one)
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
    assert [one["type"].removeprefix("response.") for one in sent] == [
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
        {
            "id": "fc_1_2",
            "type": "function_call",
            "call_id": "c1",
            "name": "add",
            "arguments": '{"a": 1}',
            "status": "completed",
        },
    ]
    assert response["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 5,
    }


@pytest.mark.req("R164")
def test_thoughts_are_a_summary_for_whoever_asks_for_one():
    heading = replace(HEADING, repeated={**HEADING.repeated, "reasoning": {"effort": None, "summary": "auto"}})
    sent = sent_for([Thought("h"), Thought("m"), Text("so"), Stopped("stop", Usage(3, 2))], heading)
    assert [one["type"].removeprefix("response.") for one in sent[2:10]] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done", "output_item.added",
    ]  # fmt: skip
    assert [one["summary_index"] for one in sent[3:8]] == [0] * 5
    for one in sent:
        validate_type(type_=ResponseStreamEvent, value=one)
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
    assert [one["type"] for one in sent_for([])] == ["response.created", "response.in_progress", "response.completed"]


def test_an_answer_that_fails_or_is_cancelled_ends_every_item_it_has_begun():
    for end in ("failed", "cancelled"):
        writer = EventWriter(HEADING)
        sent = [one for event in (Text("a"), CallStarted(0, "add", "c")) for one in writer.write(event)]
        sent += writer.fail(write_failure(503, "gone")) if end == "failed" else writer.cancel()
        assert sum(one["type"].endswith("item.added") for one in sent) == 2
        assert sum(one["type"].endswith("item.done") for one in sent) == 2
        assert sent[-1]["response"]["status"] == end
        assert writer.write(Text("more")) == []
    with pytest.raises(ModelError, match="gone"):
        events_of([{"type": "response.failed", "response": {"error": {"code": "server_error", "message": "gone"}}}])


def test_a_call_in_a_namespace_is_given_back_in_it():
    heading = Heading("resp_1", "m", 1, {}, {"crm__sub": ("crm", "sub")})
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
