"""Flow control: the frames of a stream that are under way and not acknowledged have a limit, so that no buffer grows.

The sender waits while its window is full, and gives up if nothing is acknowledged for too long. The receiver acknowledges all
frames up to a number, now and then. Inside a process frames go from hand to hand in bursts: those that are there at a time.
Whoever waits for them does so until a deadline.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Final

from callsmith.wire.capability.envelopes import WINDOW
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

WIDEST: Final = 256  # frames of a window that has grown, where both sides say that theirs does
LARGE: Final = 4096  # bytes of a frame, of which no more than a plain window are under way
ACK_EVERY: Final = 8  # frames
ACK_SECONDS: Final = 5.0
_BURST: Final = 8  # frames
_UNHURRIED: Final = 1.0  # seconds after which a slow reader acknowledges what it has


class Deadlines:
    """The deadlines of all that is waited for somewhere: nearly nothing is waited for that long, so that one timer does for all.

    Times are those of the event loop that runs. When another one does, what was waited for in the former is forgotten.
    """

    def __init__(self) -> None:
        self._open: dict[Callable[[], object], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf  # when the timer looks

    def add(self, at: float, expire: Callable[[], object]) -> None:
        """Call `expire` at this time, unless it is removed before."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._open, self._loop, self._timer, self._next = {}, loop, None, inf
        self._open[expire] = at
        if at < self._next:
            self._set_timer(loop, at)

    def remove(self, expire: Callable[[], object]) -> None:
        self._open.pop(expire, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = loop.call_at(at, self._look, loop), at

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now, self._timer, self._next = loop.time(), None, inf
        for expire in [expire for expire, at in self._open.items() if at <= now]:
            self._open.pop(expire, None)
            expire()
        if self._open:
            self._set_timer(loop, min(self._open.values()))


class FrameQueue:
    """Frames between who has them and who reads them."""

    def __init__(self, deadlines: Deadlines | None = None) -> None:
        self._deadlines = deadlines or Deadlines()
        self._frames: list[Frame] = []
        self._failure: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many frames wait for the reader."""
        return len(self._frames)

    def put(self, frame: Frame) -> None:
        """Add a frame; what comes after a failure is dropped, and fills no queue of a slow reader."""
        if self._failure is None:
            self._frames.append(frame)
            _wake(self._reader)

    def fail(self, error: BaseException) -> None:
        """There is no more to come: after the frames that are there, the reader gets this."""
        if self._failure is None:
            self._failure = error
            self.wake()

    def wake(self) -> None:
        """Let the reader look whether there is something new."""
        _wake(self._reader)

    async def wait_for_room(self, most: int) -> None:
        """Wait until fewer than so many frames are there."""
        while len(self._frames) >= most:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    async def next_burst(self, until: float) -> Sequence[Frame]:
        """The next frames; none if none comes by then."""
        while not self._frames and await self._wait_for_news(until):
            pass
        burst, self._frames = self._frames[:_BURST], self._frames[_BURST:]
        if self._writer is not None:
            _wake(self._writer)
        return burst

    async def _wait_for_news(self, until: float) -> bool:
        """Wait until something has come, and say whether there is time left."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        expire = partial(_wake, self._reader)
        self._deadlines.add(until, expire)
        try:
            await self._reader
        finally:
            self._deadlines.remove(expire)
        return bool(self._frames) or loop.time() < until


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def screen_frames(burst: Sequence[Frame], check: Callable[[Frame], None]) -> Iterator[Sequence[Frame]]:
    """The frames up to the last of a stream. Those before one that is an error, or that `check` refuses, come before the BusError
    is raised."""
    for at, frame in enumerate(burst):
        try:
            frame.raise_error()
            check(frame)
        except BusError:
            if at:
                yield burst[:at]
            raise
        if frame.is_end:
            burst = burst[: at + 1]
            break
    yield burst


class FlowControl:
    """The sender's side: `await flow.room()` before each frame, or before several. For a receiver that keeps up, the window grows
    by what it acknowledges, up to `widest`."""

    def __init__(self, window: int = WINDOW, seconds: float = ACK_SECONDS, *, widest: int = 0) -> None:
        self.widest = max(window, widest)
        self._window = window
        self._seconds = seconds
        self._sent = 0
        self._acknowledged = 0
        self._waiting: asyncio.Future[None] | None = None

    def count_bytes(self, size: int) -> None:
        """A frame of this size was sent. After a large one the window is a plain one again: what is under way is bounded."""
        if size > LARGE:
            self.widest = self._window = min(self._window, WINDOW)

    async def room(self, frames: int = 1) -> int:
        """Wait until some of these frames may be sent, and say how many: they count as sent from then on. A BusError if that
        takes too long."""
        while self._sent - self._acknowledged >= self._window:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._waiting
            except TimeoutError:
                why = f"{self._window} frames were sent, and none acknowledged for {self._seconds:g} s"
                raise BusError("timeout", why, sent=True) from None
            finally:
                self._waiting = None
        room = min(frames, self._window - self._sent + self._acknowledged)
        self._sent += room
        return room

    def acknowledge(self, upto: int) -> None:
        """All frames up to this number have arrived. A BusError if they were never sent; an old number changes nothing."""
        if upto > self._sent:
            raise BusError("bad_request", f"frame {upto} was acknowledged, and only {self._sent} were sent")
        if upto > self._acknowledged:
            self._window = min(self._window + upto - self._acknowledged, self.widest)
            self._acknowledged = upto
            _wake(self._waiting)


class Acknowledgements:
    """The receiver's side: whether frames come in their order, and up to which one they are to be acknowledged. Of a sender with
    a window that grows up to `widest`, more are acknowledged at a time, as it grows."""

    def __init__(self, every: int = ACK_EVERY, widest: int = 0) -> None:
        self._every = every
        self._most = max(every, widest // 2)
        self._received = 0
        self._acknowledged = 0
        self._acknowledged_at = 0.0

    def check_order(self, frame: Frame) -> None:
        """Count a frame that has arrived; a BusError if it is not the next one."""
        self._received += 1
        if frame.seq != self._received:
            raise BusError("partition", f"frame {frame.seq} came in place of frame {self._received}", sent=True)

    def take_due(self, now: float = 0.0, *, is_idle: bool = False) -> int | None:
        """Up to which frame they are to be acknowledged now; None if it is too early. Some are not waited for: no more are there
        to be read, so that the sender may be waiting, or the reader takes its time."""
        unacknowledged = self._received - self._acknowledged
        is_enough = is_idle or now - self._acknowledged_at >= _UNHURRIED
        if unacknowledged < (min(ACK_EVERY, self._every) if is_enough else self._every):
            return None
        self._acknowledged, self._acknowledged_at = self._received, now
        self._every = min(2 * self._every, self._most)
        return self._received
