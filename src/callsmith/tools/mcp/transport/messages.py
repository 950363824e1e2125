"""Messages of an MCP server, within bounds: how long one may be, how many parts it may have, and how many come in a second."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from callsmith.core.errors import Unavailable
from callsmith.core.values import Json

if TYPE_CHECKING:
    import httpx2
    from anyio.abc import ByteReceiveStream
    from mcp.shared.message import SessionMessage

MOST_PARTS = 100_000  # values in one message: what checks it takes time for each
MOST_BLOCKS = 1_000  # of content in one result
MOST_PER_SECOND = 1_000  # messages; whoever sends more is read more slowly
_PATIENCE = 16  # as many times the longest message is read before a line that does not end is the end
_ID = re.compile(rb'^.{0,200}?"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")', re.DOTALL)
_TOO_LARGE = -32603  # an internal error: the code that says least


class MessageBounds:
    """The bounds on messages of one server, and the errors that name them."""

    def __init__(self, server: str, longest: int) -> None:
        self._server = server
        self.longest = longest
        self._second = self._count = 0

    def too_long(self) -> str:
        return f"the MCP server {self._server} sent a message of more than {self.longest:,} bytes (max_message_bytes)"

    def too_many_parts(self) -> str:
        return f"the MCP server {self._server} sent a message of more than {MOST_PARTS:,} values"

    async def pace(self) -> None:
        """Wait, if more messages have come in this second than are read in one."""
        now = asyncio.get_running_loop().time()
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        self._count += 1
        if self._count > MOST_PER_SECOND:
            await asyncio.sleep(self._second + 1 - now)

    async def lines(self, stream: "ByteReceiveStream") -> AsyncGenerator[bytes, None]:
        """The lines of a stream. Of one that is too long only the beginning is returned; one that does not end raises."""
        import anyio

        parts, size = list[bytes](), 0
        try:
            while True:
                *ends, rest = (await stream.receive()).split(b"\n")
                for end in ends:
                    yield b"".join((*parts, end))
                    parts, size = [], 0
                size += len(rest)
                if size - len(rest) <= self.longest:
                    parts.append(rest)
                if size > _PATIENCE * self.longest:
                    raise Unavailable(self.too_long())
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return

    def read(self, line: bytes) -> "SessionMessage | Exception":
        """The message of a line; for one that is out of bounds an error with its id, if it has one."""
        import mcp_types as types
        from mcp.shared.message import SessionMessage

        if len(line) > self.longest:
            return self._refuse(_ID.match(line), self.too_long())
        try:
            document: Json = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            return ValueError(f"not a message: {error}")
        if not isinstance(document, dict):
            return ValueError("not a message: no object")
        message = cast("dict[str, Any]", document)
        if size_of(message, MOST_PARTS, per_value=1, per_character=0) > MOST_PARTS:
            return self._refuse(_ID.match(line), self.too_many_parts())
        kind = types.JSONRPCError if "error" in message else types.JSONRPCResponse
        if "method" in message:
            kind = types.JSONRPCRequest if "id" in message else types.JSONRPCNotification
        try:
            return SessionMessage(kind.model_validate(message, by_name=False))
        except ValueError as error:
            return error

    def _refuse(self, id: "re.Match[bytes] | None", why: str) -> "SessionMessage | Exception":
        import mcp_types as types
        from mcp.shared.message import SessionMessage

        if id is None:
            return Unavailable(why)
        error = types.ErrorData(code=_TOO_LARGE, message=why)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=json.loads(id[1]), error=error))

    def bound(self, response: "httpx2.Response") -> None:
        """Bound the body of a response that is about to be read: in all or, for a stream of events, in one line."""
        import httpx2

        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.StreamError("a compressed body may be of any size, and none was asked for")
        by_line = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _bounded_stream(cast("httpx2.AsyncByteStream", response.stream), self, by_line)


def _bounded_stream(stream: "httpx2.AsyncByteStream", bounds: MessageBounds, by_line: bool) -> "httpx2.AsyncByteStream":
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = parts = 0
            async for chunk in stream:
                rest = chunk
                if by_line and (end := chunk.rfind(b"\n")) >= 0:
                    size, parts, rest = 0, 0, chunk[end:]
                size += len(rest)
                parts += rest.count(b"{") + rest.count(b"[") + rest.count(b'":')
                if size > bounds.longest:
                    raise httpx2.StreamError(bounds.too_long())
                if parts > 2 * MOST_PARTS:  # text is counted too
                    raise httpx2.StreamError(bounds.too_many_parts())
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def size_of(value: Json, most: int, *, per_value: int = 16, per_character: int = 1) -> int:
    """What a JSON value amounts to: so much for each value in it, and for each character. Counting stops above `most`."""
    size, waiting = 0, [value]
    while waiting and size <= most:
        item = waiting.pop()
        size += per_value
        if isinstance(item, dict):
            size += per_character * sum(map(len, cast("dict[str, Json]", item)))
            waiting.extend(cast("dict[str, Json]", item).values())
        elif isinstance(item, list):
            waiting.extend(cast("list[Json]", item))
        elif isinstance(item, str):
            size += per_character * len(item)
    return size
