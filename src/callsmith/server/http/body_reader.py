"""Reading request bodies. Clients send the same tools with every request: parsed tools are cached by their bytes."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.fields import ReusedArray

_REPEATED_FIELDS: Final = frozenset({"tools", "functions"})
_MAX_CACHED_BYTES: Final = 512 * 1024  # of one set of tools: some 1,000 tools
_MAX_CACHED_SETS: Final = 16
_array = msgspec.json.Decoder(list[Json])
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BodyReader:
    """Reads request bodies as JSON. Status 413 if one is larger than `largest` bytes, 400 if it is not JSON."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._known: list[tuple[bytes, ReusedArray]] = []  # the latest last

    async def read(self, request: Request) -> Json:
        """Read the body of a request."""
        body = bytearray()
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._largest:
            raise self._too_large()
        async for piece in request.stream():
            body += piece
            if len(body) > self._largest:
                raise self._too_large()
        return self.parse(body)

    def parse(self, body: bytes | bytearray) -> Json:
        """Decode a body, or say why it is refused."""
        if len(body) > self._largest:
            raise self._too_large()
        try:
            return self.decode(body)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the body is not valid JSON: {error}") from None

    def decode(self, body: bytes | bytearray) -> Json:
        """Decode a body. Tools whose bytes are cached give the same object as before."""
        try:
            parts = _parts.decode(body)
            return {key: self._tools(raw) if key in _REPEATED_FIELDS else msgspec.json.decode(raw) for key, raw in parts.items()}
        except ValueError:
            return msgspec.json.decode(body)  # not an object; or the error names the place in the whole body

    def _tools(self, raw: msgspec.Raw) -> Json:
        encoded = bytes(raw)
        for known in self._known:
            if known[0] == encoded:  # lengths are compared first
                self._known.remove(known)
                self._known.append(known)
                return known[1]
        if not encoded.startswith(b"[") or len(encoded) > _MAX_CACHED_BYTES:
            return msgspec.json.decode(encoded)
        again = ReusedArray(_array.decode(encoded))
        self._known = [*self._known[1 - _MAX_CACHED_SETS :], (encoded, again)]
        return again

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body is larger than {self._largest} bytes")
