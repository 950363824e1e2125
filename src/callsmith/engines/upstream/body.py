"""`ResponseBody`: the bytes of an answer as they come, given up when nothing comes any more."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from callsmith.core.errors import TimedOut
from callsmith.engines.upstream.errors import BrokeOff, load_aiohttp, reason_of, server_of

if TYPE_CHECKING:
    import aiohttp

_PIECE: Final = 16 * 1024  # bytes that are read at once, and a millisecond's work


class ResponseBody:
    """The body of a response. Reading fails when it was waited for a piece for so many seconds.

    A body pays for one timer, and not for each of its pieces: when it fires, it is set again for as long as the piece that is
    being waited for may still take.
    """

    def __init__(self, response: "aiohttp.ClientResponse", silence: float) -> None:
        self._response = response
        self._content = response.content
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None  # when waiting for the next piece began
        self._known = 0  # the bytes that had come by then
        self._has_more = False
        self._client_error = load_aiohttp().ClientError

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._silence, self._check)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        if self._has_more:  # others have their turn first
            await asyncio.sleep(0)
        self._since, self._known = self._loop.time(), self._content.total_bytes
        try:
            data = await self._content.read(_PIECE)
        except TimeoutError as error:
            raise TimedOut(f"{server_of(self._response)} has sent nothing for {self._silence:g} s") from error
        except (self._client_error, OSError) as error:
            raise BrokeOff(server_of(self._response), reason_of(error)) from error
        finally:
            self._since = None
        self._has_more = len(data) == _PIECE
        return data

    def _check(self) -> None:
        """Give up if all of the time has passed; else look again when it may have."""
        now = self._loop.time()
        # What has come may be there unread, while whoever reads is busy sending the piece before.
        is_waiting = self._since is not None and self._content.total_bytes == self._known
        left = self._since + self._silence - now if self._since is not None and is_waiting else self._silence
        if left <= 0:
            self._content.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_later(left, self._check)
