"""Tools of MCP servers in the Anthropic dialect: which a request wants, and what ran as blocks of the answer."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.errors import UsageError
from callsmith.core.events import (
    CallReady,
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
)
from callsmith.core.values import Call, Message, Result
from callsmith.wire.anthropic.events import MessagesHeading, write_response
from callsmith.wire.anthropic.mcp import McpServer
from callsmith.wire.extensions import ToolEvent
from callsmith.wire.openai.mcp import mcp_name
from callsmith.wire.tools import bare_name
from tests.wire.blocks import (
    ADD,
    FILES,
    HEADING,
    HI,
    TOOLSET,
    events_of,
    far_result,
    far_use,
    heard,
    read,
    result,
    said,
    sent_of,
    text,
    use,
)
from tests.wire.drawn import ARGUMENTS, WORDS

FAR = mcp_name("files", "read")
RUNNING = MessagesHeading("msg_1", "m", mcp_tools={"files_read": ("files", "read"), "now": ("clock", "now")})

# Requests


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
        ({"mcp_servers": [{"type": "url", "name": "clock"}], "tools": [TOOLSET]}, [McpServer("clock"), McpServer("files")]),
    ],
)
def test_servers_and_their_tools_are_read_in_the_present_and_the_older_form(body: Any, servers: list[McpServer]):
    request = read(**body)
    assert list(request.servers) == servers
    assert all(tool.name == "add" for tool in request.request.tools)


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
    request = read(messages=[*HI, said("assistant", far_use("c1"), far_result("c1", "3"))])
    assert [message.role for message in request.request.messages] == ["user", "assistant", "tool"]
    with pytest.raises(UsageError, match="calls without results"):
        read(messages=[*HI, said("assistant", far_use("c1"))])


def test_the_name_a_tool_has_on_its_server_is_found_again():
    assert bare_name(mcp_name("files", "a/b")) == "a/b"
    assert [bare_name(name) for name in ("read", "mcp:read", "a/b")] == ["read", "mcp:read", "a/b"]


# Answers


def test_what_runs_on_the_server_stands_between_the_words_in_blocks_that_are_whole():
    call = Call("files_read", {"path": "a"}, "c1", '{"path": "a"}')
    ran = [ToolStarted(call), ToolFinished(Result("c1", "files_read", {"lines": 3}))]
    events = [Text("So."), *ran, Text("\n\n"), Text("Done."), Stopped("stop")]
    blocks = [(event["index"], event.get("content_block") or event.get("delta")) for event in sent_of(events, RUNNING)[1:-2]]
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
    assert [approval["id"] for approval in message["callsmith"]["approvals"]] == ["confirm_1"]
    assert message["callsmith"]["retries"] == 1


def test_a_clients_call_has_another_id_than_one_that_ran_here():
    ran = [ToolStarted(Call("now", {}, "c1")), ToolFinished(Result("c1", "now", "noon"))]
    message = write_response([*ran, CallReady(0, Call("add", {}, "c1")), Stopped("calls")], RUNNING)
    assert [block.get("id") for block in message["content"]] == ["c1", None, "toolu_msg_1_0"]


# The law

APART = WORDS.filter(lambda words: not words.startswith("\n"))  # where a block begins, line ends are not the model's


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Message], list[ModelEvent | ToolEvent]]:
    """What a run of the server's tools adds to a conversation, and what happens meanwhile. Ids come again in every round."""
    messages: list[Message] = []
    events: list[ModelEvent | ToolEvent] = []
    for _ in range(draw(st.integers(0, 3))):
        made_calls = draw(st.lists(st.builds(Call, st.sampled_from(["files_read", "now"]), ARGUMENTS), min_size=1, max_size=3))
        calls = [replace(call, id=f"c{at}") for at, call in enumerate(made_calls)]
        ok = draw(st.booleans())
        results = [Result(call.id, call.name, draw(WORDS if ok else WORDS.filter(bool)), ok) for call in calls]
        answer = Message.assistant(draw(APART), reasoning=draw(WORDS), calls=calls)
        messages += [answer, *map(Message.tool, results)]
        late = draw(st.integers(0, len(calls) - 1))  # this many begin when others have ended; one is always running
        early, rest = results[: min(late, 1)], results[min(late, 1) :]
        running: list[ToolEvent] = [ToolStarted(call) for call in calls[: len(calls) - late]]
        running = running if len(running) > len(early) else [ToolStarted(call) for call in calls]
        begun = len(running)
        running += [ToolFinished(item) for item in early]
        running += [ToolStarted(call) for call in calls[begun:]]
        running += [ToolFinished(item) for item in draw(st.permutations(rest))]
        events += [Thought(answer.reasoning), Text("\n\n" if events else ""), Text(answer.content), ToolProgress("c0"), *running]
    last = Message.assistant(draw(APART.filter(bool)), reasoning=draw(WORDS))
    words = [Thought(last.reasoning), Text("\n\n" if events else ""), Text(last.content)]
    return [*messages, last], [*events, *words, Stopped("stop")]


@given(runs())
def test_what_ran_on_the_server_comes_back_as_the_conversation_it_was(ran: tuple[list[Message], list[ModelEvent | ToolEvent]]):
    messages, events = ran
    content = json.loads(json.dumps(write_response(events, RUNNING)["content"]))
    read = heard({"role": "assistant", "content": content})
    names = {mcp_name(*there): here for here, there in RUNNING.mcp_tools.items()}
    ids = {call.id: call.id for message in read for call in message.calls}
    assert len(ids) == sum(len(message.calls) for message in read)  # no id twice, whatever the run's were
    assert [unnumbered(message, names) for message in read] == [unnumbered(message, {}) for message in messages]
    output = [item.call_id for item in read if item.role == "tool"]
    assert output == list(ids)


def unnumbered(message: Message, names: dict[str, str]) -> Message:
    """A message without ids, with tools as they are called here."""
    calls = tuple(replace(call, id="", name=names.get(call.name, call.name)) for call in message.calls)
    return replace(message, call_id="", calls=calls, name=names.get(message.name, message.name))
