"""Frames of an answer that comes piece by piece."""

import json
from typing import Any

import pytest

from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame, encode_frame, encode_sse, read_frame


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = Frame("token", {"text": "hé"}, 3)
    assert read_frame(json.loads(encode_frame(frame))) == frame
    assert read_frame({"event": "done", "data": {}}) == Frame("done", {}, 0)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"event": "", "data": {}},
        {"event": 1, "data": {}},
        {"event": "done"},
        {"event": "done", "data": []},
        {"event": "done", "data": {}, "seq": "1"},
    ],
)
def test_what_is_no_frame_is_refused(value: Any) -> None:
    with pytest.raises(BusError, match="a frame is an object with event, data and seq"):
        read_frame(value)


def test_a_name_that_could_end_its_line_is_no_event() -> None:
    assert encode_sse(Frame("token", {"a": 1})).startswith(b"event: token\n")
    with pytest.raises(BusError, match="is no name of an event"):
        encode_sse(Frame("to\nken", {}))
