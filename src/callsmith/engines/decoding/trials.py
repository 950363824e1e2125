"""Tries a grammar in a worker process, with a limit on time and memory, before this process compiles it.

A compiled grammar cannot cross a process boundary, so a text that was seen to compile is compiled once more here. What crashes
the worker, or takes too long, is a `UsageError`, and the next text gets a new worker.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier, BoundedSemaphore, Event, Lock, Timer, stack_size
from typing import Any, Final
from weakref import finalize

from callsmith.core.errors import ModelError, UsageError

STACK: Final = 64 << 20  # bytes, of every thread that compiles: about 3 KB for each level of a grammar
SECONDS: Final = 5.0  # for one text; real schemas take a hundredth of it
_MEMORY: Final = 1 << 30  # bytes of address space
_WORKERS: Final = 2
_START_SECONDS: Final = 60.0
_sizing = Lock()
_PROGRAM: Final = Path(__file__).with_name("trial_worker.py")


def pool_with_stack(count: int, name: str) -> ThreadPoolExecutor:
    """Threads whose stack is as large as a worker's; all of them are started at once."""
    pool, all_started = ThreadPoolExecutor(count, thread_name_prefix=name), Barrier(count + 1)
    with _sizing:  # the size is one of the process: several engines may be opened at the same time
        before = stack_size(STACK)
        try:
            for _ in range(count):
                pool.submit(all_started.wait)
        finally:
            stack_size(before)
    all_started.wait()
    return pool


class Cancelled(Exception):
    """Nobody waits for the grammar any more."""


class Cancellation:
    """Whether a request was cancelled; what runs for it is stopped then."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_set = False
        self._stop: Callable[[], None] | None = None

    def set(self) -> None:
        """Cancel: stop what is running, and whatever would run next."""
        with self._lock:
            self._is_set = True
            if self._stop:
                self._stop()

    def check(self) -> None:
        """Raise `Cancelled` if it was."""
        if self._is_set:
            raise Cancelled

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Generator[None]:
        """Within the block, and not behind it, cancelling calls `stop`."""
        with self._lock:
            self.check()
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of compiling a text: the compiler's error, the error of the first step behind it, and the seconds both took."""

    error: str
    step: str
    seconds: float


@dataclass(slots=True)
class Trials:
    """The workers, started when the first text is tried. `limits` and `slices` are those of the compiler. Safe for threads."""

    limits: Mapping[str, int]
    slices: Sequence[str]
    seconds: float = SECONDS
    _idle: "list[subprocess.Popen[bytes]]" = field(default_factory=list["subprocess.Popen[bytes]"])
    _free: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(_WORKERS))
    __weakref__: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        finalize(self, _end_all, self._idle)

    def run(self, lark: str, cancellation: Cancellation) -> Trial:
        """Compile the text in a worker. A UsageError if that takes too long, or too much memory."""
        with self._free:
            cancellation.check()
            worker, is_stopped = self._take(), Event()

            def stop() -> None:
                is_stopped.set()
                worker.kill()

            try:
                with cancellation.stopping(stop), _limiting(self.seconds, stop):
                    reply = _ask(worker, lark)
            except BaseException:
                _end_all([worker])
                raise
            if reply is None or is_stopped.is_set():  # it may be stopped also when it has replied
                _end_all([worker])
            else:
                self._idle.append(worker)
            if reply is not None:
                return Trial(**reply)
        cancellation.check()
        raise UsageError(
            f"the grammar is too complex: compiling it crashed, or took more than {self.seconds:g} s or {_MEMORY >> 20} MB",
            field="grammar",
        )

    def close(self) -> None:
        _end_all(self._idle)

    def _take(self) -> "subprocess.Popen[bytes]":
        worker = self._idle.pop() if self._idle else self._start()
        if worker.poll() is None:
            return worker
        _end_all([worker])
        return self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        # Where modules are found here is looked through last: a user's json.py is not to take the place of Python's own.
        settings = {
            "path": [*map(str, sys.path)],
            "limits": dict(self.limits),
            "slices": [*self.slices],
            "stack": STACK,
            "memory": _MEMORY,
        }
        command = [sys.executable, "-I", str(_PROGRAM), json.dumps(settings)]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        overrun = Timer(_START_SECONDS, worker.kill)
        overrun.start()
        ready = _read(worker)
        overrun.cancel()
        if ready != "ready":
            _end_all([worker])
            raise ModelError("the process that grammars are tried in does not start", retryable=True)
        return worker


@contextmanager
def _limiting(seconds: float, stop: Callable[[], None]) -> Generator[None]:
    """Call `stop` if the block takes longer, and not behind it."""
    timer = Timer(seconds, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _ask(worker: "subprocess.Popen[bytes]", lark: str) -> Any:
    """The reply of the worker; None if it died."""
    assert worker.stdin
    data = lark.encode()
    try:
        worker.stdin.write(len(data).to_bytes(4, "big") + data)
        worker.stdin.flush()
    except OSError:
        return None
    return _read(worker)


def _read(worker: "subprocess.Popen[bytes]") -> Any:
    assert worker.stdout
    line = worker.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _end_all(workers: "list[subprocess.Popen[bytes]]") -> None:
    while workers:
        worker = workers.pop()
        worker.kill()
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        worker.wait()
