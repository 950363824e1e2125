"""Requests in the Responses dialect: what is read, what is refused, and that nothing is lost on the way there."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsmith.core.errors import UsageError
from callsmith.core.values import Call, Choice, Message, Output, Request, Tool
from callsmith.wire.openai.common import write_error
from callsmith.wire.openai.responses import ResponsesRequest, StoredReferences, read_references, read_request, write_request
from tests.effort import tries
from tests.wire.drawn import BIASES, CALLS, NAMES, TOOLSETS, WORDS, bodies, choices, parallels, samplings

ADD = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": True}
SUB = {"type": "function", "name": "sub"}


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
    request = read_request({"model": "m", "instructions": "be brief", "input": "third"}, earlier)
    assert [message.content for message in request.request.messages] == ["be brief", "first", "second", "third"]
    assert [item["content"] for item in request.input] == ["third"]


def test_messages_are_read_in_every_form():
    assert messages(
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "e"}]},
    ) == (Message.system("a"), Message.system("b"), Message.user("c\nd"), Message.assistant("e"))


def call(id: str, name: str = "add", arguments: str = "{}", **more: Any) -> Any:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments, **more}


def output(id: str, content: Any) -> Any:
    return {"type": "function_call_output", "call_id": id, "output": content}


def reasoning(*texts: str, **more: Any) -> Any:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": t} for t in texts]}


@pytest.mark.req("R9")
@pytest.mark.req("R12")
def test_the_items_of_one_answer_make_one_message_and_outputs_learn_their_tools_name():
    body = {"type": "message", "role": "assistant", "content": "so"}
    assert messages(reasoning("hm"), body, call("1"), call("2", "sub", '{"a": 1}'), output("1", "3"), output("2", "4")) == (
        Message.assistant("so", reasoning="hm", calls=[Call("add", {}, "1"), Call("sub", {"a": 1}, "2")]),
        Message("tool", "3", call_id="1", name="add"),
        Message("tool", "4", call_id="2", name="sub"),
    )


def test_answers_that_follow_each_other_stay_apart():
    first, two = {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
    assert messages(first, two) == (Message.assistant("a"), Message.assistant("b"))
    assert messages(first, reasoning("hm"), call("1")) == (
        Message.assistant("a"),
        Message.assistant(reasoning="hm", calls=[Call("add", {}, "1")]),
    )
    twice = messages(call("1"), output("1", "x"), call("2"))
    assert [len(message.calls) for message in twice] == [1, 0, 1]


def test_what_is_said_between_calls_belongs_to_the_same_answer():
    first, two = {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
    assert messages(first, call("1"), two, call("2")) == (
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
def test_namespaces_are_flattened():
    space = {"type": "namespace", "name": "crm", "description": "", "tools": [SUB, {"type": "custom", "name": "x"}]}
    request = read(tools=[ADD, space])
    add, sub, custom = request.request.tools
    assert (add, sub) == (Tool("add", "Add.", {"type": "object"}, strict=True), Tool("crm__sub"))
    assert (custom.name, custom.kind) == ("crm__x", "custom")
    assert request.namespaces == {"crm__sub": ("crm", "sub"), "crm__x": ("crm", "x")}
    assert [tool["type"] for tool in request.repeated["tools"]] == ["function", "namespace"]
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
    assert read(text={"format": {**format, "as_written": True}}).request.output == Output(schema, strict=True, as_written=True)
    assert read(text={"format": {"type": "json_object"}}).request.output == Output.json_object()
    assert read(text={"format": {"type": "text"}, "verbosity": "low"}).request.output is None


def test_what_a_request_leans_on_is_told_before_it_is_read():
    items = [{"type": "item_reference", "id": "a"}, {"id": "b"}, {"role": "user", "content": "hi", "id": "c"}]
    body = {"model": "m", "previous_response_id": "resp_0", "input": items}
    assert read_references(body) == StoredReferences("resp_0", ("a", "b"))
    known = {"a": {"role": "user", "content": "A"}, "b": {"role": "assistant", "content": "B"}}
    assert [message.content for message in read_request(body, known=known).request.messages] == ["A", "B", "hi"]


def test_what_clients_really_send_is_read():
    codex = {
        "model": "m", "instructions": "You are …", "store": False, "stream": True, "tool_choice": "auto",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ],
        "tools": [ADD, {"type": "web_search", "external_web_access": False}, {"type": "namespace", "name": "n", "tools": [SUB]}],
        "parallel_tool_calls": False,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
        "prompt_cache_key": "k", "text": {"verbosity": "low"}, "client_metadata": {"x": "y"}, "service_tier": "auto",
    }  # fmt: skip
    request = read_request(codex)
    assert [message.role for message in request.request.messages] == ["system", "system", "user"]
    assert (request.stream, request.store, request.request.parallel, request.request.thinking) == (True, False, False, True)
    assert [tool.name for tool in request.request.tools] == ["add", "n__sub"]
    assert request.notices == ("the tool web_search was left out: it runs at OpenAI only",)


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
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.image_url"),
        ({"input": [{"type": "code_interpreter_call"}]}, "input.0.type"),
        ({"input": [{"type": "computer_call"}]}, "input.0.id"),
        ({"input": [{"type": "shell_call", "call_id": "1"}]}, "input.0.action"),
        ({"input": [{"type": "custom_tool_call", "call_id": "1", "input": "a"}]}, "input.0.name"),
        ({"input": [{"type": "custom_tool_call_output", "call_id": "1", "output": "a"}]}, "input.0.call_id"),
        ({"tools": [ADD, {"type": "web_search"}]}, "tools.1.type"),
        ({"tools": [{"type": "anything"}]}, "tools.0.type"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "code_interpreter", "name": "c"}]}]},
            "tools.0.tools.0.type",
        ),
        ({"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "tools.0.environment.type"),
        ({"input": [{"type": "function_call", "name": "a"}]}, "input.0.id"),
        ({"input": [{"type": "function_call_output", "output": "a"}]}, "input.0.call_id"),
        ({"input": [{"type": "item_reference", "id": "nope"}]}, "input.0.id"),
        ({"instructions": 5}, "instructions"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools.0.name"),
        ({"tools": [{"type": "function", "name": "a", "parameters": {"type": "array"}}]}, "tools.0.parameters.type"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools.0.tools.0.name"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "nope"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"conversation": 1}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 21}, "top_logprobs"),
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


KNOWN = "input tools tool_choice text reasoning include previous_response_id instructions store stop metadata max_tool_calls"


@given(bodies(KNOWN))
@settings(max_examples=tries(50, 200))
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "input": "hi", **body} if isinstance(body, dict) else body):
        with contextlib.suppress(UsageError):
            read_references(attempt)
            read_request(attempt)


# The laws


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Conversations as they are: between two answers there is something, and results follow their calls."""
    turns: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        turns.append(draw(st.builds(Message, st.sampled_from(["system", "user"]), WORDS)))
        if draw(st.booleans()):
            calls = draw(st.lists(CALLS, max_size=2))
            calls = [Call(drawn.name, drawn.arguments, f"{drawn.id}{number}{at}") for at, drawn in enumerate(calls)]
            number += 1
            turns.append(Message("assistant", draw(WORDS), draw(WORDS), tuple(calls)))
            turns += [Message("tool", draw(WORDS), call_id=item.id, name=item.name) for item in calls]
    return tuple(turns)


@st.composite
def requests(draw: st.DrawFn) -> ResponsesRequest:
    tools = draw(TOOLSETS)
    choice = draw(choices(tools))
    output = st.sampled_from([None, Output.json_object(), Output({"type": "object", "a": 1}, strict=True), Output(pattern="a+")])
    request = Request(
        draw(histories()),
        tools,
        choice,
        draw(parallels(choice)),
        draw(samplings(st.none() | st.integers(1, 10**6))),
        draw(st.sampled_from([None, True, False])),
        draw(output),
        draw(st.sampled_from([None, "auto", "required_first_hop"])),
        call_bias=draw(BIASES),
    )
    limit = draw(st.none() | st.integers(0, 9))
    return ResponsesRequest(draw(NAMES), request, draw(st.booleans()), draw(st.booleans()), draw(WORDS), limit)


@given(requests())
def test_a_request_survives_the_way_there_and_back(original: ResponsesRequest):
    assert read_request(json.loads(json.dumps(write_request(original)))) == original


def test_a_namespace_survives_the_way_there_and_back():
    request = read(tools=[{"type": "namespace", "name": "crm", "tools": [SUB]}, ADD])
    assert read_request(write_request(request)) == request
