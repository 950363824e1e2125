"""What tests do to other processes."""

import os
import signal
import time
from pathlib import Path

_PATIENCE = 30.0


def hang(process: int) -> None:
    """Stop a process as SIGSTOP does, and return when all of its threads stand: the signal alone lets them run on for a while."""
    os.kill(process, signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE
    while not _stands(process):
        assert time.monotonic() < deadline, f"process {process} does not stop"
        time.sleep(0.001)


def wake(process: int) -> None:
    os.kill(process, signal.SIGCONT)


def _stands(process: int) -> bool:
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{process}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # a thread has just ended
        return False
    return all(state in "TZX" for state in states)
