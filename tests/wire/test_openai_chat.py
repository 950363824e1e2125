"""The chat completions dialect: what is read, what is refused, and that nothing is lost on the way out or back."""

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsmith.core.errors import ModelError, UnsupportedSchema, UsageError
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Call, Choice, Message, Request, Sampling, Tool, Usage
from callsmith.wire.openai import write_error
from callsmith.wire.openai_chat import ChatRequest, read_request, write_request
from callsmith.wire.openai_chat_events import ChunkWriter, EventReader, Heading, write_response
from callsmith.wire.sse import Frame, FrameReader, write_frame

HI = [{"role": "user", "content": "hi"}]
ADD = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
SUB = {"type": "function", "name": "sub"}
HEADING = Heading("chatcmpl-1", "m", 1)


def read(**body: Any) -> ChatRequest:
    return read_request({"model": "m", "messages": HI, **body})


def refused(**body: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(**body)
    return caught.value


# What is read


def test_a_plain_request_leaves_everything_to_the_model():
    assert read() == ChatRequest("m", Request((Message.user("hi"),)))


@pytest.mark.req("R17")
@pytest.mark.req("R6")
def test_tools_are_read_wrapped_and_flat_and_unknown_kinds_are_skipped():
    tools = read(tools=[ADD, SUB, {"type": "web_search"}, {"type": "namespace", "name": "x"}]).request.tools
    assert tools == (Tool("add", "Add.", {"type": "object"}), Tool("sub"))


def test_strict_is_kept():
    assert read(tools=[{"type": "function", "function": {"name": "f", "strict": True}}]).request.tools[0].strict


@pytest.mark.req("R5")
@pytest.mark.req("R27")
@pytest.mark.req("R28")
@pytest.mark.parametrize(
    ("spelling", "choice"),
    [
        (None, Choice()),
        ("auto", Choice()),
        ("none", Choice("none")),
        ("required", Choice("required")),
        ("any", Choice("required")),
        ({"type": "function", "function": {"name": "add"}}, Choice.only("add")),
        ({"type": "function", "name": "add"}, Choice.only("add")),
        ({"type": "tool", "name": "add"}, Choice.only("add")),
        ({"name": "add"}, Choice.only("add")),
        ({"type": "any"}, Choice("required")),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ADD, SUB]}},
            Choice("required", ("add", "sub")),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "sub"}]}, Choice("auto", ("sub",))),
    ],
)
def test_every_spelling_of_a_choice_is_understood(spelling: Any, choice: Choice):
    assert read(tools=[ADD, SUB], tool_choice=spelling).request.choice == choice


def test_content_may_be_text_nothing_or_parts_of_text():
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm"},
    ]
    assert read(messages=messages).request.messages == (
        Message.system("be brief"),
        Message.user("a\nb"),
        Message.assistant(reasoning="hm"),
    )


@pytest.mark.req("R9")
@pytest.mark.req("R12")
@pytest.mark.req("R18")
def test_calls_and_their_results_are_read_and_a_result_learns_its_tools_name():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "2"}]
    assistant, result = read(messages=messages).request.messages
    assert assistant == Message.assistant(calls=[Call("add", {"a": 1}, "c1")])
    assert assistant.calls[0].text == '{"a": 1}'
    assert result == Message("tool", "2", call_id="c1", name="add")


@pytest.mark.req("R171")
@pytest.mark.parametrize("text", ['{"a": ', "null", "[1]", "5", "\x00", '{"a": "\\ud800"}', "[" * 100_000, "9" * 5000])
def test_arguments_a_model_once_wrote_wrongly_do_not_stop_a_conversation(text: str):
    call = {"id": "c1", "function": {"name": "add", "arguments": text}}
    (message,) = read(messages=[{"role": "assistant", "tool_calls": [call]}]).request.messages
    assert message.calls[0].arguments == {}
    assert message.calls[0].text == text


@pytest.mark.req("R109")
def test_arguments_may_also_come_as_an_object():
    call = {"id": "c1", "name": "add", "arguments": {"a": 1}}
    (message,) = read(messages=[{"role": "assistant", "tool_calls": [call]}]).request.messages
    assert message.calls == (Call("add", {"a": 1}, "c1"),)


