"""The laws every format obeys, and the data they are tried on. `callsmith.formats` lists the formats; nobody registers any."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from callsmith.core.events import CallArguments, ModelEvent, Text, Thought
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import Format
from callsmith.formats.inference.laws import CHUNKS, calls_in, order_problem, read_in_chunks, text_in
from callsmith.formats.reader.markers import compile_markers

__all__ = ["CHUNKS", "calls_in", "check_order", "markers_of", "read_in_chunks", "rounds", "strings", "text_in"]

NAMES = st.sampled_from(["get_weather", "send-mail", "f", "list_files2"])
KEYS = st.sampled_from(["city", "n", "path", "is_on", "some_items", "x1"])


def strings(format: Format) -> st.SearchStrategy[str]:
    """Text as it hurts most: markers of the format and pieces of them, quotes, backslashes, newlines, any script."""
    markers = sorted(markers_of(format))
    pieces = st.sampled_from([*markers, *(marker[: len(marker) // 2 + 1] for marker in markers), '"', "'", "\\", "\n", "{", "]"])
    return st.lists(st.one_of(st.text(max_size=8), pieces), max_size=4).map("".join)


def markers_of(format: Format) -> set[str]:
    """Every marker the reader knows for this format."""
    return set(compile_markers(format).text_stops.texts)


def values(format: Format) -> st.SearchStrategy[tuple[Any, dict[str, Any]]]:
    """A value and its schema."""
    text = strings(format)
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    integer = st.integers(-(2**50), 2**50)
    plain = st.one_of(
        text.map(lambda value: (value, {"type": "string"})),
        integer.map(lambda value: (value, {"type": "integer"})),
        number.map(lambda value: (value, {"type": "number"})),
        st.booleans().map(lambda value: (value, {"type": "boolean"})),
    )
    lists = st.lists(text, max_size=3).map(lambda value: (value, {"type": "array", "items": {"type": "string"}}))
    objects = st.fixed_dictionaries({"a": text, "b": integer}).map(
        lambda value: (value, {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}})
    )
    return st.one_of(plain, lists, objects)


@st.composite
def rounds(draw: st.DrawFn, format: Format) -> tuple[list[Tool], list[Call]]:
    """Tools, and a round of calls of them."""
    tools: dict[str, Tool] = {}
    calls: list[Call] = []
    most = format.calls.most or 3
    for index in range(draw(st.integers(1, most))):
        name = draw(NAMES.filter(lambda name: name not in tools))
        filled = draw(st.dictionaries(KEYS, values(format), max_size=4))
        schema = {"type": "object", "properties": {key: schema for key, (_, schema) in filled.items()}}
        tools[name] = Tool(name, "", schema)
        calls.append(Call(name, {key: value for key, (value, _) in filled.items()}, id=f"{index}".rjust(9, "a")))
    return list(tools.values()), calls


def check_order(events: Sequence[ModelEvent]) -> None:
    """Calls are numbered from 0, one after another, each started once; the streamed arguments are the call's own text."""
    assert not order_problem(events)
    assert all(event.text for event in events if isinstance(event, Text | Thought | CallArguments))
