"""The Anthropic dialect: what is read, what is refused, and that nothing is lost on the way out or back."""

import contextlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsmith.core.errors import LimitReached, ModelError, Rejected, TimedOut, Unavailable, UnknownName, UsageError
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    ModelEvent,
    Report,
    Stopped,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Unenforced,
    Unreadable,
)
from callsmith.core.values import Call, Choice, Message, Output, Request, Result, Sampling, Tool, Usage
from callsmith.wire.anthropic import ThreadsUnsupported, write_error, write_failure
from callsmith.wire.anthropic_events import EventReader, EventWriter, Heading, write_response
from callsmith.wire.anthropic_mcp import McpServer
from callsmith.wire.anthropic_messages import MOST_TOKENS, SIGNATURE, MessagesRequest, read_request, write_request
from callsmith.wire.mcp_names import bare_name
from callsmith.wire.openai_mcp import mcp_name
from callsmith.wire.tool_events import Happening

HI = [{"role": "user", "content": "hi"}]
ADD = {"name": "add", "description": "Add.", "input_schema": {"type": "object"}}
SUB = {"type": "custom", "name": "sub"}
FILES = {"type": "url", "name": "files", "url": "mcp:files"}
TOOLSET: Any = {"type": "mcp_toolset", "mcp_server_name": "files"}
HEADING = Heading("msg_1", "m")
FAR = mcp_name("files", "read")
RUNNING = Heading("msg_1", "m", shown={"files_read": ("files", "read"), "now": ("clock", "now")})


def read(**body: Any) -> MessagesRequest:
    return read_request({"model": "m", "max_tokens": 9, "messages": HI, **body})


def heard(*messages: Any, **body: Any) -> tuple[Message, ...]:
    return read(messages=[*messages, *HI], **body).request.messages[:-1]


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "add", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def far_use(call_id: str, name: str = "read", **more: Any) -> dict[str, Any]:
    return {"type": "mcp_tool_use", "id": call_id, "name": name, "server_name": "files", "input": {}, **more}


