"""Encoding events as frames. Most are pieces of text, and successive ones differ in nothing but the text."""

from collections.abc import Callable
from typing import Generic, TypeVar
from uuid import uuid4

import msgspec

from callsmith.core.events import Text

E = TypeVar("E")

encode = msgspec.json.Encoder().encode


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
