"""The laws every format obeys, and the data they are tried on. `callsmith.formats` lists the formats; nobody registers any."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats.layout import Calls, Format
from callsmith.formats.read import Reader
from callsmith.formats.turn import turn_of

CHUNKS = (1, 2, 3, 5, 11)

NAMES = st.sampled_from(["get_weather", "send-mail", "f", "list_files2"])
KEYS = st.sampled_from(["city", "n", "path", "is_on", "some_items", "x1"])


def strings(format: Format) -> st.SearchStrategy[str]:
    """Text as it hurts most: markers of the format and pieces of them, quotes, backslashes, newlines, any script."""
    markers = sorted(markers_of(format))
    pieces = st.sampled_from([*markers, *(marker[: len(marker) // 2 + 1] for marker in markers), '"', "'", "\\", "\n", "{", "]"])
    return st.lists(st.one_of(st.text(max_size=8), pieces), max_size=4).map("".join)


def markers_of(format: Format) -> set[str]:
    """Every marker the reader knows for this format."""
    return set(turn_of(format).plain.texts)


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


def read_in(format: Format, text: str, size: int, tools: Iterable[Tool] = (), opened: str = "") -> list[ModelEvent]:
    """Read a text in pieces of this size (0: whole), neighbouring deltas joined."""
    reader = Reader(format, tools, opened)
    pieces = [text] if not size else [text[at : at + size] for at in range(0, len(text), size)]
    return merged([event for piece in pieces for event in reader.feed(piece)] + reader.close())


def merged(events: Sequence[ModelEvent]) -> list[ModelEvent]:
    """The same events, with runs of text, thought and arguments joined."""
    joined: list[ModelEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case (Text(), Text()) | (Thought(), Thought()):
                joined[-1] = type(event)(last.text + event.text)
            case CallArguments(), CallArguments() if last.index == event.index:
                joined[-1] = CallArguments(event.index, last.text + event.text)
            case _:
                joined.append(event)
    return joined


def calls_in(events: Iterable[ModelEvent]) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of the calls that are ready."""
    return [(event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)]


def text_in(events: Iterable[ModelEvent], kind: type[Text] | type[Thought] = Text) -> str:
    """All the text, or all the thought."""
    return "".join(event.text for event in events if isinstance(event, kind))


def check_order(events: Sequence[ModelEvent]) -> None:
    """Calls are numbered from 0, one after another, each started once; the streamed arguments are the call's own text."""
    open_call: int | None = None
    streamed = ""
    expected = 0
    for event in events:
        match event:
            case CallStarted():
                assert open_call is None
                assert event.index == expected
                open_call, streamed = event.index, ""
            case CallArguments():
                assert event.index == open_call
                assert event.text
                streamed += event.text
            case CallReady():
                assert event.index == open_call
                assert streamed == event.call.text
                open_call, expected = None, expected + 1
            case Unreadable(index=int()):
                assert event.index == open_call
                open_call, expected = None, expected + 1
            case _:
                assert open_call is None, f"{event} inside a call"
    assert open_call is None
    assert not any(type(a) is type(b) is Text for a, b in pairwise(merged(events)))


def written_calls(format: Format) -> Calls:
    """The part that is written."""
    return format.calls