def far_result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "mcp_tool_result", "tool_use_id": call_id, "content": content, **more}


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
    asked = said("assistant", text("Let me"), text(" see."), use("c1", a=1), use("c2", "now"))
    answered = said("user", result("c1", "3"), result("c2", [text("noon"), text("sharp")]), text("and?"), text("so?"))
    assert heard(asked, answered) == (
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
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": one} for one in (SIGNATURE, "", "EqQB")]
    blocks = [*thoughts, {"type": "redacted_thinking", "data": "x"}, text("so")]
    assert heard(said("assistant", *blocks)) == (Message.assistant("so", reasoning="hmhmhm"),)


@pytest.mark.req("R121")
def test_tools_are_read_with_all_their_fields_and_kinds_of_the_vendor_are_skipped():
    rich = {**ADD, "cache_control": {"type": "ephemeral"}, "defer_loading": True, "eager_input_streaming": True}
    rich |= {"input_examples": [{"a": 1}], "allowed_callers": ["direct"], "strict": True, "type": "custom"}
    served = {"type": "web_search_20250305", "name": "web_search"}
    assert read(tools=[rich, SUB, served]).request.tools == (Tool("add", "Add.", {"type": "object"}, strict=True), Tool("sub"))


@pytest.mark.req("R5")
@pytest.mark.parametrize(
    ("spelling", "choice", "parallel"),
    [
        (None, Choice(), None),
        ({"type": "auto"}, Choice(), None),
        ({"type": "auto", "disable_parallel_tool_use": True}, Choice(), False),
        ({"type": "any", "disable_parallel_tool_use": False}, Choice("required"), True),
        ({"type": "tool", "name": "sub", "disable_parallel_tool_use": True}, Choice.only("sub"), False),
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
    asked = read(thinking=spelling)
    assert (asked.request.thinking, asked.thoughts) == (thinking, thoughts)


def test_an_output_is_read_in_its_present_and_its_older_place():
    format = {"type": "json_schema", "schema": {"type": "object"}}
    assert read(output_config={"format": format, "effort": "high"}).request.output == Output({"type": "object"}, strict=True)
    assert read(output_format=format).request.output == Output({"type": "object"}, strict=True)
    assert read(output_config={"effort": "low"}).request.output is None


def test_sampling_is_read():
    sampling = read(temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["a", "b"], max_tokens=3).request.sampling
    assert sampling == Sampling(temperature=0.5, top_p=0.9, top_k=5, stop=("a", "b"), max_tokens=3)


def test_what_clients_send_along_and_asks_for_nothing_here_is_fine():
    along = {"metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {"edits": []}, "mcp_servers": []}
    assert read(**along, container=None, thread=None, betas=["x"], speed="fast", fallbacks=[]) == read()


def test_counting_needs_no_limit_and_no_turn_of_the_users():
    body = {"model": "m", "messages": [*HI, {"role": "assistant", "content": "so"}]}
    assert len(read_request(body, counting=True).request.messages) == 2


@pytest.mark.parametrize(
    ("body", "servers"),
    [
        ({"mcp_servers": [FILES]}, [McpServer("files", "mcp:files")]),
        ({"tools": [TOOLSET]}, [McpServer("files")]),
        ({"mcp_servers": [FILES], "tools": [ADD, {**TOOLSET, "cache_control": None}]}, [McpServer("files", "mcp:files")]),
        (
            {"tools": [{**TOOLSET, "default_config": {"enabled": False, "defer_loading": True}}]},
            [McpServer("files", enabled=False)],
        ),
        (
            {"tools": [{**TOOLSET, "configs": {"a": {"enabled": True}, "b": {"defer_loading": True}, "c": None}}]},
            [McpServer("files", configs={"a": True})],
        ),
        ({"tools": [{**TOOLSET, "tools": [{"name": "a", "input_schema": {}}]}]}, [McpServer("files", listed=("a",))]),
        (
            {"mcp_servers": [{**FILES, "authorization_token": None, "tool_configuration": {"allowed_tools": ["a"]}}]},
            [McpServer("files", "mcp:files", listed=("a",))],
        ),
        (
            {"mcp_servers": [{**FILES, "tool_configuration": {"enabled": False, "allowed_tools": None}}]},
            [McpServer("files", "mcp:files", enabled=False)],
        ),
        (
            {"mcp_servers": [{"type": "url", "name": "clock"}], "tools": [TOOLSET]},
            [McpServer("clock"), McpServer("files")],
        ),
    ],
)
def test_servers_and_their_tools_are_read_in_the_present_and_the_older_form(body: Any, servers: list[McpServer]):
    asked = read(**body)
    assert list(asked.servers) == servers
    assert all(tool.name == "add" for tool in asked.request.tools)


@pytest.mark.parametrize(
    ("server", "allowed"),
    [
        (McpServer("x"), "abc"),
        (McpServer("x", enabled=False), ""),
        (McpServer("x", configs={"b": False}), "ac"),
        (McpServer("x", enabled=False, configs={"b": True}), "b"),
        (McpServer("x", listed=("a", "b"), configs={"b": False}), "a"),
        (McpServer("x", listed=()), ""),
    ],
)
def test_a_server_is_wanted_with_those_of_its_tools_the_request_says(server: McpServer, allowed: str):
    assert "".join(tool for tool in "abc" if server.allows(tool)) == allowed


def test_what_ran_on_the_server_is_read_as_calls_with_their_results_in_the_calls_order():
    blocks = [text("Let me see."), far_use("c1", input={"path": "a"}), far_use("c2"), far_result("c2", [text("x"), text("y")])]
    blocks += [far_use("c3"), far_result("c1", "1", is_error=True), far_result("c3", [], is_error=True)]
    listing = {"type": "mcp_tool_listing", "mcp_server_name": "files", "tools": []}
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    more = [thought, far_use("c1"), far_result("c1", ""), text("Done."), use("c4")]
    assert heard(said("assistant", *blocks, listing, *more), said("user", result("c4", "4")))[:-1] == (
        Message.assistant("Let me see.", calls=[Call(FAR, {"path": "a"}, "c1"), Call(FAR, {}, "c2"), Call(FAR, {}, "c3")]),
        Message("tool", "1", call_id="c1", name=FAR),
        Message("tool", "x\ny", call_id="c2", name=FAR),
        Message("tool", "Error", call_id="c3", name=FAR),
        Message.assistant(reasoning="hm", calls=[Call(FAR, {}, "c1")]),
        Message("tool", "", call_id="c1", name=FAR),
        Message.assistant("Done.", calls=[Call("add", {}, "c4")]),
    )


def test_a_turn_that_ends_with_what_ran_on_the_server_is_gone_on_with():
    asked = read(messages=[*HI, said("assistant", far_use("c1"), far_result("c1", "3"))])
    assert [message.role for message in asked.request.messages] == ["user", "assistant", "tool"]
    with pytest.raises(UsageError, match="going on"):
        read(messages=[*HI, said("assistant", far_use("c1"))])


def test_the_name_a_tool_has_on_its_server_is_found_again():
    assert bare_name(mcp_name("files", "a/b")) == "a/b"
    assert [bare_name(name) for name in ("read", "mcp:read", "a/b")] == ["read", "mcp:read", "a/b"]


# What is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [said("user", {"type": "image", "source": {}})]}, "messages.0.content.0.type"),
        ({"messages": [said("user", result("c", [{"type": "image"}]))]}, "messages.0.content.0.content.0.type"),
        ({"messages": [said("user", {"type": "tool_result", "content": ""})]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [said("user", use("c"))]}, "messages.0.content.0.type"),
        ({"messages": [said("assistant", {"type": "tool_use", "id": "c"}), *HI]}, "messages.0.content.0.name"),
        ({"messages": [said("assistant", {**use("c"), "input": "x"}), *HI]}, "messages.0.content.0.input"),
        ({"messages": [said("assistant", {"type": "server_tool_use"}), *HI]}, "messages.0.content.0.type"),
        ({"messages": [*HI, {"role": "assistant", "content": "{"}]}, "messages"),
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KNOWN = st.sampled_from(
    [
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "max_tokens",
        "thinking",
        "output_config",
        "output_format",
        "stop_sequences",
        "mcp_servers",
    ]
)
PARTS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "id",
        "name",
        "input",
        "tool_use_id",
        "input_schema",
        "format",
        "schema",
        "thinking",
        "is_error",
        "server_name",
        "mcp_server_name",
        "configs",
        "default_config",
        "enabled",
        "tool_configuration",
        "allowed_tools",
    ]
)
KINDS = st.sampled_from(
    [
        *("user", "assistant", "system", "text", "tool_use", "tool_result", "thinking", "json_schema", "tool", "auto"),
        *("mcp_toolset", "mcp_tool_use", "mcp_tool_result", "url"),
    ]
)
ODD = st.recursive(
    JSON | KINDS, lambda inner: st.dictionaries(PARTS, inner, max_size=4) | st.lists(inner, max_size=2), max_leaves=10
)


@given(st.dictionaries(KNOWN, ODD, max_size=6) | ODD)
@settings(max_examples=200)
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "max_tokens": 1, "messages": HI, **body} if isinstance(body, dict) else body):
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
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
CALLS = st.builds(Call, NAMES, ARGUMENTS, NAMES)
SCHEMAS = st.dictionaries(NAMES, st.sampled_from([{"type": "string"}, {"type": "array", "items": {}}]), max_size=3).map(
    lambda properties: {"type": "object", "properties": properties}
)
TOOLS = st.builds(Tool, NAMES, WORDS, SCHEMAS, strict=st.booleans())
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
            made = draw(st.lists(CALLS, max_size=2).map(tuple))
            messages.append(Message("assistant", draw(WORDS), draw(WORDS), made))
            calls |= {call.id: call.name for call in made}
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
    tools = draw(st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name).map(tuple))
    some = [Choice(), Choice("none"), Choice("required"), *(Choice.only(tool.name) for tool in tools)]
    choice = draw(st.sampled_from(some)) if tools else Choice()
    parallel = draw(st.sampled_from([None, True, False])) if tools and choice.mode != "none" else None
    probability = st.none() | st.floats(0, 1)
    sampling = st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 5),
        top_p=probability,
        top_k=st.none() | st.integers(0, 100),
        min_p=probability,
        seed=st.none() | st.integers(-(2**62), 2**62),
        max_tokens=st.integers(1, 10**6),
        stop=st.lists(WORDS.filter(bool), max_size=2).map(tuple),
    )
    thinking = draw(st.sampled_from([None, True, False]))
    output = draw(st.none() | st.builds(Output, SCHEMAS, strict=st.just(True)))
    policy = draw(st.sampled_from([None, "auto", "required_first_hop"]))
    request = Request(draw(conversations()), tools, choice, parallel, draw(sampling), thinking, output, policy)
    servers = draw(st.lists(SERVERS, max_size=2, unique_by=lambda server: server.name).map(tuple))
    return MessagesRequest(draw(NAMES), request, draw(st.booleans()), draw(st.booleans()) if thinking else True, servers)