@pytest.mark.req("R120")
def test_the_deprecated_functions_are_understood():
    chat = read(
        functions=[{"name": "add", "parameters": {"type": "object"}}],
        function_call={"name": "add"},
        messages=[
            *HI,
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
            {"role": "function", "name": "add", "content": "3"},
        ],
    )
    assert chat.legacy
    assert not chat.request.parallel
    assert chat.request.tools == (Tool("add", parameters={"type": "object"}),)
    assert chat.request.choice == Choice.only("add")
    _, assistant, result = chat.request.messages
    assert assistant.calls[0].id == result.call_id != ""


def test_sampling_is_read_with_its_older_names():
    assert read(max_tokens=5, stop="x", temperature=0, top_p=1, seed=3, top_k=-1, min_p=0.1).request.sampling == Sampling(
        temperature=0, top_p=1, top_k=0, min_p=0.1, seed=3, max_tokens=5, stop=("x",)
    )
    assert read(max_tokens=5, max_completion_tokens=6, stop=["a", "b"]).request.sampling == Sampling(
        max_tokens=6, stop=("a", "b")
    )
    assert read(max_tokens=-1).request.sampling == Sampling()


@pytest.mark.parametrize(
    ("body", "thinking"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"}, False),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"chat_template_kwargs": {}}, None),
    ],
)
def test_thinking_is_asked_for_in_either_way(body: dict[str, Any], thinking: bool | None):
    assert read(**body).request.thinking is thinking


@pytest.mark.req("R164")
def test_parallel_calls_are_left_to_the_model_unless_the_request_says():
    assert read().request.parallel is None
    assert read(parallel_tool_calls=True).request.parallel is True
    assert not read(parallel_tool_calls=False).request.parallel


def test_fields_nobody_knows_and_fields_that_ask_for_nothing_are_fine():
    assert read(metadata={}, user="u", n=1, logprobs=False, response_format={"type": "text"}, presence_penalty=0.0) == read()


# What is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
        ({"messages": [{"content": ""}]}, "messages.0.role"),
        ({"messages": [*HI, {"role": "tool", "content": ""}]}, "messages.1.tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "messages.0.tool_calls.0.name"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages.0.tool_calls"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        ({"tools": [ADD, ADD]}, "tools.1.function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools.0.function.parameters"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]},
            "tools.0.function.parameters.type",
        ),
        ({"tools": [ADD], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"name": "nope"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "custom"}}, "tool_choice.type"),
        ({"tools": [ADD], "tool_choice": 5}, "tool_choice"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stop": [1]}, "stop.0"),
        ({"stop": ""}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"chat_template_kwargs": {"custom": 1}}, "chat_template_kwargs.custom"),
    ],
)
def test_what_is_wrong_or_would_be_ignored_is_refused_by_name(body: dict[str, Any], field: str):
    error = refused(**body)
    assert error.field == field
    failure = write_error(error)
    assert failure.status == 400
    assert failure.body["error"]["param"] == field
    assert failure.body["error"]["type"] == "invalid_request_error"


def test_a_bad_schema_is_refused_with_field_place_and_keyword():
    schema = {"type": "object", "properties": {"a": {"type": "strin"}}}
    error = refused(tools=[ADD, {"type": "function", "function": {"name": "b", "parameters": schema}}])
    assert isinstance(error, UnsupportedSchema)
    assert (error.field, error.path, error.keyword) == ("tools.1.function.parameters", "/properties/a", "type")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OUTPUTS = ("response_format", "structured_outputs", "guided_json", "guided_choice", "tool_choice_policy")
KNOWN = st.sampled_from(
    [*write_request(ChatRequest("m", Request(()))), "tools", "tool_choice", "functions", "stop", "n", "stream_options", *OUTPUTS]
)
PARTS = st.sampled_from(
    [
        "role",
        "content",
        "tool_calls",
        "function",
        "name",
        "type",
        "arguments",
        "parameters",
        "id",
        "json_schema",
        "schema",
        "json",
    ]
)
ODD = st.recursive(JSON, lambda inner: st.dictionaries(PARTS, inner, max_size=4) | st.lists(inner, max_size=2), max_leaves=10)


@given(st.dictionaries(KNOWN, ODD, max_size=6) | ODD)
@settings(max_examples=300)
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "messages": HI, **body} if isinstance(body, dict) else body):
        with contextlib.suppress(UsageError):
            read_request(attempt)


