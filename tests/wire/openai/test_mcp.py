"""MCP servers in `/v1/responses`: what is wanted of them and what they did, written and read back."""

import json
from typing import Any

import pytest
from openai._models import validate_type
from openai.types.responses import Response, ResponseStreamEvent

from callsmith.core.approval import Approved, Denied
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded, Stopped, Text, ToolFinished, ToolProgress, ToolStarted
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool
from callsmith.wire.extensions import ToolOptions, read_extensions
from callsmith.wire.fields import Fields
from callsmith.wire.openai.items import read_items
from callsmith.wire.openai.mcp import (
    ApprovalFilters,
    McpServer,
    ToolFilter,
    error_text,
    plain_items,
    read_server,
    write_listed,
    write_server,
)
from callsmith.wire.openai.mcp_events import ListedTools, McpEvent, McpWriter
from callsmith.wire.openai.responses import ResponsesRequest, read_request, write_request
from callsmith.wire.openai.responses_events import ResponsesHeading

SERVERS = [
    McpServer("files"),
    McpServer("files", ToolFilter(("read", "list"))),
    McpServer("files", ToolFilter(read_only=True), "always"),
    McpServer("files", approval="never"),
    McpServer("files", ToolFilter(()), ApprovalFilters(ToolFilter(("erase",)), ToolFilter(read_only=True))),
    McpServer("files", approval=ApprovalFilters(never=ToolFilter(("read",), True))),
    McpServer("files", approval=ApprovalFilters(ToolFilter())),
]


@pytest.mark.parametrize("server", SERVERS)
def test_what_is_wanted_of_a_server_is_written_and_read_back(server: McpServer):
    assert read_server(Fields(json.loads(json.dumps(write_server(server))))) == server


def test_names_may_stand_in_a_list():
    entry = {"type": "mcp", "server_label": "files", "allowed_tools": ["read"]}
    assert read_server(Fields(entry)).allowed == ToolFilter(("read",))
    assert read_server(Fields({**entry, "server_url": "https://example.org"})).url == "https://example.org"


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"server_label": ""}, "tools.0.server_label"),
        ({"allowed_tools": 5}, "tools.0.allowed_tools"),
        ({"allowed_tools": [5]}, "tools.0.allowed_tools.0"),
        ({"authorization": "secret"}, "tools.0.authorization"),
        ({"headers": {"a": "b"}}, "tools.0.headers"),
        ({"require_approval": "sometimes"}, "tools.0.require_approval"),
        ({"require_approval": {"always": ["read"]}}, "tools.0.require_approval.always"),
        ({"require_approval": {"never": {"tool_names": [1]}}}, "tools.0.require_approval.never.tool_names.0"),
    ],
)
def test_what_is_wrong_is_named(entry: Any, field: str):
    body = {"model": "m", "input": "hi", "tools": [{"type": "mcp", "server_label": "files", **entry}]}
    with pytest.raises(UsageError) as wrong:
        read_request(body)
    assert wrong.value.field == field


@pytest.mark.parametrize("choice", [Choice(), Choice.only("mcp:files/read"), Choice.only("mcp:files/*"), Choice.only("add")])
def test_a_request_with_servers_is_written_and_read_back(choice: Choice):
    parallel = False if choice == Choice.only("add") else None  # a function that is named is called once
    request = Request((Message.user("hi"),), (Tool("add"),), choice, parallel)
    sent_request = ResponsesRequest(
        "m", request, servers=(McpServer("files", ToolFilter(("read",)), "always"), McpServer("web", url="mcp:web"))
    )
    assert read_request(json.loads(json.dumps(write_request(sent_request)))) == sent_request


def test_the_wish_to_wait_is_read():
    waiting = ToolOptions(wait_for_approval=True)
    assert read_extensions({"wait_for_approval": True}) == (waiting, "")


# Items

USER = {"role": "user", "content": "hi"}
SAID = {"type": "message", "role": "assistant", "content": "so"}


def asking(id: str, name: str = "erase") -> dict[str, Any]:
    return {"type": "mcp_approval_request", "id": id, "server_label": "files", "name": name, "arguments": '{"path": "a"}'}


def word(id: str, approve: bool, reason: str | None = None) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve, "reason": reason}


def made(id: str, output: str | None = "gone", **more: Any) -> dict[str, Any]:
    return {**asking(id), "type": "mcp_call", "output": output, **more}


def call(id: str) -> Call:
    return Call("mcp:files/erase", {"path": "a"}, id)


def erase_result(id: str, text: str) -> Message:
    return Message("tool", text, call_id=id, name="mcp:files/erase")


WAITS = "waiting: this call has not been run, for nobody has approved it yet"