@given(requests())
def test_a_request_survives_the_way_there_and_back(asked: MessagesRequest):
    assert read_request(json.loads(json.dumps(write_request(asked)))) == asked


def test_what_this_api_cannot_do_without_or_cannot_say_is_written_as_near_as_can_be():
    tools = (Tool("add"), Tool("sub"), Tool("now"))
    body = write_request(MessagesRequest("m", Request((Message.user("hi"),), tools, Choice("auto", ("add", "sub")))))
    assert body["max_tokens"] == MOST_TOKENS
    assert [tool["name"] for tool in body["tools"]] == ["add", "sub"]
    with pytest.raises(UsageError, match="schema only"):
        write_request(MessagesRequest("m", Request((Message.user("hi"),), output=Output(choices=("a",)))))


def test_the_results_of_one_round_are_written_into_one_message():
    results = [Message("tool", "3", call_id="c1", name="add"), Message("tool", "4", call_id="c2", name="add")]
    asked = Message.assistant(calls=[Call("add", {}, "c1"), Call("add", {}, "c2")])
    body = write_request(MessagesRequest("m", Request((Message.user("hi"), asked, *results, Message.user("so?")))))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "user"]
    assert body["messages"][2]["content"] == [result("c1", "3"), result("c2", "4")]


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
    matched = draw(st.sampled_from(["", "END"])) if reason == "stop" else ""
    report = draw(st.sampled_from([Report(), Report((Unenforced("add", "#", "not"),), 1)]))
    usage = draw(st.builds(Usage, st.integers(9, 99), *[st.integers(0, 9)] * 3))
    return [*events, Stopped(reason, usage, report, matched)]


