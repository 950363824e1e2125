"""Values that are read at once are read as they are step by step, and what is to be repaired is not read at once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.events import CallReady
from callsmith.core.values import Tool
from callsmith.formats import format_named
from callsmith.formats.reader.reader import Reader
from callsmith.formats.reader.typed import ValueSchema
from callsmith.formats.reader.whole.values import whole_json

HERMES = format_named("hermes")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["5", "true", 'a "b", c', "\\", "</tool_call>"])
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4))
SCHEMAS = st.sampled_from(
    [
        *({"type": kind} for kind in ("string", "integer", "boolean", "null", "array", "object")),
        {},
        {"type": ["string", "null"]},
        {"enum": ["5", "6"]},
        {"enum": [5, "6"]},
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "number"}},
        {"type": "object", "properties": {"Key": {"type": "integer"}}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ]
)
STYLES: list[dict[str, Any]] = [
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"ensure_ascii": False},
    {"separators": (" ,\t", "\n: ")},
]


@given(
    st.dictionaries(st.sampled_from(["a", "A", "b_c", "bC", "other"]), VALUES),
    SCHEMAS,
    SCHEMAS,
    st.sampled_from(STYLES),
    st.booleans(),
)
def test_a_text_in_one_piece_is_read_as_it_is_in_many(
    arguments: dict[str, Any], one: dict[str, Any], other: dict[str, Any], style: dict[str, Any], closed: bool
) -> None:
    tool = Tool("write", "", {"type": "object", "properties": {"a": one, "b_c": other}, "additionalProperties": not closed})
    call = json.dumps({"name": "write", "arguments": arguments}, **style)
    text = f"<tool_call>\n{call}\n</tool_call>"
    whole, pieces = Reader(HERMES, (tool,)), Reader(HERMES, (tool,))
    at_once = whole.close(text)
    step_by_step = [event for char in text for event in pieces.feed(char)] + pieces.close()
    assert _ready(at_once) == _ready(step_by_step)


def _ready(events: list[Any]) -> list[tuple[str, tuple[str, ...]]]:
    return [(event.call.text, event.repairs) for event in events if isinstance(event, CallReady)]


STRINGS = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("text", "schema", "read"),
    [
        ('{"a": "x"} and', STRINGS, '{"a": "x"}'),
        ('{"a":"x",\n "b" : [1,2.5]}', None, '{"a": "x", "b": [1, 2.5]}'),
        ('["\\n", "é"]', None, '["\\n", "é"]'),
        ('"name"', None, '"name"'),
        ('{"a": "x"', None, None),  # more is to come
        ('{"a": 5}', STRINGS, None),  # the schema has it a string
        ('{"A": "x"}', STRINGS, None),  # the key is in another case
        ('{"a": "x", "a": "y"}', None, None),
        ('{"a": 1.50, "b": "\\u00e9\\/"}', None, '{"a": 1.50, "b": "\\u00e9\\/"}'),  # numbers and escapes stay as they are
        ("[1.50]", None, None),  # inside of others they are not looked at
        ('["\\u00e9"]', None, None),
        ("[NaN]", None, None),
        ('["a\nb"]', None, None),
        ("[" * 101 + "]" * 101, None, None),
        ("[" * 100_000, None, None),
    ],
)
def test_only_what_needs_no_repair_is_read_at_once(text: str, schema: dict[str, Any] | None, read: str | None) -> None:
    whole = whole_json(text, 0, ValueSchema(schema, schema) if schema else None)
    assert (whole and whole.text) == read
    assert whole is None or (whole.end, whole.value) == (text.rindex(whole.text[-1]) + 1, json.loads(whole.text))
