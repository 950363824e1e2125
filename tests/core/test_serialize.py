"""Values as JSON documents: what is written is read back the same, and what is wrong is named by its place."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.approval import Approved, Denied, Policy, Rule
from callsmith.core.capability.binding import Binding
from callsmith.core.capability.origin import Origin
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.serialize import DocumentCodec, Saved, dump, load, read_conversation, write_conversation
from callsmith.core.values import Call, Choice, Image, Message, Output, Request, Result, Sampling, Tool, Usage

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


def built(of: type, /, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values with every field set: a field that is added to the class and forgotten here is an error."""
    assert {field.name for field in fields(of)} == strategies.keys()
    return st.builds(of, **strategies)


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
    images=st.lists(built(Image, url=TEXT, at=COUNT, detail=TEXT), max_size=2).map(tuple),
)
BINDINGS = built(
    Binding,
    capability=st.from_regex(r"[a-z_.]{1,9}", fullmatch=True),
    version=st.tuples(COUNT, COUNT),
    params=st.lists(TEXT, max_size=2).map(tuple),
    constant_params=OBJECT,
    constant_input=OBJECT,
    collect=st.just("segment"),
    join=TEXT,
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
    deferred=st.booleans(),
    binding=st.none() | BINDINGS,
    cache_seconds=st.sampled_from([None, 0.0]),  # more is for some tools only
    background=FLAG,
    kind=TEXT,
)
CONFIRMATIONS = built(ConfirmationNeeded, id=TEXT, call=CALLS, reason=TEXT, expires=SECONDS, tool=st.none() | TOOLS)
DECISIONS = built(Approved, arguments=st.none() | OBJECT, remember=FLAG, by=TEXT) | built(Denied, message=TEXT)
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
    checkpoints=st.dictionaries(TEXT, TEXT, max_size=2),
)
USAGES = built(Usage, prompt=COUNT, completion=COUNT, cached=COUNT, reasoning=COUNT)

REQUESTS = built(
    Request,
    messages=st.lists(MESSAGES, max_size=1).map(tuple),
    tools=st.lists(TOOLS, max_size=2).map(tuple),
    choice=st.builds(Choice, st.sampled_from(["auto", "none", "required"]), st.lists(TEXT, max_size=2).map(tuple)),
    parallel=st.none() | FLAG,
    sampling=st.builds(Sampling, temperature=SECONDS, seed=st.none() | COUNT, stop=st.lists(TEXT, max_size=2).map(tuple)),
    thinking=st.none() | FLAG,
    output=st.none() | st.builds(Output, OBJECT, strict=FLAG, as_written=FLAG) | st.just(Output(choices=("yes", "no"))),
    policy=st.sampled_from([None, "auto", "required_first_hop", "required_always"]),
    origin=built(Origin, session=TEXT, cache_salt=TEXT, affinity=TEXT, caller=TEXT),
    prefill=FLAG,
    explain=st.none(),
    call_bias=st.none() | st.floats(-20, 20),
    effort=st.sampled_from([None, "minimal", "high"]),
    thinking_budget=st.none() | COUNT,
)
RULES = built(
    Rule, then=st.sampled_from(["auto", "ask", "deny"]), tools=TEXT, sources=TEXT, side_effects=st.none() | FLAG,
    when=st.none(), reason=TEXT,
)  # fmt: skip
POLICIES = st.recursive(
    st.builds(Policy),
    lambda inner: st.builds(
        Policy, st.lists(RULES, max_size=2).map(tuple), st.just("deny"), st.just("ask"), st.lists(inner, max_size=2).map(tuple)
    ),
    max_leaves=3,
)
VALUES = CALLS | RESULTS | MESSAGES | TOOLS | USAGES | CONFIRMATIONS | DECISIONS | REQUESTS | POLICIES


@given(VALUES)
def test_every_value_is_read_back_as_it_was_written(value: Any):
    assert load(type(value), json.loads(json.dumps(dump(value)))) == value


@given(SAVED)
def test_a_conversation_is_read_back_as_it_was_written(saved: Saved):
    document = json.loads(json.dumps(write_conversation(saved)))
    assert document["version"] == 1
    assert read_conversation(document) == saved


def test_the_raw_text_of_a_calls_arguments_is_stored():
    call = Call("add", {"a": 1.0}, "c1", '{"a":1.0e0}')
    assert load(Call, dump(call)).text == '{"a":1.0e0}'