# The laws

NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(Call, NAMES, st.dictionaries(WORDS, VALUES, max_size=3), NAMES)
TOOLS = st.builds(
    Tool,
    NAMES,
    WORDS,
    st.dictionaries(NAMES, st.sampled_from([{"type": "string"}, {"type": "array", "items": {}}]), max_size=3).map(
        lambda properties: {"type": "object", "properties": properties}
    ),
    strict=st.booleans(),
)
MESSAGES = st.one_of(
    st.builds(Message, st.sampled_from(["system", "user"]), WORDS, name=WORDS),
    st.builds(Message, st.just("assistant"), WORDS, WORDS, st.lists(CALLS, max_size=2).map(tuple)),
    st.builds(Message, st.just("tool"), WORDS, call_id=NAMES, name=NAMES),
)


@st.composite
def requests(draw: st.DrawFn) -> ChatRequest:
    tools = draw(st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name).map(tuple))
    names = tuple(tool.name for tool in tools)
    some = st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple) if names else st.just(())
    choice = draw(
        st.sampled_from([Choice(), Choice("none"), Choice("required")])
        | st.builds(Choice, st.sampled_from(["auto", "required"]), some)
    )
    probability = st.none() | st.floats(0, 1)
    sampling = st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 5),
        top_p=probability,
        top_k=st.none() | st.integers(0, 100),
        min_p=probability,
        seed=st.none() | st.integers(-(2**62), 2**62),
        max_tokens=st.none() | st.integers(1, 10**6),
        stop=st.lists(WORDS.filter(bool), max_size=2).map(tuple),
    )
    legacy = draw(st.booleans())
    request = Request(
        draw(st.lists(MESSAGES, min_size=1, max_size=4).map(tuple)),
        tools,
        choice,
        draw(st.booleans()) and not legacy,
        draw(sampling),
        draw(st.sampled_from([None, True, False])),
    )
    return ChatRequest(draw(NAMES), request, draw(st.booleans()), draw(st.booleans()), legacy)


@given(requests())
def test_a_request_survives_the_way_there_and_back(chat: ChatRequest):
    assert read_request(json.loads(json.dumps(write_request(chat)))) == chat


def pieces(text: str, cuts: list[int]) -> list[str]:
    marks = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(marks)]


@st.composite
def answers(draw: st.DrawFn) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    number = 0
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "call"]), max_size=5)):
        if kind == "call":
            call = draw(CALLS)
            cuts = draw(st.lists(st.integers(0, 50), max_size=3))
            events.append(CallStarted(number, call.name, call.id))
            events += [CallArguments(number, piece) for piece in pieces(call.text, cuts)]
            events.append(CallReady(number, call))
            number += 1
        else:
            events.append((Text if kind == "text" else Thought)(draw(WORDS.filter(bool))))
    reason = "calls" if number else draw(st.sampled_from(["stop", "length"]))
    return [*events, Stopped(reason, draw(st.builds(Usage, *[st.integers(0, 9)] * 4)))]


def chunks_of(events: list[ModelEvent], heading: Heading = HEADING) -> list[dict[str, Any]]:
    writer = ChunkWriter(heading)
    return [chunk for event in events for chunk in writer.write(event)] + writer.close()


def events_of(chunks: list[Any]) -> list[ModelEvent]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


@given(answers())
def test_events_survive_the_way_there_and_back(events: list[ModelEvent]):
    chunks = chunks_of(events, Heading("i", "m", 1, include_usage=True))
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
    chunks = chunks_of(events, Heading("i", "m", 1, include_usage=True))
    assert deltas(chunks) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
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
    heading = Heading("i", "m", 1, legacy=True)
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


# Server-sent events


@given(st.lists(st.integers(1, 7), min_size=1))
def test_frames_are_the_same_however_the_bytes_are_cut(sizes: list[int]):
    data = b": hello\r\n\r\ndata: {}\r\n\r\n" + write_frame('{"a":"ü"}'.encode(), b"delta") + b"data: a\ndata: b\nid: 4\n\n"
    reader, frames, at = FrameReader(), list[Frame](), 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        frames += reader.feed(data[at : at + size])
        at += size
    assert frames == [Frame("{}"), Frame('{"a":"ü"}', "delta"), Frame("a\nb")]