def sent_of(events: Sequence[ModelEvent | Happening], heading: Heading = HEADING) -> list[dict[str, Any]]:
    writer = EventWriter(heading)
    return [one for event in events for one in writer.write(event)] + writer.close()


def events_of(sent: list[Any]) -> list[ModelEvent]:
    reader = EventReader()
    return [event for one in sent for event in reader.feed(one)] + reader.close()


@given(answers())
def test_events_survive_the_way_there_and_back(events: list[ModelEvent]):
    sent = sent_of(events, Heading("i", "m", stops=("END",)))
    assert events_of(json.loads(json.dumps(sent))) == events


@given(answers())
def test_blocks_are_numbered_without_gaps_and_one_is_open_at_a_time(events: list[ModelEvent]):
    sent, began = sent_of(events), 0
    assert [one["type"] for one in sent[:1] + sent[-2:]] == ["message_start", "message_delta", "message_stop"]
    current = None
    for one in sent[1:-2]:
        if one["type"] == "content_block_start":
            assert current is None
            assert one["index"] == began
            current, began = one["index"], began + 1
        else:
            assert one["index"] == current
            current = None if one["type"] == "content_block_stop" else current
    assert current is None


@given(answers())
def test_streamed_or_whole_the_answer_is_the_same(events: list[ModelEvent]):
    blocks = write_response(events, HEADING)["content"]
    told = {"text": "", "thinking": ""}
    calls: list[Call] = []
    for block in blocks:
        if block["type"] == "tool_use":
            calls.append(Call(block["name"], block["input"], block["id"]))
        else:
            told[block["type"]] += block[block["type"]]
    assert told["text"] == "".join(event.text for event in events if isinstance(event, Text))
    assert told["thinking"] == "".join(event.text for event in events if isinstance(event, Thought))
    assert calls == [event.call for event in events if isinstance(event, CallReady)]


