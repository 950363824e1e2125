"""Law 8: reading is linear, and arguments really stream."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.events import CallArguments, CallReady
from callsmith.core.values import Call, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.reader.reader import Reader
from callsmith.formats.reader.source import Stops
from callsmith.formats.write import write

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
TOOL = Tool("write_file", "", {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}})
CODE = "def f(x):\n    return \"é\" + x[0]  # it's {ok}, isn't it?\n"


def chunks(text: str, size: int = 4) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def seconds_a_chunk(format: Format, text: str) -> float:
    """The CPU time of reading a chunk."""
    pieces = chunks(text)
    reader = Reader(format, [TOOL])
    began = time.process_time()
    for piece in pieces:
        reader.feed(piece)
    reader.close()
    return (time.process_time() - began) / len(pieces)


def is_linear(format: Format, short: str, long: str, factor: float) -> bool:
    """Whether a chunk of a long text costs less than so much more than one of a short text.

    What the machine does besides only ever adds to a time: it is tried again until the best of each fits.
    """
    few = many = float("inf")
    for _ in range(8):
        few, many = min(few, seconds_a_chunk(format, short)), min(many, seconds_a_chunk(format, long))
        if many < factor * few + 20e-6:
            return True
    return False


def call_of(format: Format, size: int) -> str:
    content = (CODE * (size // len(CODE) + 1))[:size]
    return write(format, [Call("write_file", {"path": "a.py", "content": content}, "aaaaaaaaa")])


@EVERY
@pytest.mark.sampled
def test_the_cost_of_a_chunk_does_not_grow_with_the_length_of_an_argument(format: Format):
    assert is_linear(format, call_of(format, 2_000), call_of(format, 50_000), 4)  # if it grew: 25


@EVERY
@pytest.mark.parametrize("flood", ["[", "{", "<", '{"a": ', "<tool_call>", "```", "(", "\n", "f("])
@pytest.mark.sampled
def test_a_flood_of_anything_is_read_in_linear_time(format: Format, flood: str):
    short, long = (flood * (size // len(flood)) for size in (1_000, 8_000))
    assert is_linear(format, short, long, 4)  # if it grew: 8


@pytest.mark.parametrize("closer", ["</arg_value>", "</arg_value:opensource>"])
@pytest.mark.sampled
def test_a_whole_text_is_read_in_linear_time_though_one_of_two_closers_is_nowhere(closer: str):
    format = format_named("hy-v3")

    def seconds_an_argument(count: int) -> float:
        text = write(format, [Call("f", {f"k{number}": "some text" for number in range(count)})])
        text = text.replace("</arg_value>", closer).replace("</arg_value:opensource>", closer)
        began = time.process_time()
        events = Reader(format).close(text)
        assert isinstance(events[-1], CallReady) and len(events[-1].call.arguments) == count
        return (time.process_time() - began) / count

    few, many = (min(seconds_an_argument(count) for _ in range(3)) for count in (1_000, 16_000))
    assert many < 4 * few  # if it grew: 10


@EVERY
def test_a_string_argument_streams(format: Format):
    reader = Reader(format, [TOOL])
    silent = longest = 0
    started = done = False
    for piece in chunks(call_of(format, 2_000)):
        events = reader.feed(piece)
        done = done or any(isinstance(event, CallReady) for event in events)
        streamed = any(isinstance(event, CallArguments) for event in events)
        started = started or streamed
        silent = 0 if streamed else silent + 1
        longest = max(longest, silent) if started and not done else longest
    assert longest <= 16


def test_long_names_of_arguments_take_no_more_room_than_they_are_long():
    arguments = {"a": {"type": "string"}, "x" * 100_000: {"type": "string"}}
    text = write(format_named("qwen3-coder"), [Call("save", {"a": "one\ntwo"})])
    tracemalloc.start()
    try:
        reader = Reader(format_named("qwen3-coder"), [Tool("save", "", {"type": "object", "properties": arguments})])
        events = [event for piece in chunks(text) for event in reader.feed(piece)] + reader.close()
        room = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [{"a": "one\ntwo"}]
    assert room < 10_000_000


@given(st.lists(st.text("ab<", min_size=1, max_size=5), max_size=5), st.text("ab<", max_size=6))
def test_what_may_become_a_stop_is_the_beginning_of_one(texts: list[str], text: str):
    may_grow = any(stop.startswith(text) and stop != text for stop in texts)
    assert Stops(tuple(texts)).may_grow(text, 0) == may_grow
