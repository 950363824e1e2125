"""Documents of a store: they are written as they always will be, and what cannot be read is refused with the reason."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.approval import Approved, Denied, Policy, Rule
from callsmith.core.capability.origin import Origin
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Choice, Message, Output, Request, Result, Sampling, Tool
from callsmith.server.approvals.approvals import APPROVAL_CODEC, PAUSED_RUN_CODEC, Approval, Approvals, PausedRun
from callsmith.server.routes.responses.stored import EarlierItems, StoredResponses
from callsmith.server.store import Document
from callsmith.server.store.sqlite import SqliteStore
from callsmith.wire.extensions import ToolOptions, ToolSource
from callsmith.wire.openai.responses import StoredReferences

ITEMS: dict[str, Any] = {
    "msg_1": {"id": "msg_1", "type": "message", "role": "assistant", "content": []},
    "msg_1_i0": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hi"}],
        "id": "msg_1_i0",
        "status": "completed",
    },
}
RESPONSE: dict[str, Any] = {
    "version": 1,
    "response": {"id": "resp_1", "object": "response", "status": "completed", "output": []},
    "conversation": "resp_0",
    "earlier": ["msg_0"],
    "input": ["msg_1_i0"],
    "output": ["msg_1"],
}

ADD = Call("add", {"a": 1, "b": 2.0}, "c1", '{"a":1,"b":2.0}')
WIPE = Call("wipe", {"path": "/tmp/é", "deep": {"x": [None, True]}}, "c2")
CREATED, EXPIRES = 1000.5, 2000000000.0
APPROVALS = [
    Approval(
        "pending", "run_1", WIPE, "mcp:files", "wipe has side effects", CREATED, EXPIRES,
        response="resp_1", asks={"type": "object"}, version=1,
    ),
    Approval(
        "running", "run_1", ADD, "", "so", CREATED, EXPIRES,
        decision=Approved({"a": 2}, True), has_begun=True, changed=1001.25, version=1,
    ),
    Approval(
        "done", "run_1", ADD, "", "so", CREATED, EXPIRES,
        decision=Approved(), result=Result("c1", "add", {"sum": 3}), changed=1001.25, version=1,
    ),
    Approval(
        "denied", "run_1", ADD, "", "so", CREATED, EXPIRES,
        decision=Denied("Never."), result=Result("c1", "add", "no", False, "denied"), version=1,
    ),
]  # fmt: skip
SAVED = Saved(
    "conv_1",
    (
        Message.system("Be brief."),
        Message.user("Add, then wipe."),
        Message.assistant("On it.", reasoning="Both.", calls=(ADD, WIPE)),
        Message.tool(Result("c1", "add", {"sum": 3.0})),
    ),
    "alice",
    "Be brief.",
    (ConfirmationNeeded("ask_1", WIPE, "wipe has side effects", 2000000000.5),),
    {"c2": Approved({"path": "/tmp/x"}, True), "c3": Denied("Never.")},
    frozenset({"wipe", "add"}),
    frozenset({"c1"}),
)
POLICY = Policy((Rule("ask", "r*", "mcp:*", True, reason="so"), Rule("deny")), "deny", "auto", (Policy(otherwise="ask"),))
TOOL = Tool(
    "add", "Adds.", {"type": "object", "properties": {"a": {"type": "number"}}}, {"type": "object"},
    strict=True, idempotent=True, timeout=5, source="mcp:math", original="plus",
)  # fmt: skip
REQUEST = Request(
    (),
    (TOOL, Tool("wipe", side_effects=True)),
    Choice("required", ("add",)),
    False,
    Sampling(0.5, seed=7, stop=("END",)),
    True,
    Output(choices=("yes", "no")),
    "required_always",
    Origin("s1"),
)
OPTIONS = ToolOptions(
    "mixed", sources=(ToolSource("files", ("read_*",), POLICY, True), ToolSource("web")), response_id="resp_1", allowed=("a*",)
)
RUNS = [
    PausedRun("run_1", "qwen", REQUEST, OPTIONS, SAVED, 2, version=1),
    PausedRun("run_2", "qwen", Request(()), ToolOptions(), Saved("conv_2"), 0, version=1),
]


async def test_approvals_paused_runs_and_grants_are_read_as_they_were_written():
    store = SqliteStore()
    approvals = Approvals(store)
    await approvals.write(*(replace(item, version=0) for item in (*APPROVALS, *RUNS)))
    await approvals.grant("conv_1", ["add", "wipe"])
    for kind in ("approval", "paused_run", "grant"):
        assert {document.data["version"] for document in await store.list(kind)} == {1}
    assert list((await approvals.get(*(item.id for item in APPROVALS))).values()) == APPROVALS
    assert [await approvals.get_run(run.id) for run in RUNS] == RUNS
    assert await approvals.list_granted("conv_1") == {"add", "wipe"}


async def test_responses_are_read_as_they_were_written():
    responses = StoredResponses(SqliteStore())
    await responses.store.put(*(Document("response_item", id, item) for id, item in {**ITEMS, "msg_0": {"id": "msg_0"}}.items()))
    await responses.store.put(Document("response", "resp_1", RESPONSE))
    assert await responses.response("resp_1") == {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [ITEMS["msg_1"]],
    }
    assert await responses.input_items("resp_1") == [{"id": "msg_0"}, ITEMS["msg_1_i0"]]
    before = await responses.before(StoredReferences(previous="resp_1"))
    assert list(before.earlier) == ["msg_0", "msg_1_i0", "msg_1"] and before.conversation == "resp_0"
    assert await responses.forget("resp_1") == ["msg_1"]


async def test_a_response_is_written_in_the_layout_of_version_1():
    store = SqliteStore()
    output = [{"id": "msg_1", "type": "message", "role": "assistant", "content": []}]
    await StoredResponses(store).keep(
        {"id": "resp_1", "object": "response", "status": "completed", "output": output},
        EarlierItems({"msg_0": {"id": "msg_0"}}, {}, "resp_0"),
        [{"type": "message", "role": "user", "content": "Hi"}],
    )
    (document,) = await store.list("response")
    assert document.data == RESPONSE
    assert {document.id: document.data for document in await store.list("response_item")} == ITEMS


async def test_a_conversation_is_written_in_the_layout_of_version_1():
    store = SqliteStore()
    conversations = StoredResponses(store).conversations
    created = await conversations.create({"topic": "tea"}, [{"type": "message", "role": "user", "content": "Hi"}])
    (document,), (item,) = await store.list("conversation"), await store.list("response_item")
    layout = {"version": 1, "created": created.created, "metadata": {"topic": "tea"}, "items": [item.id]}
    assert (document.id, document.data) == (created.id, layout)


def test_an_approval_is_written_in_the_layout_of_version_1():
    assert APPROVAL_CODEC.write(APPROVALS[1]) == {
        "version": 1,
        "run": "run_1",
        "call": {"name": "add", "arguments": {"a": 1, "b": 2.0}, "id": "c1", "text": '{"a":1,"b":2.0}'},
        "source": "",
        "reason": "so",
        "created": 1000.5,
        "expires": 2000000000.0,
        "decision": {"decision": "approved", "arguments": {"a": 2}, "remember": True},
        "has_begun": True,
        "changed": 1001.25,
    }


async def test_what_a_paused_run_was_told_about_earlier_calls_is_not_stored():
    options = ToolOptions("mixed", approvals=("a1",), wait_for_approval=True, shows_tool_items=True)
    run = PausedRun("run_1", "qwen", Request((Message.user("Hi"),)), options, SAVED, 2)
    approvals = Approvals(SqliteStore())
    await approvals.write(run)
    assert await approvals.get_run("run_1") == PausedRun("run_1", "qwen", Request(()), ToolOptions("mixed"), SAVED, 2, version=1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 2}, "version: 2 is not known here; this is written as version 1"),
        (
            {"version": 1, "request": {"messages": []}, "options": {}, "saved": {"id": 5}, "began": 0},
            r"saved\.id: expected a string",
        ),
        ({"saved": {"id": "x"}}, "version: 0 is not known here; this is written as version 1"),
        ([], "the document: expected an object"),
    ],
)
def test_a_paused_run_that_cannot_be_read_is_refused_with_the_reason(document: Any, message: str):
    with pytest.raises(UsageError, match=f"^{message}"):
        PAUSED_RUN_CODEC.read(document, id="run_1")
