"""Server-sent events, both ways.

data: {"choices":[…]}

data: [DONE]

"""

from typing import NamedTuple

DONE = "[DONE]"
KEEP_ALIVE = b": keep-alive\n\n"  # a comment: every reader skips it, every proxy sees that the connection lives


class SseFrame(NamedTuple):
    """One event: its data and, where the dialect uses them, its name."""

    data: str
    event: str = ""


def write_frame(data: bytes, event: bytes = b"") -> bytes:
    """One event. The data must be a single line, which JSON always is."""
    return (b"event: " + event + b"\n" if event else b"") + b"data: " + data + b"\n\n"


class FrameReader:
    """Bytes, cut anywhere, to frames."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the pieces of a line whose end has not come
        self._data: list[str] = []
        self._event = ""

    def feed(self, data: bytes) -> list[SseFrame]:
        """The frames that are complete with these bytes."""
        frames: list[SseFrame] = []
        lines, line_break, rest = data.rpartition(b"\n")
        if line_break:
            if self._rest:
                lines = b"".join((*self._rest, lines))
                self._rest = []
            text = lines.decode("utf-8", "replace")
            for line in text.split("\n") if "\r" not in text else [line.rstrip("\r") for line in text.split("\n")]:
                if line:
                    self._take(line)
                elif self._data:
                    frames.append(SseFrame("\n".join(self._data), self._event))
                    self._data, self._event = [], ""
                else:
                    self._event = ""
        if rest:
            self._rest.append(rest)
        return frames

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")  # a comment has no name
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "event":
            self._event = value.removeprefix(" ")
