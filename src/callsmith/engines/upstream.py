"""`Upstream`: a server that generates, as an HTTP client sees it: its errors, retries, deadlines and streams.

    upstream = Upstream("http://localhost:8000/v1", headers={"authorization": "Bearer …"})
    models = await upstream.get("models")
    async for data in upstream.stream("chat/completions", body):
        frames = reader.feed(data)

What fails before the answer begins is tried again; what breaks off later is not, for a part of it has been used by then. Nothing
that an upstream sends is trusted: bodies and lines are bounded, redirects are not followed (they would get the key), and an HTML
page is no answer.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from callsmith.core.errors import MissingExtra, ModelError, Rejected, TimedOut, Unavailable, UsageError, shorten
from callsmith.core.values import Json
from callsmith.wire.errors import reported_error

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_MOST_ERROR: Final = 64 * 1024  # bytes that are read of an error
_MOST_BODY: Final = 64 * 1024 * 1024  # bytes of an answer that is not streamed
_LONGEST_LINE: Final = 16 * 1024 * 1024  # bytes without a line break in a stream
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an upstream may take, in seconds: to connect, to begin its answer, and between two pieces of it.

    `retries` is how often a request is sent again that failed before its answer began; in between `pause` is waited, doubled each
    time, or what the upstream asks for in `Retry-After`, if that is no more than `longest_pause`.
    """

    connect: float = 10.0
    begin: float = 300.0
    silence: float = 120.0
    retries: int = 2
    pause: float = 0.5
    longest_pause: float = 20.0


class BrokeOff(Unavailable):
    """An answer that had begun, and did not come to its end."""

    def __init__(self, url: str, reason: str = "") -> None:
        super().__init__(f"{url} broke off in the middle of its answer{reason and f': {reason}'}", retryable=True)