APART = WORDS.filter(lambda words: not words.startswith("\n"))  # where a block begins, line ends are not the model's


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Message], list[ModelEvent | Happening]]:
    """What a run of the server's tools adds to a conversation, and what happens meanwhile. Ids come again in every round."""
    messages: list[Message] = []
    events: list[ModelEvent | Happening] = []
    for _ in range(draw(st.integers(0, 3))):
        made = draw(st.lists(st.builds(Call, st.sampled_from(["files_read", "now"]), ARGUMENTS), min_size=1, max_size=3))
        calls = [replace(call, id=f"c{at}") for at, call in enumerate(made)]
        ok = draw(st.booleans())
        results = [Result(call.id, call.name, draw(WORDS if ok else WORDS.filter(bool)), ok) for call in calls]
        answer = Message.assistant(draw(APART), reasoning=draw(WORDS), calls=calls)
        messages += [answer, *map(Message.tool, results)]
        late = draw(st.integers(0, len(calls) - 1))  # this many begin when others have ended; one is always running
        early, rest = results[: min(late, 1)], results[min(late, 1) :]
        running: list[Happening] = [ToolStarted(call) for call in calls[: len(calls) - late]]
        running = running if len(running) > len(early) else [ToolStarted(call) for call in calls]
        begun = len(running)
        running += [ToolFinished(one) for one in early]
        running += [ToolStarted(call) for call in calls[begun:]]
        running += [ToolFinished(one) for one in draw(st.permutations(rest))]
        events += [Thought(answer.reasoning), Text("\n\n" if events else ""), Text(answer.content), ToolProgress("c0"), *running]
    last = Message.assistant(draw(APART.filter(bool)), reasoning=draw(WORDS))
    words = [Thought(last.reasoning), Text("\n\n" if events else ""), Text(last.content)]
    return [*messages, last], [*events, *words, Stopped("stop")]


@given(runs())
def test_what_ran_on_the_server_comes_back_as_the_conversation_it_was(ran: tuple[list[Message], list[ModelEvent | Happening]]):
    messages, events = ran
    content = json.loads(json.dumps(write_response(events, RUNNING)["content"]))
    read = heard({"role": "assistant", "content": content})
    names = {mcp_name(*there): here for here, there in RUNNING.shown.items()}
    ids = {call.id: call.id for message in read for call in message.calls}
    assert len(ids) == sum(len(message.calls) for message in read)  # no id twice, whatever the run's were
    assert [unnumbered(message, names) for message in read] == [unnumbered(message, {}) for message in messages]
    told = [one.call_id for one in read if one.role == "tool"]
    assert told == list(ids)


def unnumbered(message: Message, names: dict[str, str]) -> Message:
    """A message without ids, with tools as they are called here."""
    calls = tuple(replace(call, id="", name=names.get(call.name, call.name)) for call in message.calls)
    return replace(message, call_id="", calls=calls, name=names.get(message.name, message.name))


# What is answered


def test_events_come_in_the_order_and_shape_clients_count_on():
    call = Call("add", {"a": 1}, "c1", '{"a": 1}')
    events = [Thought("hm"), Text("so"), CallStarted(0, "add", "c1"), CallArguments(0, '{"a": '), CallArguments(0, "1}")]
    sent = sent_of([*events, CallReady(0, call), Stopped("calls", Usage(7, 3, 2, 1))])
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
    assert start["message"]["usage"]["input_tokens"] == start["message"]["usage"]["output_tokens"] == 0
    assert [(one["index"], one.get("content_block") or one.get("delta")) for one in blocks] == [
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
    message = write_response([Text("a"), stopped], Heading("i", "m", stops=stops))
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, matched)


