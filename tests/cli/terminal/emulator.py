"""A terminal of a given size with a command in it: keys go in, and what is on its screen can be read."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

PATIENCE = 60.0  # seconds until a screen that does not come is a failure


def _take_terminal() -> None:
    """Make the terminal the command's own, and Ctrl-C a signal, which whoever runs the tests in the background has it ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """`callsmith` in a terminal. Used as a context: at its end the command is stopped, if it is running still."""

    def __init__(self, *arguments: str, home: Path, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "VISUAL", "EDITOR")}
        places = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "callsmith", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**clean, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **places, **environment},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self.output = b""

    @property
    def lines(self) -> list[str]:
        """All that is on the screen, and what has left it upwards, without empty lines at the end."""
        columns = self.screen.columns
        above = ["".join(row[column].data for column in range(columns)) for row in self.screen.history.top]
        return "\n".join(line.rstrip() for line in (*above, *self.screen.display)).rstrip("\n").split("\n")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, wanted: str | Callable[[list[str]], bool]) -> None:
        """Wait until the screen shows a text, or what else is wanted."""
        until = time.monotonic() + PATIENCE
        while not (wanted(self.lines) if callable(wanted) else any(wanted in line for line in self.lines)):
            if not self._take(until - time.monotonic()):
                raise AssertionError(f"{wanted!r} did not come; the screen:\n" + "\n".join(self.lines))

    def wait_for_prompt(self) -> None:
        """Wait until the command asks for a message."""
        self.wait_for(lambda lines: lines[-1] == ">")

    def wait_for_end(self) -> int:
        until = time.monotonic() + PATIENCE
        while self._take(until - time.monotonic()):
            pass
        return self.process.wait(PATIENCE)

    def _take(self, seconds: float) -> bool:
        """Read what the command has written; false if it has ended, or the time is over."""
        if seconds <= 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux's end of a terminal
            return False
        self.output += data
        self._stream.feed(data)
        return bool(data)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)
