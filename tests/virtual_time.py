"""An event loop whose clock does not wait: when nothing is ready, it jumps to the next timer.

A test that sleeps half a minute takes no time, and what it says of seconds is exact however busy the machine is. Not for tests
with threads or sockets: the clock does not wait for them.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits for a timer: it adds what it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout else timeout)
        if timeout and not ready:
            self.waited += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which begins at 1000."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1000 + self._jumping.waited


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on an event loop of virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def now() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()
