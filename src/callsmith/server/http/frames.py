"""Events as bytes. Most are words, and one after another those differ in nothing else."""

from collections.abc import Callable
from typing import Generic, TypeVar
from uuid import uuid4

import msgspec

from callsmith.core.events import Text

E = TypeVar("E")

encode = msgspec.json.Encoder().encode


class CachedFrames(Generic[E]):
    """What `write` makes of events, all of one event in one piece. What stands around words is written once.

    `write` may not mind being shown a text that is not sent, between two others.
    """

    def __init__(self, write: Callable[[E | Text], bytes]) -> None:
        self._write = write
        self._around: tuple[bytes, bytes] | None = None

    def encode_event(self, event: E) -> bytes:
        """The bytes of the event; none, if nothing is sent for it."""
        words = event.text if type(event) is Text else ""
        if words and self._around:
            return self._around[0] + encode(words) + self._around[1]
        written = self._write(event)
        self._around = self._frame_around_text() if words and written else None
        return written

    def _frame_around_text(self) -> tuple[bytes, bytes]:
        mark = uuid4().hex
        before, _, behind = self._write(Text(mark)).partition(encode(mark))
        return before, behind