def test_thoughts_that_were_not_wanted_are_not_shown():
    message = write_response([Thought("hm"), Text("so"), Stopped("stop")], Heading("i", "m", thoughts=False))
    assert message["content"] == [text("so")]


def test_a_call_that_is_cut_off_is_never_shown_as_one_without_arguments():
    named = [CallStarted(0, "add", "c"), Unreadable("<tool_call>add", "cut", 0), Stopped("length")]
    assert write_response(named, HEADING)["content"] == [text("<tool_call>add")]
    assert "tool_use" not in json.dumps([one for one in sent_of(named) if one["type"] == "content_block_start"])
    begun = [CallStarted(0, "add", "c"), CallArguments(0, '{"a'), Unreadable('<tool_call>add{"a', "cut", 0), Stopped("length")]
    assert write_response(begun, HEADING)["content"] == [text('{"a')]
    assert events_of(sent_of(begun))[2] == Unreadable('{"a', "the arguments are no JSON object", 0)


def test_an_answer_that_just_ends_is_ended():
    assert [one["type"] for one in sent_of([])] == ["message_start", "message_delta", "message_stop"]
    assert sent_of([Text("a")])[-3]["type"] == "content_block_stop"
    assert write_response([], HEADING)["content"] == []


def test_what_runs_on_the_server_stands_between_the_words_in_blocks_that_are_whole():
    call = Call("files_read", {"path": "a"}, "c1", '{"path": "a"}')
    ran = [ToolStarted(call), ToolFinished(Result("c1", "files_read", {"lines": 3}))]
    events = [Text("So."), *ran, Text("\n\n"), Text("Done."), Stopped("stop")]
    blocks = [(one["index"], one.get("content_block") or one.get("delta")) for one in sent_of(events, RUNNING)[1:-2]]
    assert blocks[3:] == [
        (1, far_use("c1")),
        (1, {"type": "input_json_delta", "partial_json": '{"path": "a"}'}),
        (1, None),
        (2, far_result("c1", [text('{"lines": 3}')], is_error=False)),
        (2, None),
        (3, {"type": "text", "text": ""}),
        (3, {"type": "text_delta", "text": "Done."}),
        (3, None),
    ]
    assert write_response(events, RUNNING)["content"][1] == far_use("c1", input={"path": "a"})
    assert write_response(events, HEADING)["content"] == [text("So.\n\nDone.")]  # nobody has asked to see it
    assert [event for event in events_of(sent_of(events, RUNNING)) if not isinstance(event, Text)] == [Stopped("stop")]


def test_a_call_that_never_ran_is_not_shown():
    refused = ToolFinished(Result("c1", "files_read", "bad_request: no path", ok=False))
    assert write_response([refused, Text("Hm."), Stopped("stop")], RUNNING)["content"] == [text("Hm.")]


def test_a_call_that_waits_for_a_person_ends_the_turn_and_is_told_beside_it():
    waiting = ConfirmationNeeded("confirm_1", Call("files_read", {"path": "a"}, "c1"), "it reads")
    report = Report((Unenforced("add", "#", "not"),), 1)
    message = write_response([Text("(waits)"), waiting, Stopped("stop", report=report)], RUNNING)
    assert message["stop_reason"] == "end_turn"
    assert [one["id"] for one in message["callsmith"]["approvals"]] == ["confirm_1"]
    assert message["callsmith"]["retries"] == 1


def test_a_clients_call_has_another_id_than_one_that_ran_here():
    ran = [ToolStarted(Call("now", {}, "c1")), ToolFinished(Result("c1", "now", "noon"))]
    message = write_response([*ran, CallReady(0, Call("add", {}, "c1")), Stopped("calls")], RUNNING)
    assert [block.get("id") for block in message["content"]] == ["c1", None, "toolu_msg_1_0"]


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
