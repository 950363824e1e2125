"""Requests in the Anthropic dialect: what is read, what is refused, and that nothing is lost on the way there."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsmith.core.errors import LimitReached, ModelError, Rejected, TimedOut, Unavailable, UnknownName, UsageError
from callsmith.core.values import Call, Choice, Message, Output, Request, Sampling, Tool
from callsmith.wire.anthropic.blocks import SIGNATURE
from callsmith.wire.anthropic.common import ThreadsUnsupported, write_error, write_failure
from callsmith.wire.anthropic.mcp import McpServer
from callsmith.wire.anthropic.messages import DEFAULT_MAX_TOKENS, MessagesRequest, read_request, write_request
from tests.effort import tries
from tests.wire.blocks import ADD, FILES, HI, SUB, TOOLSET, far_result, far_use, heard, read, result, said, text, use
from tests.wire.drawn import BIASES, CALLS, NAMES, SCHEMAS, TOOLSETS, WORDS, bodies, odd, parallels, samplings

# What is read


def test_a_plain_request_leaves_everything_to_the_model():
    assert read() == MessagesRequest("m", Request((Message.user("hi"),), sampling=Sampling(max_tokens=9)))


def test_the_system_prompt_is_a_string_or_blocks_and_may_also_stand_among_the_messages():
    assert read(system="be brief").request.messages[0] == Message.system("be brief")
    assert read(system=[text("a"), {**text("b"), "cache_control": {"type": "ephemeral"}}]).request.messages[0].content == "a\nb"
    assert heard({"role": "system", "content": [text("now")]}) == (Message.system("now"),)
    assert read(system="").request.messages == read(system=[]).request.messages == (Message.user("hi"),)


def test_a_block_that_changes_with_every_request_does_not_reach_the_prompt():
    billing = text("x-anthropic-billing-header: cc_version=2.1.325; cch=eb6c6;")
    assert read(system=[billing, text("You are helpful.")]).request.messages[0].content == "You are helpful."


@pytest.mark.req("R121")
def test_calls_and_their_results_are_read_and_a_result_learns_its_tools_name():
    turn = said("assistant", text("Let me"), text(" see."), use("c1", a=1), use("c2", "now"))
    answered = said("user", result("c1", "3"), result("c2", [text("noon"), text("sharp")]), text("and?"), text("so?"))
    assert heard(turn, answered) == (
        Message.assistant("Let me see.", calls=[Call("add", {"a": 1}, "c1"), Call("now", {}, "c2")]),
        Message("tool", "3", call_id="c1", name="add"),
        Message("tool", "noon\nsharp", call_id="c2", name="now"),
        Message.user("and?\nso?"),
    )


def test_results_come_right_behind_their_calls_wherever_they_stand_in_the_message():
    (_, *messages) = heard(said("assistant", use("c1")), said("user", text("first"), result("c1", "3")))
    assert [message.role for message in messages] == ["tool", "user"]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result("c1", "no such file", is_error=True), "Error: no such file"),
        (result("c1", "Error: no such file", is_error=True), "Error: no such file"),
        (result("c1", None, is_error=True), "Error"),
        (result("c1", "fine", is_error=False), "fine"),
        ({"type": "tool_result", "tool_use_id": "c1"}, ""),
        (result("c1", [{"type": "tool_reference", "tool_name": "add"}]), "add"),
    ],
)
def test_a_result_that_is_an_error_is_told_as_one(block: Any, content: str):
    assert heard(said("assistant", use("c1")), said("user", block))[1].content == content


def test_thoughts_come_back_whoever_signed_them_and_those_nobody_can_read_are_skipped():
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": item} for item in (SIGNATURE, "", "EqQB")]
    blocks = [*thoughts, {"type": "redacted_thinking", "data": "x"}, text("so")]
    assert heard(said("assistant", *blocks)) == (Message.assistant("so", reasoning="hmhmhm"),)


@pytest.mark.req("R215")
@pytest.mark.req("R121")
def test_tools_are_read_with_all_their_fields():
    rich = {**ADD, "cache_control": {"type": "ephemeral"}, "defer_loading": True, "eager_input_streaming": True}
    rich |= {"input_examples": [{"a": 1}], "allowed_callers": ["direct"], "strict": True, "type": "custom"}
    assert read(tools=[rich, SUB]).request.tools == (Tool("add", "Add.", {"type": "object"}, strict=True), Tool("sub"))


@pytest.mark.req("R5")
@pytest.mark.parametrize(
    ("spelling", "choice", "parallel"),
    [
        (None, Choice(), None),
        ({"type": "auto"}, Choice(), None),
        ({"type": "auto", "disable_parallel_tool_use": True}, Choice(), False),
        ({"type": "any", "disable_parallel_tool_use": False}, Choice("required"), True),
        ({"type": "tool", "name": "sub", "disable_parallel_tool_use": True}, Choice.only("sub"), False),
        ({"type": "tool", "name": "sub", "disable_parallel_tool_use": False}, Choice.only("sub"), True),
        ({"type": "tool", "name": "sub"}, Choice.only("sub"), False),
        ({"specific": "sub"}, Choice.only("sub"), False),
        ({"type": "none"}, Choice("none"), None),
    ],
)
def test_every_choice_is_understood(spelling: Any, choice: Choice, parallel: bool | None):
    request = read(tools=[ADD, SUB], tool_choice=spelling).request
    assert (request.choice, request.parallel) == (choice, parallel)


@pytest.mark.parametrize(
    ("spelling", "thinking", "thoughts"),
    [
        (None, None, True),
        ({"type": "enabled", "budget_tokens": 2048}, True, True),
        ({"type": "adaptive"}, True, True),
        ({"type": "adaptive", "display": "omitted"}, True, False),
        ({"type": "disabled"}, False, True),
    ],
)
def test_every_way_to_ask_for_thinking_is_understood(spelling: Any, thinking: bool | None, thoughts: bool):
    request = read(thinking=spelling, max_tokens=4096)
    assert (request.request.thinking, request.shows_thoughts) == (thinking, thoughts)


def test_an_output_is_read_in_its_present_and_its_older_place():
    format = {"type": "json_schema", "schema": {"type": "object"}}
    assert read(output_config={"format": format, "effort": "high"}).request.output == Output({"type": "object"}, strict=True)
    assert read(output_format=format).request.output == Output({"type": "object"}, strict=True)
    assert read(output_config={"effort": "low"}).request.output is None
    at_its_word = Output({"type": "object"}, strict=True, as_written=True)
    assert read(output_config={"format": {**format, "as_written": True}}).request.output == at_its_word


def test_sampling_is_read():
    sampling = read(temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["a", "b"], max_tokens=3).request.sampling
    assert sampling == Sampling(temperature=0.5, top_p=0.9, top_k=5, stop=("a", "b"), max_tokens=3)


def test_what_clients_send_along_and_asks_for_nothing_here_is_fine():
    along = {"metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {"edits": []}, "mcp_servers": []}
    assert read(**along, container=None, thread=None, betas=["x"], speed="fast", fallbacks=[]) == read()


def test_a_last_message_of_the_assistants_is_the_beginning_of_the_answer():
    request = read_request({"messages": [*HI, {"role": "assistant", "content": "{"}], "max_tokens": 5}).request
    assert request.prefilled == Message.assistant("{")
    assert read_request({"messages": HI, "max_tokens": 5}).request.prefilled is None


def test_counting_needs_no_limit_and_no_turn_of_the_users():
    body = {"model": "m", "messages": [*HI, {"role": "assistant", "content": "so"}]}
    assert len(read_request(body, counting=True).request.messages) == 2


# What is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [said("user", {"type": "image", "source": {}})]}, "messages.0.content.0.source.type"),
        ({"messages": [said("user", result("c", [{"type": "image"}]))]}, "messages.0.content.0.content.0.source"),
        ({"messages": [said("user", {"type": "tool_result", "content": ""})]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [said("user", use("c"))]}, "messages.0.content.0.type"),
        ({"messages": [said("assistant", {"type": "tool_use", "id": "c"}), *HI]}, "messages.0.content.0.name"),
        ({"messages": [said("assistant", {**use("c"), "input": "x"}), *HI]}, "messages.0.content.0.input"),
        ({"messages": [said("assistant", {"type": "server_tool_use"}), *HI]}, "messages.0.content.0.type"),
        ({"messages": [*HI, said("assistant", use("c"))]}, "messages"),
        ({"system": [{"type": "image"}]}, "system.0.type"),
        ({"system": 5}, "system"),
        ({"tools": [{"name": "a b"}]}, "tools.0.name"),
        ({"tools": [ADD, ADD]}, "tools.1.name"),
        ({"tools": [{"name": "a", "input_schema": {"type": "array"}}]}, "tools.0.input_schema.type"),
        ({"tools": [ADD], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [ADD], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "nope"}}, "tool_choice"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"thinking": True}, "thinking"),
        ({"output_config": {"format": {"type": "regex"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"temperature": -1}, "temperature"),
        ({"mcp_servers": {}}, "mcp_servers"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers.0.type"),
        ({"mcp_servers": [{"type": "stdio", "name": "x"}]}, "mcp_servers.0.type"),
        ({"mcp_servers": [{"type": "url", "url": "mcp:x"}]}, "mcp_servers.0.name"),
        ({"mcp_servers": [FILES, FILES]}, "mcp_servers.1.name"),
        ({"mcp_servers": [{**FILES, "authorization_token": "t"}]}, "mcp_servers.0.authorization_token"),
        (
            {"mcp_servers": [{**FILES, "tool_configuration": {"allowed_tools": 5}}]},
            "mcp_servers.0.tool_configuration.allowed_tools",
        ),
        ({"mcp_servers": [{**FILES, "tool_configuration": {}}], "tools": [TOOLSET]}, "mcp_servers.0.tool_configuration"),
        ({"tools": [{"type": "mcp_toolset"}]}, "tools.0.mcp_server_name"),
        ({"tools": [TOOLSET, TOOLSET]}, "tools.1.mcp_server_name"),
        ({"tools": [{**TOOLSET, "configs": {"a": {"enabled": 1}}}]}, "tools.0.configs.a.enabled"),
        ({"tools": [{**TOOLSET, "tools": [{"input_schema": {}}]}]}, "tools.0.tools.0.name"),
        ({"messages": [said("assistant", far_use("c", server_name="")), *HI]}, "messages.0.content.0.server_name"),
        ({"messages": [said("assistant", far_result("c", "3")), *HI]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [said("assistant", use("c"), far_result("c", "3")), *HI]}, "messages.0.content.1.tool_use_id"),
        ({"messages": [said("user", far_result("c", "3"))]}, "messages.0.content.0.type"),
        ({"container": "c"}, "container"),
        ({"thread": {"type": "create"}}, "thread"),
    ],
)
def test_what_is_wrong_or_would_be_ignored_is_refused_by_name(body: dict[str, Any], field: str):
    with pytest.raises(UsageError) as caught:
        read(**body)
    assert caught.value.field == field
    failure = write_error(caught.value)
    assert failure.status == 400
    assert failure.body["type"] == "error"
    assert failure.body["error"]["type"] == "invalid_request_error"
    assert field in failure.body["error"]["message"] or field == "tool_choice"


def test_two_constraints_on_one_answer_are_refused():
    format = {"type": "json_schema", "schema": {"type": "object"}}
    with pytest.raises(UsageError, match="once"):
        read(output_config={"format": format}, output_format=format)


def test_who_wants_a_thread_is_told_to_send_the_whole_history():
    details = write_error(ThreadsUnsupported()).body["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (UnknownName("model", "x", ["m"]), 404, "not_found_error"),
        (LimitReached("turns", "enough"), 429, "rate_limit_error"),
        (Rejected("slow down", status=429), 429, "rate_limit_error"),
        (Rejected("no", status=401), 502, "api_error"),
        (TimedOut("late"), 504, "timeout_error"),
        (Unavailable("away"), 529, "overloaded_error"),
        (ModelError("broken"), 500, "api_error"),
        (ValueError("secret"), 500, "api_error"),
    ],
)
def test_every_error_has_its_type(error: Exception, status: int, kind: str):
    failure = write_error(error)
    assert (failure.status, failure.body["error"]["type"]) == (status, kind)
    assert "secret" not in failure.body["error"]["message"]
    assert write_failure(413, "large").body["error"]["type"] == "request_too_large"


KNOWN = "model messages system tools tool_choice max_tokens thinking output_config output_format stop_sequences mcp_servers"
ODD = odd(
    "role content type text id name input tool_use_id input_schema format schema thinking is_error server_name mcp_server_name "
    "configs default_config enabled tool_configuration allowed_tools",
    "user assistant system text tool_use tool_result thinking json_schema tool auto mcp_toolset mcp_tool_use mcp_tool_result url",
)


@given(bodies(KNOWN, ODD))
@settings(max_examples=tries(50, 200))
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "max_tokens": 1, "messages": HI, **body} if isinstance(body, dict) else body):
        with contextlib.suppress(UsageError):
            read_request(attempt)


# The laws

SERVERS = st.builds(
    McpServer,
    NAMES,
    WORDS,
    st.booleans(),
    st.dictionaries(NAMES, st.booleans(), max_size=2),
    st.none() | st.lists(NAMES, max_size=2).map(tuple),
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    messages: list[Message] = []
    calls: dict[str, str] = {}
    for role in draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=5)):
        if role == "assistant":
            made_calls = draw(st.lists(CALLS, max_size=2).map(tuple))
            messages.append(Message("assistant", draw(WORDS), draw(WORDS), made_calls))
            calls |= {call.id: call.name for call in made_calls}
        elif role == "tool" and calls:
            call_id = draw(st.sampled_from(list(calls)))
            messages.append(Message("tool", draw(WORDS), call_id=call_id, name=calls[call_id]))
        elif role != "tool":
            messages.append(Message(role, draw(WORDS)))  # type: ignore[arg-type]
    if not messages or messages[-1].role == "assistant":
        messages.append(Message.user(draw(WORDS)))
    return tuple(messages)


@st.composite
def requests(draw: st.DrawFn) -> MessagesRequest:
    tools = draw(TOOLSETS)
    some = [Choice(), Choice("none"), Choice("required"), *(Choice.only(tool.name) for tool in tools)]
    choice = draw(st.sampled_from(some)) if tools else Choice()
    parallel = draw(parallels(choice)) if tools and choice.mode != "none" else None
    sampling = replace(draw(samplings(st.integers(1, 10**6))), logprobs=None)  # this API has none
    thinking = draw(st.sampled_from([None, True, False]))
    output = draw(st.none() | st.builds(Output, SCHEMAS, strict=st.just(True), as_written=st.booleans()))
    policy = draw(st.sampled_from([None, "auto", "required_first_hop"]))
    bias = draw(BIASES)
    request = Request(draw(conversations()), tools, choice, parallel, sampling, thinking, output, policy, call_bias=bias)
    servers = draw(st.lists(SERVERS, max_size=2, unique_by=lambda server: server.name).map(tuple))
    return MessagesRequest(draw(NAMES), request, draw(st.booleans()), draw(st.booleans()) if thinking else True, servers)


@given(requests())
def test_a_request_survives_the_way_there_and_back(original: MessagesRequest):
    assert read_request(json.loads(json.dumps(write_request(original)))) == original


def test_what_this_api_cannot_do_without_or_cannot_say_is_written_as_near_as_can_be():
    tools = (Tool("add"), Tool("sub"), Tool("now"))
    body = write_request(MessagesRequest("m", Request((Message.user("hi"),), tools, Choice("auto", ("add", "sub")))))
    assert body["max_tokens"] == DEFAULT_MAX_TOKENS
    assert [tool["name"] for tool in body["tools"]] == ["add", "sub"]
    with pytest.raises(UsageError, match="schema only"):
        write_request(MessagesRequest("m", Request((Message.user("hi"),), output=Output(choices=("a",)))))


def test_the_results_of_one_round_are_written_into_one_message():
    results = [Message("tool", "3", call_id="c1", name="add"), Message("tool", "4", call_id="c2", name="add")]
    turn = Message.assistant(calls=[Call("add", {}, "c1"), Call("add", {}, "c2")])
    body = write_request(MessagesRequest("m", Request((Message.user("hi"), turn, *results, Message.user("so?")))))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "user"]
    assert body["messages"][2]["content"] == [result("c1", "3"), result("c2", "4")]
