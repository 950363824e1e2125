"""The frames of another server's stream: their JSON, and those that need not be read as a whole."""

import json
from collections.abc import Callable
from typing import Final

from callsmith.core.errors import CallsmithError
from callsmith.core.events import ModelEvent, Text
from callsmith.core.values import Json
from callsmith.wire.answers import AnswerReader

_MOST_UNUSED: Final = 3  # frames that are learned one after the other, and none that comes is like them
_OTHER: Final = "\N{OBJECT REPLACEMENT CHARACTER}"  # takes the place of a text


def _decode_alone(text: str) -> Json:
    """What the standard library reads, but for texts in which there may be half a surrogate pair."""
    if "\\ud" in text.lower():
        raise ValueError("there may be half a surrogate pair")
    return json.loads(text)


try:  # several times as fast, and takes less
    from msgspec import json as msgspec_json

    _decode: Callable[[str], Json] = msgspec_json.decode
except ImportError:
    _decode = _decode_alone


def load_json(text: str) -> Json:
    """The JSON of a text, in which half a surrogate pair is replaced: it is no text that could be sent on."""
    try:
        return _decode(text)
    except ValueError:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return json.loads(plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


class RepeatedText:
    """Reads the frames of an answer that differ from the one before in nothing but a piece of text, as most do: what stands
    around the text is compared, and only the text is read.

    Where it stands is found by having a reader of its own read the frame with another text in its place. An answer whose frames
    all differ in something else, such as a number, is not tried again and again.
    """

    def __init__(self, reader: Callable[[], AnswerReader]) -> None:
        self._reader = reader
        self._before = self._behind = ""
        self._unused = 0  # frames that were learned since one was like the last

    def match(self, frame: str) -> str:
        """The text of a frame that is like the last one; empty if it is not like it."""
        before, behind = self._before, self._behind
        if not before or not frame.startswith(before) or not frame.endswith(behind):
            return ""
        try:
            text = _decode(frame[len(before) : -len(behind)])
        except (ValueError, RecursionError):
            return ""
        if not isinstance(text, str):
            return ""
        self._unused = 0
        return text

    def learn(self, frame: str, events: list[ModelEvent]) -> None:
        """Take this frame as the last one, of which these events have come."""
        self._before = ""
        if len(events) != 1 or not isinstance(said := events[0], Text) or said.logprobs or self._unused >= _MOST_UNUSED:
            return
        self._unused += 1
        before, _, behind = frame.partition(json.dumps(said.text, ensure_ascii=frame.isascii()))
        try:
            if before and behind and self._reader().feed(load_json(f'{before}"{_OTHER}"{behind}')) == [Text(_OTHER)]:
                self._before, self._behind = before, behind
        except (ValueError, RecursionError, CallsmithError):
            pass  # it stood for something else
