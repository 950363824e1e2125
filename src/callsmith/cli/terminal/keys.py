"""What the terminal does with the keys that are pressed while nobody is asked for anything."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def echo_keys(wanted: bool) -> Generator[None, None, None]:
    """Let the terminal show the keys that are pressed, or not: in an answer that grows they would stand between its words."""
    try:
        keyboard = sys.stdin.fileno()
    except (OSError, ValueError):  # there is no file behind it
        keyboard = -1
    if keyboard < 0 or not os.isatty(keyboard) or find_spec("termios") is None:
        yield
        return
    import termios

    before = termios.tcgetattr(keyboard)
    flags = before[3] | termios.ECHO if wanted else before[3] & ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSANOW, [*before[:3], flags, *before[4:]])
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)
