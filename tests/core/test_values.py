"""The nouns: what they hold, what they leave out, and that nobody changes them."""

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Message, Request, Result, Sampling, Tool


@pytest.mark.req("R1")
def test_a_tool_is_a_name_a_description_and_a_schema_that_requires_nothing_unless_it_says_so():
    bare = Tool("get_weather")
    assert (bare.name, bare.description, dict(bare.parameters)) == ("get_weather", "", {"type": "object", "properties": {}})
    assert validate(bare.parameters, {}) == []
    city = Tool("get_weather", "The weather.", {"properties": {"city": {"type": "string"}}, "required": ["city"]})
    assert [str(violation) for violation in validate(city.parameters, {})] == ['"city" is a required property']


@pytest.mark.req("R1")
@pytest.mark.parametrize("name", ["", "get weather", "größe", "a\nb", "x" * 257])
def test_a_name_that_no_model_could_write_is_refused(name: str):
    with pytest.raises(UsageError, match="tool name"):
        Tool(name)


@pytest.mark.req("R14")
@pytest.mark.req("R15")
@pytest.mark.parametrize(
    ("value", "field"),
    [
        (Tool("f"), "name"),
        (Call("f"), "arguments"),
        (Result("c1", "f", "x"), "content"),
        (Message.user("hi"), "content"),
        (Request(()), "tools"),
    ],
)
def test_a_value_is_never_changed(value: Any, field: str):
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, None)


@pytest.mark.req("R14")
def test_a_call_has_the_id_and_the_very_text_the_model_wrote_beside_its_arguments():
    call = Call("f", {"ä": 1}, "aB3dE6gH9", '{"ä":1}')
    assert (call.id, call.name, call.arguments, call.text) == ("aB3dE6gH9", "f", {"ä": 1}, '{"ä":1}')
    assert Call("f", {"ä": 1}).text == '{"ä": 1}'


@pytest.mark.req("R15")
def test_what_a_tool_gave_is_text_to_the_model_and_says_whether_it_failed():
    assert Result("c1", "f", "mild").text == "mild"
    result = Result("c1", "f", {"größe": [1, None]})
    assert json.loads(result.text) == {"größe": [1, None]}
    assert "größe" in result.text
    assert (result.ok, result.code) == (True, "")
    failed = Result("c1", "f", "timeout: too long", ok=False, code="timeout")
    assert (failed.call_id, failed.name, failed.ok, failed.code) == ("c1", "f", False, "timeout")


@pytest.mark.req("R10")
def test_each_role_has_a_constructor():
    assert Message.system("Be brief.") == Message(role="system", content="Be brief.")
    assert Message.user("hi") == Message(role="user", content="hi")
    assert Message.assistant("hello") == Message(role="assistant", content="hello")
    result = Result("c1", "f", {"a": 1})
    assert Message.tool(result) == Message(role="tool", content='{"a": 1}', call_id="c1", name="f")


@pytest.mark.req("R11")
def test_a_turn_of_the_assistants_is_words_or_calls_or_both():
    call = Call("f", {}, "c1")
    assert Message.assistant("hi") == Message(role="assistant", content="hi", calls=())
    assert Message.assistant(calls=[call]) == Message(role="assistant", content="", calls=(call,))
    both = Message.assistant("wait", reasoning="hm", calls=[call])
    assert (both.content, both.reasoning, both.calls) == ("wait", "hm", (call,))


@pytest.mark.req("R6")
def test_a_request_that_says_nothing_leaves_everything_to_the_model():
    plain = Request((Message.user("hi"),))
    assert (plain.tools, plain.choice, plain.parallel, plain.sampling) == ((), Choice("auto"), None, Sampling())
