"""Values as JSON documents: what is written is read back the same, and what is wrong is named by its place."""

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.approval import Approved, Denied
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.serialize import (
    CALL,
    CONFIRMATION,
    DECISION,
    MESSAGE,
    RESULT,
    TOOL,
    USAGE,
    Saved,
    read_conversation,
    write_conversation,
)
from callsmith.core.values import Call, Message, Result, Tool, Usage

TEXT = st.text(st.characters(codec=None), max_size=12)  # lone surrogates too: models do write them
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
FLAG = st.booleans()
COUNT = st.integers(0, 10**6)
SECONDS = st.none() | st.floats(0, 1e10)


def built(made: type, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values with every field set: a field that is added to the class and forgotten here, or in the record, is an error."""
    assert {one.name for one in fields(made)} == strategies.keys()
    return st.builds(made, **strategies)


CALLS = built(Call, name=TEXT, arguments=OBJECT, id=TEXT, text=TEXT)
RESULTS = built(Result, call_id=TEXT, name=TEXT, content=JSON, ok=FLAG, code=TEXT)
MESSAGES = built(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXT,
    reasoning=TEXT,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    call_id=TEXT,
    name=TEXT,
)
TOOLS = built(
    Tool,
    name=st.from_regex(r"[a-z_.]{1,9}", fullmatch=True),
    description=TEXT,
    parameters=OBJECT,
    output=st.none() | OBJECT,
    strict=FLAG,
    side_effects=FLAG,
    idempotent=FLAG,
    timeout=SECONDS,
    source=TEXT,
    original=TEXT,
)
CONFIRMATIONS = built(ConfirmationNeeded, id=TEXT, call=CALLS, reason=TEXT, expires=SECONDS)
DECISIONS = built(Approved, arguments=st.none() | OBJECT, remember=FLAG) | built(Denied, message=TEXT)
SAVED = built(
    Saved,
    id=TEXT,
    messages=st.lists(MESSAGES, max_size=3).map(tuple),
    subject=TEXT,
    instructions=TEXT,
    pending=st.lists(CONFIRMATIONS, max_size=2).map(tuple),
    decisions=st.dictionaries(TEXT, DECISIONS, max_size=2),
    granted=st.frozensets(TEXT, max_size=2),
    started=st.frozensets(TEXT, max_size=2),
)
USAGES = built(Usage, prompt=COUNT, completion=COUNT, cached=COUNT, reasoning=COUNT)

KINDS = [
    (CALL, CALLS),
    (RESULT, RESULTS),
    (MESSAGE, MESSAGES),
    (TOOL, TOOLS),
    (USAGE, USAGES),
    (CONFIRMATION, CONFIRMATIONS),
    (DECISION, DECISIONS),
]


@given(st.data())
def test_every_value_is_read_back_as_it_was_written(data: st.DataObject):
    codec, values = data.draw(st.sampled_from(KINDS))
    value = data.draw(values)
    assert codec.read(json.loads(json.dumps(codec.write(value))), "") == value


@given(SAVED)
def test_a_conversation_is_read_back_as_it_was_written(saved: Saved):
    document = json.loads(json.dumps(write_conversation(saved)))
    assert document["version"] == 1
    assert read_conversation(document) == saved


def test_the_raw_text_of_a_calls_arguments_is_kept():
    call = Call("add", {"a": 1.0}, "c1", '{"a":1.0e0}')
    assert CALL.read(CALL.write(call), "").text == '{"a":1.0e0}'


def test_what_has_its_standard_value_is_left_out():
    assert write_conversation(Saved("x", (Message.user("Hi"),))) == {
        "version": 1,
        "id": "x",
        "messages": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], None),
        ({}, "version"),
        ({"version": 2, "id": "x"}, "version"),
        ({"version": 1}, "id"),
        ({"version": 1, "id": 5}, "id"),
        ({"version": 1, "id": "x", "messages": {}}, "messages"),
        ({"version": 1, "id": "x", "messages": [{"role": "user"}, 5]}, "messages.1"),
        ({"version": 1, "id": "x", "messages": [{"role": "robot"}]}, "messages.0.role"),
        ({"version": 1, "id": "x", "messages": [{"content": "Hi"}]}, "messages.0.role"),
        ({"version": 1, "id": "x", "messages": [{"role": "user", "colour": "red"}]}, "messages.0.colour"),
        ({"version": 1, "id": "x", "messages": [{"role": "assistant", "calls": [{"name": True}]}]}, "messages.0.calls.0.name"),
        ({"version": 1, "id": "x", "messages": [{"role": "assistant", "calls": [{"name": "a", "arguments": []}]}]},
         "messages.0.calls.0.arguments"),
        ({"version": 1, "id": "x", "pending": [{"id": "p", "call": {"name": "a"}, "expires": "soon"}]}, "pending.0.expires"),
        ({"version": 1, "id": "x", "decisions": {"c1": {}}}, "decisions.c1.decision"),
        ({"version": 1, "id": "x", "decisions": {"c1": {"decision": "approved", "message": "no"}}}, "decisions.c1.message"),
        ({"version": 1, "id": "x", "decisions": {"c1": {"decision": "approved", "remember": 1}}}, "decisions.c1.remember"),
        ({"version": 1, "id": "x", "started": [1]}, "started.0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(document: Any, place: str | None):
    with pytest.raises(UsageError) as raised:
        read_conversation(document)
    assert raised.value.field == place
    assert str(raised.value).startswith(place or "the document")


def test_a_tool_that_cannot_be_is_refused_at_its_place():
    with pytest.raises(UsageError, match=r"tools\.3: tool name 'a b'"):
        TOOL.read({"name": "a b"}, "tools.3")
