"""Exchanges with a server: what was sent, and what came back, byte for byte; answers as a client sees them."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from callsmith.core.errors import MissingExtra, ModelError, Unavailable, UsageError
from callsmith.core.types.escaped_text import one_line
from callsmith.core.values import Json

if TYPE_CHECKING:
    import aiohttp

_MOST_BYTES = 32 * 1024 * 1024  # of an answer


@dataclass(slots=True)
class Exchange:
    """A request and its answer. `failure` says what happened to the connection, where it broke or took too long (`is_late`)."""

    method: str
    path: str
    sent: Json
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    received: bytes = b""
    seconds: float = 0.0
    failure: str = ""
    is_late: bool = False

    @property
    def text(self) -> str:
        return self.received.decode("utf-8", "replace")

    def json(self) -> Any:
        """The answer as JSON, or None if it is none."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def view(self) -> dict[str, Json]:
        """The exchange for a report."""
        sent = self.sent if not isinstance(self.sent, bytes) else self.sent.decode("utf-8", "replace")
        received = {"status": self.status, "body": self.text[:20_000]}
        failed = {"failure": self.failure} if self.failure else {}
        return {"request": f"{self.method} {self.path}", "sent": sent, **received, **failed, "seconds": round(self.seconds, 3)}


class KeyWanted(ModelError):
    """A server that does not answer without a key, or not to this one."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} wants another key ({status})", hint="Give it with --key, or in CALLSMITH_CHECK_KEY.")


class CheckedServer:
    """The server that is checked. Nothing is retried: what a client would see is what is reported."""

    def __init__(self, url: str, key: str = "", *, seconds: float = 120.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is no address: write http://{url}, or https://{url}", field="url")
        self.url = url.rstrip("/")
        self.key = key
        self.exchanges: list[Exchange] = []  # of the probe that runs
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "CheckedServer":
        try:
            import aiohttp
        except ImportError as missing:
            raise MissingExtra("remote", "checking servers") from missing
        # A connection each: one that is kept may be closed by the server just when it is used again, which is nobody's fault.
        apart, patience = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(total=self._seconds, sock_connect=10)
        self._session = aiohttp.ClientSession(connector=apart, timeout=patience)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self, method: str, path: str, body: Json = None, *, headers: Mapping[str, str] | None = None, base: str | None = None
    ) -> Exchange:
        """Send a request, and read its answer to the end. A body of bytes is sent as it is."""
        import aiohttp

        assert self._session is not None
        exchange = Exchange(method, path, body)
        self.exchanges.append(exchange)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {**({"content-type": "application/json"} if data is not None else {}), **self._authorization(headers)}
        began = time.perf_counter()
        try:
            url = f"{self.url if base is None else base}/{path}"
            async with self._session.request(method, url, data=data, headers=sent, allow_redirects=False) as response:
                exchange.status = response.status
                exchange.headers = {name.lower(): value for name, value in response.headers.items()}
                async for piece in response.content.iter_any():
                    exchange.received += piece
                    if len(exchange.received) > _MOST_BYTES:
                        exchange.failure = f"the answer has more than {_MOST_BYTES:,} bytes"
                        break
        except TimeoutError:
            exchange.failure = f"there was no whole answer within {self._seconds:g} s"
            exchange.is_late = True
        except aiohttp.ClientConnectorError as error:
            exchange.failure = f"no connection: {os.strerror(error.errno) if error.errno else error.os_error}"
        except (aiohttp.ClientError, OSError) as error:
            exchange.failure = f"the connection broke: {type(error).__name__}"
        exchange.seconds = time.perf_counter() - began
        return exchange

    async def models(self) -> Exchange:
        """The list of models, or whatever comes in its place. An address without a path gets the version that all have; a
        ModelError where nobody answers there, or only to those who have a key."""
        exchange = await self.send("GET", "models")
        if not exchange.status:
            raise Unavailable(f"nobody answers at {self.url}: {exchange.failure}", hint="Is the server running there?")
        if "/" not in self.url.partition("://")[2]:
            versioned = await self.send("GET", "v1/models")
            if versioned.status not in (404, 405):
                self.url, exchange = f"{self.url}/v1", versioned
        if exchange.status in (401, 403):
            raise KeyWanted(self.url, exchange.status)
        if exchange.status == 503:
            raise Unavailable(f"{self.url} is not ready: {one_line(exchange.text, 200)}", hint="Is it still loading its model?")
        return exchange

    async def is_there(self) -> bool:
        """Whether anybody still answers."""
        return bool((await self.send("GET", "models")).status)

    def _authorization(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        if headers is not None:
            return dict(headers)
        return {"authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass(slots=True)
class ReceivedCall:
    """A call in an answer: its arguments are the text that was sent."""

    name: str = ""
    text: str = ""
    id: str = ""

    @property
    def arguments(self) -> dict[str, Json] | None:
        """The arguments, or None where they are no JSON object."""
        value = self.decoded
        return cast(dict[str, Json], value) if isinstance(value, dict) else None

    @property
    def decoded(self) -> Json:
        """What the text of the arguments is, or None where it is no JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None


@dataclass(slots=True)
class Answer:
    """An answer. `faults` are by what is wrong with its shape: "frames", "ids", "indices", "finish", "order", "arguments"."""

    exchange: Exchange
    text: str = ""
    thoughts: str = ""
    calls: list[ReceivedCall] = field(default_factory=list[ReceivedCall])
    finish: str = ""  # "stop", "length", "calls", or as the server spells one that is not known
    usage: Mapping[str, Json] | None = None
    faults: dict[str, str] = field(default_factory=dict[str, str])

    def fault(self, kind: str, what: str) -> None:
        """Take down a fault; the first of its kind counts."""
        self.faults.setdefault(kind, what)

    @property
    def said(self) -> tuple[str, list[tuple[str, Any]], str]:
        """What two answers to one question have in common, if they are alike: not the ids."""
        calls = [(call.name, call.text if call.arguments is None else call.arguments) for call in self.calls]
        return self.text.strip(), calls, self.finish
