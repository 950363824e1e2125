"""What an answer must be, in every spelling clients have for it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.events import CallReady, Report, Stopped, Unenforced
from callsmith.core.types.model_step import CallDecision, ModelStep
from callsmith.core.values import Call, ChoicePolicy, Message, Output, Request, Usage
from callsmith.wire.openai.chat import ChatRequest, read_request, write_request
from callsmith.wire.openai.chat_events import ChatHeading, ChunkWriter, EventReader, write_response
from callsmith.wire.openai.common import write_error

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
BAD = {"type": "object", "properties": {"a": {"type": "strin"}}}
LARK = "start: /[a-z]+/"


def read(**body: Any) -> Request:
    return read_request({"model": "m", "messages": HI, **body}).request


def json_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, **more}}


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ({}, None),
        ({"response_format": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Output.json_object()),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, Output(SCHEMA)),
        ({"response_format": json_schema(SCHEMA)}, Output(SCHEMA)),
        ({"response_format": json_schema(SCHEMA, strict=True)}, Output(SCHEMA, strict=True)),
        ({"response_format": json_schema(SCHEMA, strict=None, description="x")}, Output(SCHEMA)),
        pytest.param({"guided_json_schema": SCHEMA}, Output(SCHEMA), marks=pytest.mark.req("R75")),
        ({"json_schema": SCHEMA}, Output(SCHEMA)),
        ({"guided_json": SCHEMA}, Output(SCHEMA)),
        ({"guided_json": json.dumps(SCHEMA)}, Output(SCHEMA)),
        ({"response_format": json_schema(SCHEMA, strict=True, as_written=True)}, Output(SCHEMA, strict=True, as_written=True)),
        ({"response_format": json_schema(SCHEMA, as_written=False)}, Output(SCHEMA)),
        ({"response_format": {"type": "json_object", "schema": SCHEMA, "as_written": True}}, Output(SCHEMA, as_written=True)),
        ({"guided_json": SCHEMA, "as_written": True}, Output(SCHEMA, as_written=True)),
        ({"structured_outputs": {"json": SCHEMA, "as_written": True}}, Output(SCHEMA, as_written=True)),
        ({"structured_outputs": {"regex": "a+", "as_written": True}}, Output(pattern="a+")),
        ({"guided_choice": ["a", "b"]}, Output(choices=("a", "b"))),
        ({"guided_regex": "a+"}, Output(pattern="a+")),
        ({"guided_grammar": LARK}, Output(grammar=LARK)),
        ({"structured_outputs": {}}, None),
        ({"structured_outputs": {"json": SCHEMA}}, Output(SCHEMA)),
        ({"structured_outputs": {"json_object": True}}, Output.json_object()),
        ({"structured_outputs": {"json_object": False, "regex": "a+"}}, Output(pattern="a+")),
        ({"structured_outputs": {"choice": ["a"], "disable_any_whitespace": True}}, Output(choices=("a",))),
        ({"structured_outputs": {"grammar": LARK}}, Output(grammar=LARK)),
        ({"response_format": {"type": "text"}, "guided_choice": ["a"]}, Output(choices=("a",))),
    ],
)
def test_every_spelling_of_an_output_is_understood(body: dict[str, Any], output: Output | None):
    assert read(**body).output == output


@pytest.mark.parametrize(
    ("body", "field", "also"),
    [
        ({"response_format": json_schema(SCHEMA), "guided_choice": ["a"]}, "guided_choice", "response_format"),
        ({"guided_regex": "a", "guided_json_schema": SCHEMA}, "guided_regex", "guided_json_schema"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "response_format",
        ),
        ({"structured_outputs": {"json": SCHEMA, "choice": ["a"]}}, "structured_outputs.choice", "structured_outputs.json"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'xml'"),
        ({"response_format": {}}, "response_format.type", "required"),
        ({"response_format": "json"}, "response_format", "an object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "an object"),
        ({"response_format": json_schema(None)}, "response_format.json_schema.schema", "an object"),
        ({"guided_json": "{"}, "guided_json", "no JSON"),
        ({"guided_choice": []}, "guided_choice", "at least one"),
        ({"guided_choice": ["a", ""]}, "guided_choice", "empty"),
        ({"guided_choice": [1]}, "guided_choice.0", "a string"),
        ({"guided_regex": ""}, "guided_regex", "empty"),
        ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag", "not supported"),
        ({"grammar": "root ::= x", "guided_choice": ["a"]}, "grammar", "guided_choice"),
        ({"grammar": 5}, "grammar", "a string"),
        ({"tool_choice_policy": "always"}, "tool_choice_policy", "required_always"),
    ],
)
def test_what_is_wrong_or_given_twice_is_refused_by_name(body: dict[str, Any], field: str, also: str):
    with pytest.raises(UsageError) as caught:
        read(**body)
    failure = write_error(caught.value)
    assert failure.status == 400
    assert failure.body["error"]["param"] == field
    assert also in failure.body["error"]["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"response_format": json_schema(BAD)}, "response_format.json_schema.schema"),
        ({"guided_json_schema": BAD}, "guided_json_schema"),
        ({"structured_outputs": {"json": BAD}}, "structured_outputs.json"),
    ],
)
def test_a_bad_schema_is_refused_with_field_place_and_keyword(body: dict[str, Any], field: str):
    with pytest.raises(UnsupportedSchema) as caught:
        read(**body)
    assert (caught.value.field, caught.value.path, caught.value.keyword) == (field, "/properties/a", "type")


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
OUTPUTS = st.one_of(
    st.none(),
    st.builds(
        Output, st.sampled_from([{}, SCHEMA, {"type": "object"}, {"enum": ["x"]}]), strict=st.booleans(), as_written=st.booleans()
    ),
    st.lists(WORDS, min_size=1, max_size=3).map(lambda choices: Output(choices=tuple(choices))),
    st.builds(Output, pattern=WORDS),
    st.builds(Output, grammar=WORDS),
)


@given(OUTPUTS, st.sampled_from([None, "auto", "required_first_hop", "required_always"]))
def test_an_output_and_a_policy_survive_the_way_there_and_back(output: Output | None, policy: ChoicePolicy | None):
    chat = ChatRequest("m", Request((Message.user("hi"),), output=output, policy=policy))
    assert read_request(json.loads(json.dumps(write_request(chat)))) == chat


REPORT = Report(
    (Unenforced("add", "#", "not"), Unenforced("", "#/properties/a", "uniqueItems")),
    1,
    ("empty",),
    steps=(ModelStep("prompt", "text", "grammar", ("key-case",), 0.5, 7, 3, CallDecision(True, 1.3, -1.5)), ModelStep("next")),
    decision=CallDecision(True, 1.3, -1.5),
)
TOLD = {
    "unenforced": [
        {"tool": "add", "path": "#", "keyword": "not"},
        {"tool": None, "path": "#/properties/a", "keyword": "uniqueItems"},
    ],
    "retries": 1,
    "taken_back": ["empty"],
    "steps": [
        {
            "prompt": "prompt",
            "text": "text",
            "grammar": "grammar",
            "repairs": ["key-case"],
            "seconds": 0.5,
            "prompt_tokens": 7,
            "tokens": 3,
            "decision": {"calls": True, "score": 1.3, "threshold": -1.5},
        },
        {"prompt": "next", "text": "", "grammar": "", "repairs": [], "seconds": 0.0, "prompt_tokens": 0, "tokens": 0},
    ],
    "decision": {"calls": True, "score": 1.3, "threshold": -1.5},
}


def test_a_report_stands_in_the_response_and_beside_the_end_of_a_stream_and_is_read_back():
    events = [CallReady(0, Call("add", {}, "c1")), Stopped("calls", Usage(1, 2), REPORT)]
    heading = ChatHeading("chatcmpl-1", "m", 1, include_usage=True)
    assert write_response(events, heading)["callsmith"] == TOLD
    writer, reader = ChunkWriter(heading), EventReader()
    chunks = [chunk for event in events for chunk in writer.write(event)] + writer.close()
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if "callsmith" in chunk] == ["tool_calls"]
    read_back = [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()
    assert read_back[-1] == events[-1]


def test_where_there_is_nothing_to_tell_nothing_is_told():
    assert "callsmith" not in write_response([Stopped("stop")], ChatHeading("chatcmpl-1", "m", 1))
    assert REPORT + Report(REPORT.unenforced[:1], 2, ("call",), decision=CallDecision(False, 0, 1)) == Report(
        REPORT.unenforced, 3, ("empty", "call"), steps=REPORT.steps, decision=REPORT.decision
    )
