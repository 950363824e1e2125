"""Reading request bodies. Clients send the same tools with every request: parsed tools are cached by their bytes.

What is large is read in a thread, piece by piece, so that the event loop goes on meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Final, ParamSpec, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.server.http.request_context import client, current_request
from callsmith.server.limits.request_limits import RequestLimits
from callsmith.server.settings import Requests
from callsmith.wire.fields import ReusedArray

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_LIMITS: Final = Requests()
LARGE: Final = 256 * 1024  # bytes; a body that is not larger is read at once, within a few milliseconds
_ALWAYS_ACCEPTED: Final = 64 * 1024  # bytes of a body, however many bodies are arriving
_REPEATED_FIELDS: Final = frozenset({"tools", "functions"})
_MAX_CACHED_BYTES: Final = 512 * 1024  # of one set of tools: some 1,000 tools
_MAX_CACHED_SETS: Final = 16
_array = msgspec.json.Decoder(list[Json])
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BodyReader:
    """Reads request bodies as JSON. Status 413 if one is too large, 400 if a field of it is or if it is not JSON."""

    def __init__(self, limits: Requests = DEFAULT_LIMITS, wrappers: Iterable[str] = ()) -> None:
        self._limits = limits
        self._field_limits = RequestLimits(limits, wrappers)
        self._arriving = _ArrivingBytes(limits.arriving_bytes)
        self._known: list[tuple[bytes, ReusedArray]] = []  # the latest last
        self._lock = Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="callsmith-bodies")  # one: they would only wait for each other

    async def read(self, request: Request, most: int | None = None) -> Json:
        """Read the body of a request, which may have so many bytes: `body_bytes` where nothing else is said."""
        most = min(self._limits.body_bytes, most or self._limits.body_bytes)
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            raise _too_large(most)
        body = bytearray()
        with self._arriving.counted() as count:
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise _too_large(most)
                count(len(body))
        return await self.parse(body)

    async def parse(self, body: bytes | bytearray) -> Json:
        """Decode a body, or say why it is refused."""
        if len(body) > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)
        if context := current_request():
            context.body_bytes = len(body)
        return await self._in_thread(self.decode, body) if len(body) > LARGE else self.decode(body)

    async def read_with(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `read` makes of the request: in a thread, if its body is large."""
        context = current_request()
        if context is None or context.body_bytes <= LARGE:
            return read(*args, **kwargs)
        return await self._in_thread(read, *args, **kwargs)

    def decode(self, body: bytes | bytearray) -> Json:
        """Decode a body. Tools whose bytes are cached give the same object as before."""
        self._field_limits.check_body(body)
        try:
            return self._decode(body)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the body is not valid JSON: {error}") from None

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(work, *args, **kwargs))

    def _decode(self, body: bytes | bytearray) -> Json:
        try:
            parts = _parts.decode(body)
            self._field_limits.check_fields(parts)
            return {key: self._tools(raw) if key in _REPEATED_FIELDS else msgspec.json.decode(raw) for key, raw in parts.items()}
        except ValueError:
            return msgspec.json.decode(body)  # not an object; or the error names the place in the whole body

    def _tools(self, raw: msgspec.Raw) -> Json:
        encoded = bytes(raw)
        with self._lock:
            for known in self._known:
                if known[0] == encoded:  # lengths are compared first
                    self._known.remove(known)
                    self._known.append(known)
                    return known[1]
        if not encoded.startswith(b"[") or len(encoded) > _MAX_CACHED_BYTES:
            return msgspec.json.decode(encoded)
        again = ReusedArray(_array.decode(encoded))
        with self._lock:
            self._known = [*self._known[1 - _MAX_CACHED_SETS :], (encoded, again)]
        return again


class _ArrivingBytes:
    """Counts the bytes of bodies that are not complete yet, and refuses more than so many; one caller may have half of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def counted(self) -> Generator[Callable[[int], None], None, None]:
        """Count a body while it arrives, by calling what this gives with its size so far."""
        caller, counted = client(), 0

        def count(size: int) -> None:
            nonlocal counted
            if size <= _ALWAYS_ACCEPTED:
                return
            self._total += size - counted
            self._by_caller[caller] += size - counted
            counted = size
            if self._total > self._most or self._by_caller[caller] > self._most // 2:
                why = "too many large bodies are arriving at the same time; try again later"
                raise HTTPException(503, why, {"retry-after": "5"})

        try:
            yield count
        finally:
            self._total -= counted
            self._by_caller[caller] -= counted
            if not self._by_caller[caller]:
                del self._by_caller[caller]


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most} bytes")
