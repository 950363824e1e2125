"""Server-sent events, both ways.

data: {"choices":[…]}

data: [DONE]

"""

from dataclasses import dataclass

DONE = "[DONE]"
KEEP_ALIVE = b": keep-alive\n\n"  # a comment: every reader skips it, every proxy sees that the connection lives


@dataclass(frozen=True, slots=True)
class SseFrame:
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
        first, *others = data.split(b"\n")
        self._rest.append(first)
        frames: list[SseFrame] = []
        for following in others:
            frame = self._take(b"".join(self._rest).decode("utf-8", "replace").rstrip("\r"))
            self._rest = [following]
            if frame is not None:
                frames.append(frame)
        return frames

    def _take(self, line: str) -> SseFrame | None:
        if not line:
            frame = SseFrame("\n".join(self._data), self._event) if self._data else None
            self._data, self._event = [], ""
            return frame
        name, _, value = line.partition(":")  # a comment has no name
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        return None