class Upstream:
    """A server at a URL. `headers` go with every request; nothing of them is ever said in an error."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, patience: Patience = Patience()) -> None:
        if not re.match(r"https?://[^/]", url):
            raise UsageError(f"an upstream's URL begins with http:// or https://, and {shorten(url)!r} does not", field="url")
        _aiohttp()
        self.url = url.rstrip("/")
        self.patience = patience
        self._headers = dict(headers or {})
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()
        self._closed = False

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Json:
        """The JSON that is there."""
        async with self._answer("GET", path, None, headers) as response:
            return await self._json(response)

    async def post(self, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Json:
        """The JSON that answers this body."""
        async with self._answer("POST", path, body, headers) as response:
            return await self._json(response)

    async def stream(self, path: str, body: Json, headers: Mapping[str, str] | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes that answer this body, as they come. Closing the generator early closes the connection."""
        async with self._answer("POST", path, body, headers) as response:
            line = 0
            async for data in self._read(response):
                line = line + len(data) if b"\n" not in data else len(data) - data.rindex(b"\n")
                if line > _LONGEST_LINE:
                    raise ModelError(f"{self.url} sends a line without an end", hint="Ask its operator.")
                yield data

    def get_now(self, path: str) -> Json:
        """`get`, for the moment when things are opened and no event loop may be there to wait in."""
        return self.wait_for(lambda: self.get(path))

    def wait_for(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What this function asks of the upstream, in an event loop of its own."""
        found: list[T] = []
        failed: list[BaseException] = []

        async def fetch() -> None:
            try:
                found.append(await ask())
            except Exception as error:
                failed.append(error)
            finally:
                await self._close_session()

        thread = Thread(target=lambda: asyncio.run(fetch()), name="callsmith-upstream")
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    async def close(self) -> None:
        """Close all connections; asking afterwards is an error, closing twice is none."""
        self._closed = True
        await self._close_session()

    async def _close_session(self) -> None:
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _session(self) -> "aiohttp.ClientSession":
        """The connections of this event loop."""
        if self._closed:
            raise UsageError("the connection to the upstream is closed")
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            aiohttp = _aiohttp()
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.patience.connect, sock_read=None)
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers=self._headers, auto_decompress=True
            )
        return session

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, body: Json, headers: Mapping[str, str] | None
    ) -> AsyncGenerator["aiohttp.ClientResponse", None]:
        """The answer to a request, begun and with a status that is none of an error."""
        for attempt in range(self.patience.retries + 1):
            try:
                response = await self._begin(method, path, body, headers)
                break
            except ModelError as error:
                pause = self._pause(error, attempt)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        else:
            raise AssertionError("the last attempt raises")
        try:
            yield response
        finally:
            response.close()

    async def _begin(self, method: str, path: str, body: Json, headers: Mapping[str, str] | None) -> "aiohttp.ClientResponse":
        aiohttp, session = _aiohttp(), self._session()
        url = f"{self.url}/{path.lstrip('/')}"
        sent: dict[str, Any] = {}
        if body is not None:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
            sent = {"data": data, "headers": {"content-type": "application/json", **(headers or {})}}
        elif headers:
            sent = {"headers": dict(headers)}
        try:
            async with asyncio.timeout(self.patience.begin):
                response = await session.request(method, url, allow_redirects=False, **sent)
        except aiohttp.ServerTimeoutError as error:
            raise Unavailable(
                f"{self.url} cannot be reached: no connection within {self.patience.connect:g} s", retryable=True
            ) from error
        except TimeoutError as error:
            raise TimedOut(f"{self.url} did not begin its answer within {self.patience.begin:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"{self.url} cannot be reached: {_reason(error)}", retryable=True) from error
        if response.status >= 300:
            try:
                raise await self._rejection(response)
            finally:
                response.close()
        return response

    def _pause(self, error: ModelError, attempt: int) -> float | None:
        """How long to wait before the request is sent again; None if it is not."""
        if attempt >= self.patience.retries or not error.retryable:
            return None
        asked = error.seconds if isinstance(error, Rejected) else None
        if asked is not None:
            return asked if asked <= self.patience.longest_pause else None
        return min(self.patience.pause * 2**attempt * random.uniform(0.75, 1.25), self.patience.longest_pause)

    async def _rejection(self, response: "aiohttp.ClientResponse") -> ModelError:
        """The error that the status and the body stand for."""
        try:
            text = (await response.content.read(_MOST_ERROR)).decode("utf-8", "replace")
        except (_aiohttp().ClientError, OSError, TimeoutError):
            text = ""
        status, where = response.status, ""
        if status < 400:
            where = f" (it points to {shorten(response.headers.get('location', 'nowhere'))}, which is not followed)"
        seconds = _retry_after(response.headers.get("retry-after", ""))
        message = f"{self.url} answers {status}{where}: {_explanation(text)}"
        return Rejected(message, status=status, retryable=status in _RETRIED, seconds=seconds)

    async def _json(self, response: "aiohttp.ClientResponse") -> Json:
        parts: list[bytes] = []
        size = 0
        async for data in self._read(response):
            parts.append(data)
            size += len(data)
            if size > _MOST_BODY:
                raise ModelError(f"{self.url} answers with more than {_MOST_BODY:,} bytes")
        text = b"".join(parts).decode("utf-8", "replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self.url} answers with what is no JSON: {_explanation(text)}", hint=_NO_API) from error

    async def _read(self, response: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
        """The body, as it comes. HTML is the page of a proxy, or of another server than was meant."""
        aiohttp = _aiohttp()
        if response.content_type == "text/html":
            page = (await response.content.read(_MOST_ERROR)).decode("utf-8", "replace")
            raise Unavailable(f"{self.url} answers with {_explanation(page)}", hint=_NO_API)
        while True:
            try:
                async with asyncio.timeout(self.patience.silence):
                    data = await response.content.readany()
            except TimeoutError as error:
                raise TimedOut(f"{self.url} has sent nothing for {self.patience.silence:g} s") from error
            except (aiohttp.ClientError, OSError) as error:
                raise BrokeOff(self.url, _reason(error)) from error
            if not data:
                return
            yield data


_NO_API: Final = "Is this the address of an API, and complete (…/v1)?"


def _aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError as error:
        raise MissingExtra("remote", "asking other servers") from error
    return aiohttp


def _reason(error: BaseException) -> str:
    return shorten(str(error) or type(error).__name__)


def _explanation(text: str) -> str:
    """What a body says about what went wrong, in one line."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        title = _TITLE.search(text)
        if title or text.lstrip()[:1] == "<":
            return f"an HTML page ({shorten(' '.join(title[1].split())) if title else 'without a title'})"
        return shorten(" ".join(text.split())) or "nothing"
    if isinstance(found, dict):
        fields = cast(dict[str, Any], found)
        for key in ("error", "detail", "message"):
            if fields.get(key):
                return shorten(reported_error(fields[key]), 1000)
    return shorten(" ".join(text.split()))


def _retry_after(text: str) -> float | None:
    """Seconds, or until a date."""
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