@pytest.mark.parametrize(
    ("items", "messages", "words"),
    [
        ([USER, made("m1")], [Message.assistant(calls=[call("m1")]), erase_result("m1", "gone")], {}),
        (
            [USER, made("m1", None, error={"type": "http_error", "code": 500, "message": "broke"}), SAID],
            [Message.assistant(calls=[call("m1")]), erase_result("m1", "broke"), Message.assistant("so")],
            {},
        ),
        ([USER, SAID, asking("r")], [Message.assistant("so", calls=[call("r")])], {"r": None}),
        ([USER, asking("r"), word("r", True)], [Message.assistant(calls=[call("r")])], {"r": Approved()}),
        ([USER, asking("r"), word("r", False, "no")], [Message.assistant(calls=[call("r")])], {"r": Denied("no")}),
        (
            [USER, asking("r"), word("r", False, "no"), SAID],
            [Message.assistant(calls=[call("r")]), erase_result("r", "denied: no"), Message.assistant("so")],
            {},
        ),
        (
            [USER, asking("r"), word("r", True), made("m1", approval_request_id="r")],
            [Message.assistant(calls=[call("r")]), erase_result("r", "gone")],
            {},
        ),
        ([USER, asking("r"), USER], [Message.assistant(calls=[call("r")]), erase_result("r", WAITS), Message.user("hi")], {}),
        (
            [USER, asking("r"), USER, word("r", True)],
            [Message.user("hi"), Message.assistant(calls=[call("r")])],
            {"r": Approved()},
        ),
        (
            [USER, asking("r"), asking("s"), word("r", True), made("m1", approval_request_id="r"), asking("s"), word("s", True)],
            [Message.assistant(calls=[call("r")]), erase_result("r", "gone"), Message.assistant(calls=[call("s")])],
            {"s": Approved()},
        ),
    ],
)
def test_what_servers_did_is_read_as_calls_and_results(items: list[Any], messages: list[Message], words: Any):
    fields = [Fields(item, f"input.{index}") for index, item in enumerate(items)]
    plain, decisions = plain_items(fields)
    assert read_items(plain) == (Message.user("hi"), *messages)
    assert decisions == words


def test_a_word_that_is_none_is_named():
    with pytest.raises(UsageError) as wrong:
        read_request({"model": "m", "input": [USER, asking("r"), {**word("r", True), "approve": None}]})
    assert wrong.value.field == "input.2.approve"


# Events

TOOLS = (Tool("read", "Read.", {"type": "object"}), Tool("erase", parameters={"type": "object"}, side_effects=True))
SHOWN = {"files_read": ("files", "read"), "files_erase": ("files", "erase")}


def sent_for(events: list[McpEvent], calls: dict[str, Call] | None = None) -> tuple[list[Any], Any]:
    writer = McpWriter(ResponsesHeading("resp_1", "m", 5, {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}))
    writer.set_tools(SHOWN)
    writer.set_approvals(calls or {})
    sent = [sent_event for event in events for sent_event in writer.write(event)]
    return [*sent, *writer.close()], writer.response()


def test_events_are_written_and_read_back_and_are_what_the_client_knows():
    read, erase = Call("files_read", {"path": "a"}, "c1"), Call("files_erase", {"path": "b"}, "c2")
    events: list[McpEvent] = [
        ListedTools("files", TOOLS),
        ListedTools("web", (), "it is down"),
        Text("so"),
        ToolStarted(read),
        ToolProgress("c1", "half"),
        ToolFinished(Result("c1", "files_read", "text")),
        ToolStarted(Call("hidden", {}, "c3")),
        ToolFinished(Result("c3", "hidden", "unseen")),
        ToolFinished(Result("c4", "files_read", "invalid_arguments: no", ok=False, code="bad_request")),
        ConfirmationNeeded("confirm_1", erase, "so"),
        Stopped("stop"),
    ]
    sent, response = sent_for(events)
    for event in sent:
        validate_type(type_=ResponseStreamEvent, value=event)
    validate_type(type_=Response, value=response)
    listed, unreachable, message, call, failed, question = response["output"]
    assert listed["tools"] == [write_listed(tool) for tool in TOOLS] and listed["error"] is None
    assert (unreachable["server_label"], unreachable["tools"], unreachable["error"]) == ("web", [], "it is down")
    assert message["content"][0]["text"] == "so"
    assert (call["server_label"], call["name"], call["arguments"], call["output"]) == ("files", "read", '{"path": "a"}', "text")
    assert (failed["name"], failed["arguments"], failed["output"]) == ("read", "{}", None)
    assert error_text(failed["error"]) == "invalid_arguments: no"
    assert (question["id"], question["name"], question["arguments"]) == ("confirm_1", "erase", '{"path": "b"}')
    assert response["status"] == "completed"


def test_a_call_that_was_asked_about_names_its_approval_and_says_what_was_asked():
    erase = Call("files_erase", {"path": "b"}, "c2", '{"path":  "b"}')
    late = Result("c2", "files_erase", "expired: too late", ok=False, code="expired")
    for events in ([ToolStarted(erase), ToolFinished(late)], [ToolFinished(late)]):
        _, response = sent_for([*events], {"confirm_1": erase})
        (item,) = response["output"]
        assert (item["approval_request_id"], item["arguments"], item["status"]) == ("confirm_1", '{"path":  "b"}', "failed")
    denied = ToolFinished(Result("c2", "files_erase", "denied: no", ok=False, code="denied"))
    assert sent_for([denied], {"confirm_1": erase})[1]["output"] == []
    assert len(sent_for([denied])[1]["output"]) == 1  # nobody was asked: the operator forbids it


def test_a_call_that_is_cut_off_is_incomplete():
    writer = McpWriter(ResponsesHeading("resp_1", "m", 5))
    writer.set_tools(SHOWN)
    sent = writer.write(ToolStarted(Call("files_read", {"path": "a"}, "c1")))
    sent += writer.cancel()
    assert [event["type"] for event in sent[-2:]] == ["response.output_item.done", "response.incomplete"]
    (item,) = writer.response()["output"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"path": "a"}')
    assert "not known what came of" in read_items(plain_items([Fields(item)])[0])[1].content
    assert writer.write(ToolFinished(Result("c1", "files_read", "late"))) == []