def test_fields_with_their_default_value_are_left_out():
    assert write_conversation(Saved("x", (Message.user("Hi"),))) == {
        "version": 1,
        "id": "x",
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_a_conversation_file_of_version_1_is_read_and_written_byte_by_byte_the_same():
    text = (Path(__file__).parent / "stored" / "conversation_1.json").read_text("ascii")
    saved = read_conversation(json.loads(text))
    assert json.dumps(write_conversation(saved), indent=1) + "\n" == text
    add = Call("add", {"a": 1, "b": 2.0}, "c1", '{"a":1,"b":2.0}')
    wipe = Call("wipe", {"path": "/tmp/é", "deep": {"x": [None, True]}}, "c2")
    messages = (
        Message.system("Be brief."),
        Message.user("Add, then wipe."),
        Message.assistant("On it.", reasoning="Both.", calls=(add, wipe)),
        Message.tool(Result("c1", "add", {"sum": 3.0})),
        Message.assistant("half a pair: \ud83d"),
    )
    assert saved == Saved(
        "conv_1",
        messages,
        "alice",
        "Be brief.",
        (ConfirmationNeeded("ask_1", wipe, "wipe has side effects", 2000000000.5),),
        {"c2": Approved({"path": "/tmp/x"}, True), "c3": Denied("Never.")},
        frozenset({"wipe", "add"}),
        frozenset({"c1"}),
    )


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
        load(Tool, {"name": "a b"}, "tools.3")


HALF, OTHER_HALF = chr(0xD800), chr(0xD801)  # of surrogate pairs: no valid text, but valid JSON


def test_json_values_are_stored_untouched():
    content = {"big": 10**400, "one": 1, "real": 1.0, "yes": True, HALF: 1, OTHER_HALF: "\udc00", "none": None}
    back = load(Result, json.loads(json.dumps(dump(Result("c", "t", content))))).content
    assert back == content and [type(item) for item in back.values()] == [type(item) for item in content.values()]
    assert math.isnan(load(Result, json.loads(json.dumps(dump(Result("c", "t", float("nan")))))).content)


def test_sets_are_written_in_order():
    assert write_conversation(Saved("x", granted=frozenset("cab")))["granted"] == ["a", "b", "c"]


def test_a_function_cannot_be_stored():
    with pytest.raises(UsageError, match=r"also\.0\.rules\.1\.when: a function cannot be stored"):
        dump(Policy(also=(Policy((Rule("ask"), Rule("deny", when=bool))),)))


def test_a_class_of_a_union_is_read_only_with_its_own_tag():
    assert dump(Approved()) == {"decision": "approved"}
    with pytest.raises(UsageError, match="decision: expected denied"):
        load(Denied, dump(Approved()))


def test_unknown_fields_are_passed_over_where_that_is_asked_for():
    document = {"role": "assistant", "later": 1, "calls": [{"name": "add", "later": 2}]}
    assert load(Message, document, ignore_unknown=True) == Message.assistant(calls=[Call("add")])


@dataclass(frozen=True)
class Note:
    id: str
    text: str = ""
    version: int = 0


NOTES = DocumentCodec(
    Note,
    version=2,
    upgrades={0: lambda old: {"version": 1, "words": old}, 1: lambda old: {"version": 2, "text": old["words"]}},
    outside=frozenset({"id", "version"}),
)


def test_a_document_has_a_version_and_leaves_out_what_is_stored_beside_it():
    assert NOTES.write(Note("n", "Hi", 7)) == {"version": 2, "text": "Hi"}
    assert NOTES.read({"version": 2, "text": "Hi"}, id="n", version=7) == Note("n", "Hi", 7)


@pytest.mark.parametrize("old", ["Hi", {"version": 1, "words": "Hi"}])
def test_a_document_of_an_older_version_is_upgraded(old: Any):
    assert NOTES.read(old, id="n") == Note("n", "Hi")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 3}, "version: 3 is not known here; this is written as version 2"),
        ({"version": True, "words": "Hi"}, "version: True is not known here; this is written as version 2"),
        ({"version": 1}, r"the document: not a document of version 1: KeyError\('words'\)"),
        ({"version": 2, "id": "m"}, "id: is stored beside the document, not in it"),
        ({"version": 2, "text": 5}, "text: expected a string, got an integer"),
    ],
)
def test_a_document_that_cannot_be_read_is_refused(document: Any, message: str):
    with pytest.raises(UsageError, match=f"^{message}$"):
        NOTES.read(document, id="n")
