"""Server-sent events."""

from hypothesis import given
from hypothesis import strategies as st

from callsmith.wire.sse import FrameReader, SseFrame, write_frame


@given(st.lists(st.integers(1, 7), min_size=1))
def test_frames_are_the_same_however_the_bytes_are_cut(sizes: list[int]):
    data = b": hello\r\n\r\ndata: {}\r\n\r\n" + write_frame('{"a":"ü"}'.encode(), b"delta") + b"data: a\ndata: b\nid: 4\n\n"
    reader, frames, at = FrameReader(), list[SseFrame](), 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        frames += reader.feed(data[at : at + size])
        at += size
    assert frames == [SseFrame("{}"), SseFrame('{"a":"ü"}', "delta"), SseFrame("a\nb")]
