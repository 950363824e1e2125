"""The part of the terminal that is still being written: rows that are painted over while their text grows, and a status line."""

import re
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from callsmith.core.types.escaped_text import one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

DELAY = 0.4  # seconds before the status line is shown: what is there sooner needs none
INTERVAL = 0.1
_TO_END_OF_LINE, _TO_END_OF_SCREEN = "\x1b[K", "\x1b[J"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES, _ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


def can_repaint(console: "Console") -> bool:
    """Whether the cursor can be moved: a terminal, and not a pipe, a file, or a terminal that only types."""
    return console.is_terminal and not console.is_dumb_terminal and not console.legacy_windows


def rows_of(console: "Console", content: "RenderableType") -> list[str]:
    """The rows that the content takes on this terminal, with their styles, and no empty ones around them.

    None fills the last column: terminals differ in where the cursor is then.
    """
    with console.capture() as captured:
        console.print(content, width=max(console.width - 1, 1), highlight=False)
    rows = [row.rstrip() for row in captured.get().split("\n")]
    filled = [place for place, row in enumerate(rows) if _STYLE.sub("", row).strip()]
    return rows[filled[0] : filled[-1] + 1] if filled else [""]


class LiveRows:
    """Rows at the end of the output that may change still. Only what differs is written again, in one piece."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._rows: list[str] = []

    def show(self, rows: Sequence[str]) -> None:
        """Show these rows in place of the present ones. What has left the screen upwards stays as it was."""
        old, reachable = self._rows, len(self._rows) - self._console.height + 1
        same = next(
            (place for place, pair in enumerate(zip(old, rows, strict=False)) if pair[0] != pair[1]), min(len(old), len(rows))
        )
        if same == len(old) == len(rows):
            return
        first = max(same if same == len(old) else min(same, len(rows) - 1), reachable, 0)
        if old and first >= len(old):  # the rows so far stay: the new ones come below
            moves = "\r\n"
        else:
            up = len(old) - 1 - first
            moves = (f"\x1b[{up}A" if up > 0 else "") + "\r"
        self._write(moves + f"{_TO_END_OF_LINE}\r\n".join(rows[first:]) + _TO_END_OF_SCREEN)
        self._rows = list(rows)

    def commit(self) -> None:
        """Leave the rows as they are; what comes next stands below them."""
        if self._rows:
            self._write("\r\n")
        self._rows = []

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


class StatusLine:
    """A line that says what is waited for and for how long, and goes away as soon as there is something to show."""

    def __init__(self, console: "Console", describe: Callable[[], str]) -> None:
        self._console = console
        self._describe = describe
        self._stopping = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Show the line after a moment, if nobody clears it before."""
        if self._thread is None and can_repaint(self._console):
            self._stopping.clear()
            self._thread = Thread(target=self._run, name="callsmith-status", daemon=True)
            self._thread.start()

    def clear(self) -> None:
        """Take the line away."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> "StatusLine":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.clear()

    def _run(self) -> None:
        file, begun, painted = self._console.file, time.monotonic(), 0
        frames = _ASCII_FRAMES if self._console.options.ascii_only else _FRAMES
        while not self._stopping.wait(INTERVAL if painted else DELAY):
            text = f"{frames[painted % len(frames)]} {one_line(self._describe())}, {time.monotonic() - begun:.0f} s"
            file.write(f"\r\x1b[2m{text[: self._console.width - 1]}\x1b[22m{_TO_END_OF_LINE}")
            file.flush()
            painted += 1
        if painted:
            file.write(f"\r{_TO_END_OF_LINE}")
            file.flush()
