"""Encoding events as frames. Most are pieces of text, and successive ones differ in nothing but the text."""

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar, cast
from uuid import uuid4

import msgspec

from callsmith.core.events import Text
from callsmith.core.values import Json
from callsmith.wire.openai.common import write_error
from callsmith.wire.sse import write_frame

E = TypeVar("E")

_PART: Final = 5_000  # values that are encoded at once
encode = msgspec.json.Encoder().encode


def encode_in_parts(body: Mapping[str, Json]) -> bytes:
    """An object as JSON, long lists in it part by part: in a thread, others go on in between."""
    return b"{%s}" % b",".join(encode(name) + b":" + _in_parts(value) for name, value in body.items())


def _in_parts(value: Json) -> bytes:
    if not isinstance(value, list):
        return encode(value)
    items = cast("list[Json]", value)
    return b"[%s]" % b",".join(encode(items[start : start + _PART])[1:-1] for start in range(0, len(items), _PART))


def failure_frame(error: BaseException) -> bytes:
    """The last frame of a stream that has failed, in OpenAI's dialect."""
    return write_frame(encode(write_error(error).body))


class CachedFrames(Generic[E]):
    """Encodes events with `write`, and caches the bytes around the text of successive `Text` events.

    To find them, `write` is also called with a text that is not sent; this must not change what it writes later.
    """

    def __init__(self, write: Callable[[E | Text], bytes]) -> None:
        self._write = write
        self._around: tuple[bytes, bytes] | None = None

    def encode_event(self, event: E) -> bytes:
        """The bytes of an event, all in one piece; empty if nothing is sent for it."""
        text = event.text if type(event) is Text and not event.logprobs else ""
        if text and self._around:
            return self._around[0] + encode(text) + self._around[1]
        written = self._write(event)
        self._around = self._frame_around_text() if text and written else None
        return written

    def _frame_around_text(self) -> tuple[bytes, bytes]:
        mark = uuid4().hex
        before, _, behind = self._write(Text(mark)).partition(encode(mark))
        return before, behind
