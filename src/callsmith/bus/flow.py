"""Flow control: the frames of a stream that are under way and not acknowledged have a limit, so that no buffer grows.

The sender waits while its window is full, and gives up if nothing is acknowledged for too long. The receiver acknowledges all
frames up to a number, now and then.
"""

import asyncio
from typing import Final

from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

WINDOW: Final = 16  # frames
ACK_EVERY: Final = 8  # frames
ACK_SECONDS: Final = 5.0


class FlowControl:
    """The sender's side: `await flow.room()` before each frame."""

    def __init__(self, window: int = WINDOW, seconds: float = ACK_SECONDS) -> None:
        self._window = window
        self._seconds = seconds
        self._sent = 0
        self._acknowledged = 0
        self._waiting: asyncio.Future[None] | None = None

    async def room(self) -> None:
        """Wait until one more frame may be sent, which counts as sent from then on. A BusError if that takes too long."""
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
        self._sent += 1

    def acknowledge(self, upto: int) -> None:
        """All frames up to this number have arrived. A BusError if they were never sent; an old number changes nothing."""
        if upto > self._sent:
            raise BusError("bad_request", f"frame {upto} was acknowledged, and only {self._sent} were sent")
        if upto > self._acknowledged:
            self._acknowledged = upto
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)


class Acknowledgements:
    """The receiver's side: whether frames come in their order, and up to which one they are to be acknowledged."""

    def __init__(self, every: int = ACK_EVERY) -> None:
        self._every = every
        self._received = 0
        self._acknowledged = 0

    def check_order(self, frame: Frame) -> None:
        """Count a frame that has arrived; a BusError if it is not the next one."""
        self._received += 1
        if frame.seq != self._received:
            raise BusError("partition", f"frame {frame.seq} came in place of frame {self._received}", sent=True)

    def take_due(self) -> int | None:
        """Up to which frame they are to be acknowledged now; None if it is too early."""
        if self._received - self._acknowledged < self._every:
            return None
        self._acknowledged = self._received
        return self._received
