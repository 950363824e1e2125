"""Frames: what a stream of a capability consists of, `{"event": "token", "data": {"text": "Hi"}, "seq": 1}`.

Exactly one frame called "done" or "error" ends a stream.
"""

import json
import re
from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Struct, field

from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import WINDOW
from callsmith.wire.capability.errors import BusError, read_error, write_error
from callsmith.wire.sse import write_frame

ENDS = frozenset({"done", "error"})
_EVENT = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class Frame(Struct, frozen=True):
    """One frame of a stream. `seq` counts the frames from 1 on; 0 while it has not been sent."""

    event: str
    data: Mapping[str, Json] = field(default_factory=dict[str, Json])
    seq: int = 0

    @property
    def is_end(self) -> bool:
        return self.event in ENDS

    def raise_error(self) -> None:
        """Raise the error, if it is an error frame."""
        if self.event == "error":
            raise read_error(dict(self.data))


_encoder = msgspec.json.Encoder(enc_hook=dict)  # a Mapping that is no dict


def encode_json(value: Mapping[str, Json]) -> bytes:
    """The JSON of an answer or a frame. Halves of surrogate pairs, which a text of a model may have, become question marks."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict).encode("utf-8", "replace")


def error_frame(error: BaseException, seq: int = 0) -> Frame:
    return Frame("error", write_error(error), seq)


def encode_frame(frame: Frame) -> bytes:
    """The frame as the JSON of a WebSocket message."""
    return encode_json({"event": frame.event, "data": frame.data, "seq": frame.seq})


def encode_sse(frame: Frame) -> bytes:
    """The frame as a server-sent event. A BusError if its name is none: it could end the line."""
    if not _EVENT.fullmatch(frame.event):
        raise BusError("internal_error", f"{frame.event[:40]!r} is no name of an event", sent=True)
    return write_frame(encode_json(frame.data), frame.event.encode())


class SentFrame(Frame, frozen=True):
    """A frame as one node sends it to another: the first says which node answers, and how many frames it keeps under way."""

    node: str = ""
    window: int = WINDOW


_decoder = msgspec.json.Decoder(SentFrame)


def decode_frame(data: bytes | bytearray) -> SentFrame:
    """The frame in the bytes of a message; a BusError if there is none."""
    try:
        frame = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _no_frame() from error
    if not frame.event:
        raise _no_frame()
    return frame


def _no_frame() -> BusError:
    return BusError("bad_request", "a frame is an object with event, data and seq")


def read_frame(value: Json) -> Frame:
    """The frame that `encode_frame` has written; a BusError if it is none."""
    if isinstance(value, dict):
        entries = cast(dict[str, Json], value)
        event, data, seq = entries.get("event"), entries.get("data"), entries.get("seq", 0)
        if isinstance(event, str) and event and isinstance(data, dict) and isinstance(seq, int):
            return Frame(event, cast(dict[str, Json], data), seq)
    raise _no_frame()
