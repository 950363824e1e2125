"""Repairs that follow the schema: keys in another case and values of another type, each reported by name."""

import json

import pytest

from callsmith.core.events import CallArguments, CallReady
from callsmith.core.values import Tool
from callsmith.formats import format_named
from callsmith.formats.reader.parse import read
from callsmith.formats.reader.reader import Reader

SEARCH = Tool(
    "search_flights",
    "",
    {
        "type": "object",
        "properties": {
            "fromCity": {"type": "string"},
            "seats": {"type": "integer"},
            "is_direct": {"type": "boolean"},
            "max_price": {"type": ["number", "null"]},
            "tags": {"type": "array", "items": {"type": "integer"}},
            "filter": {"$ref": "#/$defs/filter"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"filter": {"type": "object", "properties": {"airLine": {"type": "string"}, "stops": {"type": "integer"}}}},
    },
)


def hermes(arguments: str) -> str:
    return f'<tool_call>{{"name": "search_flights", "arguments": {arguments}}}</tool_call>'


@pytest.mark.req("R224")
@pytest.mark.parametrize(
    ("format", "text", "arguments", "repairs"),
    [
        ("hermes", hermes('{"FromCity": "Oslo"}'), {"fromCity": "Oslo"}, ("key-case",)),
        ("hermes", hermes('{"from_city": "Oslo", "IsDirect": true}'), {"fromCity": "Oslo", "is_direct": True}, ("key-case",)),
        ("hermes", hermes('{"filter": {"AIRLINE": "X", "stops": 1}}'), {"filter": {"airLine": "X", "stops": 1}}, ("key-case",)),
        ("hermes", hermes('{"seats": "2", "is_direct": "True"}'), {"seats": 2, "is_direct": True}, ("value-type",)),
        ("hermes", hermes('{"max_price": "99.5"}'), {"max_price": 99.5}, ("value-type",)),
        ("hermes", hermes('{"tags": ["1", 2]}'), {"tags": [1, 2]}, ("value-type",)),
        ("hermes", hermes('{"tags": "[1, 2]"}'), {"tags": [1, 2]}, ("value-type",)),
        ("hermes", hermes('{"filter": {"stops": "0"}}'), {"filter": {"stops": 0}}, ("value-type",)),
        ("hermes", hermes('{"fromCity": 1860}'), {"fromCity": "1860"}, ("value-type",)),
        ("hermes", hermes('{"Seats": "2"}'), {"seats": 2}, ("key-case", "value-type")),
        (
            "pythonic",
            "[search_flights(FROM_CITY='Oslo', seats='2')]",
            {"fromCity": "Oslo", "seats": 2},
            ("key-case", "value-type"),
        ),
        (
            "qwen3-coder",
            "<tool_call><function=search_flights><parameter=Seats>2</parameter></function></tool_call>",
            {"seats": 2},
            ("key-case",),
        ),
    ],
)
def test_keys_and_values_that_can_mean_only_one_thing_follow_the_schema_and_are_reported(
    format: str, text: str, arguments: dict, repairs: tuple[str, ...]
):
    events = read(format_named(format), text, [SEARCH])
    (ready,) = [event for event in events if isinstance(event, CallReady)]
    assert (dict(ready.call.arguments), ready.repairs) == (arguments, repairs)
    assert json.loads("".join(event.text for event in events if isinstance(event, CallArguments))) == arguments


@pytest.mark.req("R224")
@pytest.mark.parametrize(
    "arguments",
    [
        '{"seats": "two"}',  # no number
        '{"seats": "2.5"}',  # no integer
        '{"fromCity": "12"}',  # a string that looks like a number
        '{"fromCity": null}',
        '{"fromCity": "a", "FromCity": "b"}',  # the right one is there already
        '{"labels": {"A": "x", "seats": "2"}}',  # any key is allowed
        '{"other": "2"}',
    ],
)
def test_what_may_mean_something_else_is_left_to_validation(arguments: str):
    (ready,) = [event for event in read(format_named("hermes"), hermes(arguments), [SEARCH]) if isinstance(event, CallReady)]
    assert (dict(ready.call.arguments), ready.repairs) == (json.loads(arguments), ())


@pytest.mark.parametrize("options", [{"strict": True}, {"is_constrained": True}])
def test_what_is_strict_or_constrained_is_read_as_it_is_written(options: dict):
    reader = Reader(format_named("hermes"), [SEARCH], **options)
    events = reader.feed(hermes('{"Seats": "2", "is_direct": "true"}')) + reader.close()
    (ready,) = [event for event in events if isinstance(event, CallReady)]
    assert (dict(ready.call.arguments), ready.repairs) == ({"Seats": "2", "is_direct": "true"}, ())


@pytest.mark.parametrize("arguments", ['{"fromCity": "Oslo"}', '{"FromCity": "Oslo"}', '{"from_city": "Oslo"}', '{"fromage": 1}'])
def test_a_key_that_may_be_corrected_is_streamed_alike_however_the_text_is_cut(arguments: str):
    def streamed(size: int) -> str:
        reader = Reader(format_named("hermes"), [SEARCH])
        text = hermes(arguments)
        events = [event for at in range(0, 80, size) for event in reader.feed(text[at : min(at + size, 80)])]
        return "".join(event.text for event in events if isinstance(event, CallArguments))

    assert len({streamed(size) for size in (1, 3, 80)}) == 1
