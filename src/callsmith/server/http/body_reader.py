"""Reading request bodies. Clients send the same tools with every request: parsed tools are cached by their bytes.

What is large is read in a thread, piece by piece, so that the event loop goes on meanwhile. How large the parts of a request may
be is measured before they are parsed, in every dialect at this one place.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Final, ParamSpec, TypeAlias, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.server.http.request_context import client, current_request
from callsmith.server.settings import Requests
from callsmith.wire.fields import ReusedArray

_Check: TypeAlias = Callable[[str, memoryview], None]

# A string, or one that does not end: a text is passed over once, whatever it is. And a piece of a text, cut outside of strings.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_PIECE: Final = re.compile(rb"(?:[^\"]++|%b){1,2000}+" % _STRING.pattern, re.DOTALL)
_NESTED: Final = frozenset({"options", "structured_outputs"})  # fields whose own fields are measured as well
_MESSAGES: Final = ("messages", "input")
_TOOLS: Final = ("tools", "functions")
_STOPS: Final = ("stop", "stop_sequences")
# What says what an answer must be: grammars are made of it.
_OUTPUTS: Final = (
    "response_format", "guided_json_schema", "json_schema", "guided_json", "guided_choice", "guided_regex", "guided_grammar",
    "grammar", "format", "text", "output_config", "output_format", "json", "choice", "regex",
)  # fmt: skip
_NAMES: Final = ("tool_choice", "server_tools", "mcp_servers", "include", "logit_bias", "metadata")

_array = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_LIMITS: Final = Requests()
LARGE: Final = 256 * 1024  # bytes; a body that is not larger is read at once, within a few milliseconds
_ALWAYS_ACCEPTED: Final = 64 * 1024  # bytes of a body, however many bodies are arriving
_MAX_CACHED_BYTES: Final = 512 * 1024  # of one set of tools: some 1,000 tools
_MAX_CACHED_SETS: Final = 16
_json_array = msgspec.json.Decoder(list[Json])


def has_more_values(text: bytes | bytearray, most: int) -> bool:
    """Whether a JSON text has more values than that: one, and one more behind each comma and bracket outside of strings.

    It is read in pieces: other threads go on in between.
    """
    if len(text) <= 2 * most or _count_marks(text) < most:
        return False
    count, at = 1, 0
    while at < len(text) and count <= most:
        piece = _PIECE.match(text, at)
        assert piece is not None  # anything but a quote, or a string
        count += _count_marks(_STRING.sub(b"", piece[0]))
        at = piece.end()
    return count > most


def _count_marks(text: bytes | bytearray) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


class RequestLimits:
    """Complains, by a UsageError that names field and limit, about what is larger than the settings allow.

    `wrappers` are fields that hold a request in another one (`Dialect.wrappers`).
    """

    def __init__(self, limits: Requests, wrappers: Iterable[str] = ()) -> None:
        self._limits = limits
        self._wrappers = frozenset(wrappers)
        self._checks: Mapping[str, _Check] = {
            **dict.fromkeys(_MESSAGES, self._check_messages),
            **dict.fromkeys(_TOOLS, self._check_tools),
            **dict.fromkeys(_STOPS, self._check_stops),
            **dict.fromkeys(_OUTPUTS, self._at_most(limits.output_bytes)),
            **dict.fromkeys(_NAMES, self._at_most(limits.field_bytes)),
        }

    def check_body(self, body: bytes | bytearray) -> None:
        """Complain about a body of too many values."""
        if has_more_values(body, self._limits.values):
            raise UsageError(f"the body: has more than the {self._limits.values} JSON values that are allowed")

    def check_fields(self, parts: Mapping[str, msgspec.Raw], path: str = "") -> None:
        """Complain about a field that is too large."""
        for name, raw in parts.items():
            if name in self._wrappers and _is(memoryview(raw), b"{"):
                self._check_wrapped(_object.decode(raw), f"{path}{name}.")
            elif check := self._checks.get(name):
                check(path + name, memoryview(raw))
            elif name in _NESTED and _is(memoryview(raw), b"{"):
                self.check_fields(_object.decode(raw), f"{name}.")

    def _check_wrapped(self, parts: Mapping[str, msgspec.Raw], path: str) -> None:
        """The same for a request in another one. What its other fields mean, only whoever it is for knows."""
        common = {*self._wrappers, *_MESSAGES, *_TOOLS, *_STOPS}
        self.check_fields({name: raw for name, raw in parts.items() if name in common}, path)

    def _check_messages(self, name: str, raw: memoryview) -> None:
        if _may_have(raw, self._limits.messages):
            _check_count(name, _array.decode(raw), self._limits.messages)

    def _check_tools(self, name: str, raw: memoryview) -> None:
        limits = self._limits
        if has_more_values(bytes(raw), limits.schema_values):
            raise UsageError(f"{name}: have more than the {limits.schema_values} JSON values that are allowed", field=name)
        if _may_have(raw, limits.tools) or (raw.nbytes > limits.tool_bytes and _is(raw, b"[")):
            tools = _check_count(name, _array.decode(raw), limits.tools)
            for index, tool in enumerate(tools):
                _check_bytes(f"{name}.{index}", memoryview(tool), limits.tool_bytes)

    def _check_stops(self, name: str, raw: memoryview) -> None:
        if not _is(raw, b"["):
            _check_bytes(name, raw, self._limits.stop_bytes)
        elif raw.nbytes > min(self._limits.stops, self._limits.stop_bytes):
            for index, stop in enumerate(_check_count(name, _array.decode(raw), self._limits.stops)):
                _check_bytes(f"{name}.{index}", memoryview(stop), self._limits.stop_bytes)

    def _at_most(self, most: int) -> _Check:
        return lambda name, raw: _check_bytes(name, raw, most)


def _is(raw: memoryview, opening: bytes) -> bool:
    return bytes(raw[:1]) == opening


def _may_have(raw: memoryview, most: int) -> bool:
    """Whether this may be an array of more items than that: each takes two characters."""
    return raw.nbytes > 2 * most and _is(raw, b"[")


def _check_count(name: str, items: list[msgspec.Raw], most: int) -> list[msgspec.Raw]:
    if len(items) > most:
        raise _too_large(name, f"{len(items)} entries", most)
    return items


def _check_bytes(name: str, raw: memoryview, most: int) -> None:
    if raw.nbytes > most:
        raise _too_large(name, f"{raw.nbytes} bytes", most)


def _too_large(name: str, size: str, most: int) -> UsageError:
    return UsageError(f"{name}: has {size}, more than the {most} that are allowed", field=name)


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
            raise _body_too_large(most)
        body = bytearray()
        with self._arriving.count_body() as count:
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise _body_too_large(most)
                count(len(body))
        return await self.parse(body)

    async def parse(self, body: bytes | bytearray) -> Json:
        """Decode a body, or say why it is refused."""
        if len(body) > self._limits.body_bytes:
            raise _body_too_large(self._limits.body_bytes)
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
            parts = _object.decode(body)
            self._field_limits.check_fields(parts)
            return {key: self._tools(raw) if key in _TOOLS else msgspec.json.decode(raw) for key, raw in parts.items()}
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
        again = ReusedArray(_json_array.decode(encoded))
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
    def count_body(self) -> Generator[Callable[[int], None], None, None]:
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


def _body_too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most} bytes")
