"""One call over a WebSocket, from the caller's side."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from callsmith.bus.flow import Acknowledgements
from callsmith.bus.port import Receive
from callsmith.bus.remote import ACCEPTED
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame, encode_json, read_frame

if TYPE_CHECKING:
    import aiohttp

_AHEAD = 256  # frames that are read before whoever reads the answer wants them


class SocketCall:
    """A call on a connection that was opened for it. `until` is the time of the event loop by which it has to end."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse", receive: Receive, until: float | None) -> None:
        self._socket = socket
        self._receive = receive
        self._until = until
        self._frames: asyncio.Queue[Frame | BusError] = asyncio.Queue(_AHEAD)

    async def frames(self, message: dict[str, Json]) -> AsyncGenerator[Frame, None]:
        """The frames of the answer. Closing the generator closes the connection, which cancels the call."""
        tasks = list[asyncio.Task[None]]()
        try:
            await self._send({"type": "call", **message})
            tasks += asyncio.create_task(self._read()), asyncio.create_task(self._pass_on())
            yield Frame(ACCEPTED)
            while True:
                found = await self._next()
                if isinstance(found, BusError):
                    raise found
                yield found
                if found.is_end:
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._socket.close()

    async def _next(self) -> "Frame | BusError":
        try:
            async with asyncio.timeout_at(self._until):
                return await self._frames.get()
        except TimeoutError:
            raise BusError("timeout", "there was no complete answer in time", sent=True) from None

    async def _read(self) -> None:
        """Read the frames, and acknowledge them."""
        acknowledgements = Acknowledgements()
        try:
            async for message in self._socket:
                frame = read_frame(json.loads(message.data))
                acknowledgements.check_order(frame)
                await self._frames.put(frame)
                if frame.is_end:
                    return
                if upto := acknowledgements.take_due():
                    await self._send({"type": "ack", "upto": upto})
            raise BusError("partition", "the connection broke off before the last frame", sent=True)
        except BusError as error:
            await self._frames.put(error)
        except (ValueError, TypeError, RecursionError, OSError) as error:  # something that is no frame, or no connection any more
            await self._frames.put(BusError("partition", f"the answer broke off: {type(error).__name__}", sent=True))

    async def _pass_on(self) -> None:
        """Send what the caller has for the handler. That the connection has broken off, the reader finds out as well."""
        while (message := await self._receive()) is not None:
            await self._send(dict(message))

    async def _send(self, message: dict[str, Json]) -> None:
        try:
            await self._socket.send_str(encode_json(message).decode())
        except (ConnectionError, RuntimeError) as error:
            raise BusError("partition", f"the connection broke off: {type(error).__name__}", sent=True) from error
