"""Requests in the chat completions dialect: what is read, what is refused, and that nothing is lost on the way there."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.values import Call, Choice, Message, Request, Sampling, TokenBias, Tool
from callsmith.wire.openai.chat import ChatRequest, read_request, write_request
from callsmith.wire.openai.common import write_error
from tests.effort import tries
from tests.wire.drawn import BIASES, CALLS, NAMES, TOOLSETS, WORDS, bodies, choices, samplings

HI = [{"role": "user", "content": "hi"}]
BEGUN: Any = [*HI, {"role": "assistant", "content": "{"}]
ADD = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
SUB = {"type": "function", "name": "sub"}


def read(**body: Any) -> ChatRequest:
    return read_request({"model": "m", "messages": HI, **body})


def refused(**body: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(**body)
    return caught.value


# What is read


@pytest.mark.req("R6")
def test_a_plain_request_leaves_everything_to_the_model():
    assert read() == ChatRequest("m", Request((Message.user("hi"),)))


@pytest.mark.req("R17")
def test_tools_are_read_wrapped_and_flat():
    assert read(tools=[ADD, SUB]).request.tools == (Tool("add", "Add.", {"type": "object"}), Tool("sub"))


def test_deprecated_functions_are_functions_whatever_they_say():
    (tool,) = read(functions=[{"type": "custom", "name": "add"}]).request.tools
    assert (tool.name, tool.kind) == ("add", "")


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


@pytest.mark.req("R6")
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


@pytest.mark.parametrize(
    "named", [{"type": "function", "function": {"name": "add"}}, {"specific": "add"}, {"function": {"name": "add"}}]
)
def test_a_tool_that_is_named_is_called_once_unless_the_request_says(named: Any):
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert read(tools=tools, tool_choice=named).request.parallel is False
    assert read(tools=tools, tool_choice=named, parallel_tool_calls=True).request.parallel is True
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    for choice in ("required", {"type": "required"}, *([allowed] if "type" in named else [])):
        assert read(tools=tools, tool_choice=choice).request.parallel is None


def test_fields_nobody_knows_and_fields_that_ask_for_nothing_are_fine():
    assert read(metadata={}, user="u", n=1, logprobs=False, response_format={"type": "text"}, logit_bias={}) == read()


def test_penalties_and_biases_are_part_of_sampling():
    request = read(presence_penalty=1, frequency_penalty=-0.5, repetition_penalty=1.2, logit_bias={"5": -100, "0": 1.5})
    biases = (TokenBias(5, -100.0), TokenBias(0, 1.5))
    assert request.request.sampling == Sampling(
        presence_penalty=1.0, frequency_penalty=-0.5, repetition_penalty=1.2, logit_bias=biases
    )
    assert read(repeat_penalty=1.2, repeat_last_n=9).request.sampling == Sampling(repetition_penalty=1.2, penalty_window=9)


# What is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content.0.image_url.url",
        ),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
        ({"messages": [{"content": ""}]}, "messages.0.role"),
        ({"messages": [*HI, {"role": "tool", "content": ""}]}, "messages.1.tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "messages.0.tool_calls.0.name"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages.0.tool_calls"),
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
        ({"tools": [ADD], "tool_choice": {"type": "custom"}}, "tool_choice.name"),
        ({"tools": [ADD], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [ADD, {"type": "web_search"}]}, "tools.1.type"),
        ({"tools": [{"type": "namespace", "name": "x", "tools": []}]}, "tools.0.type"),
        ({"tools": [{"type": "anything", "function": {"name": "add"}}]}, "tools.0.type"),
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
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"repetition_penalty": "much"}, "repetition_penalty"),
        ({"chat_template_kwargs": {"custom": 1}}, "chat_template_kwargs.custom"),
        ({"model": 5}, "model"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
        ({"messages": BEGUN, "add_generation_prompt": False}, "add_generation_prompt"),
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


KNOWN = " ".join(write_request(ChatRequest("m", Request(())))) + " tools tool_choice functions stop n stream_options"
OUTPUTS = " response_format structured_outputs guided_json guided_choice tool_choice_policy call_bias"


@given(bodies(KNOWN + OUTPUTS))
@settings(max_examples=tries(60, 300))
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "messages": HI, **body} if isinstance(body, dict) else body):
        with contextlib.suppress(UsageError):
            read_request(attempt)


# The laws

MESSAGES = st.one_of(
    st.builds(Message, st.sampled_from(["system", "user"]), WORDS, name=WORDS),
    st.builds(Message, st.just("assistant"), WORDS, WORDS, st.lists(CALLS, max_size=2).map(tuple)),
    st.builds(Message, st.just("tool"), WORDS, call_id=NAMES, name=NAMES),
)


@st.composite
def requests(draw: st.DrawFn) -> ChatRequest:
    tools = draw(TOOLSETS)
    legacy = draw(st.booleans())
    request = Request(
        draw(st.lists(MESSAGES, min_size=1, max_size=4).map(tuple)),
        tools,
        draw(choices(tools)),
        draw(st.booleans()) and not legacy,
        draw(samplings(st.none() | st.integers(1, 10**6))),
        draw(st.sampled_from([None, True, False])),
        call_bias=draw(BIASES),
    )
    return ChatRequest(draw(NAMES), request, draw(st.booleans()), draw(st.booleans()), legacy)


@given(requests())
def test_a_request_survives_the_way_there_and_back(chat: ChatRequest):
    assert read_request(json.loads(json.dumps(write_request(chat)))) == chat


@pytest.mark.parametrize("more", [{}, {"add_generation_prompt": False}])
def test_a_last_message_is_continued_where_a_request_says_so(more: dict[str, Any]):
    body = {"messages": BEGUN, "continue_final_message": True, **more}
    assert read_request(body).request.prefilled == Message.assistant("{")
    assert read_request(write_request(read_request(body))).request.prefill
    assert read_request({"messages": BEGUN, "add_generation_prompt": True}).request.prefilled is None


def test_thoughts_are_left_out_where_a_request_says_so():
    request = read_request({"messages": HI, "include_reasoning": False})
    assert not request.shows_thoughts
    assert read_request(write_request(request)) == request
