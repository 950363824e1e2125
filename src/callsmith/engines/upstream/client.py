"""`Upstream`: a server that generates, or several that do the same, as an HTTP client sees it.

    upstream = Upstream(["http://gpu1:8000/v1", "http://gpu2:8000/v1"], headers={"authorization": "Bearer …"})
    models = await upstream.get("models")
    async for data in upstream.stream("chat/completions", body, session=affinity_id(request)):
        frames = reader.feed(data)

What fails before the answer begins is tried again, at another server if there is one (`replicas.py`); what breaks off later is
not, for a part of it has been used by then. Nothing that an upstream sends is trusted: bodies and lines are bounded, redirects
are not followed (they would get the key), and an HTML page is no answer.
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from callsmith.core.errors import ModelError, Rejected, TimedOut, Unavailable, UsageError, shorten
from callsmith.core.values import Json
from callsmith.engines.lru import LRU
from callsmith.engines.upstream.body import ResponseBody
from callsmith.engines.upstream.errors import (
    NO_API,
    NotReached,
    explanation,
    load_aiohttp,
    read_refusal,
    reason_of,
    server_of,
)
from callsmith.engines.upstream.replicas import Replica, Replicas

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

_MOST_BODY: Final = 64 * 1024 * 1024  # bytes of an answer that is not streamed
_LONGEST_LINE: Final = 16 * 1024 * 1024  # bytes without a line break in a stream
_PROBE_SECONDS: Final = 5.0  # that a server may take to say that it is up again
# The names by which routers know a session: vllm-router, SGLang's model gateway, Dynamo. llm-d answers with a token of its own.
_SESSION_HEADERS: Final = ("x-session-id", "x-smg-routing-key", "x-dynamo-session-id")
_TOKEN_HEADER: Final = "x-session-token"
_LONGEST_TOKEN: Final = 4096  # characters
_MOST_TOKENS: Final = 4 * 1024 * 1024  # characters of all tokens, with the ids of their sessions


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a request to an upstream is given up, and when it is sent again.

    `connect`, `begin` and `silence` are the seconds it may take to connect, to begin its answer, and between two pieces of it.
    `retries` is how often a request is sent again that failed before its answer began; in between `pause` is waited, doubled each
    time, or what the upstream asks for in `Retry-After`, if that is no more than `longest_pause`.
    """

    connect: float = 10.0
    begin: float = 300.0
    silence: float = 120.0
    retries: int = 2
    pause: float = 0.5
    longest_pause: float = 20.0


def split_urls(text: str) -> tuple[str, ...]:
    """The URLs in a list like `http://gpu1:8000/v1,http://gpu2:8000/v1`."""
    return tuple(item.rstrip("/") for item in re.split(r",(?=https?://)", text))


class _KeptSession(NamedTuple):
    """The connections of an event loop, and the generator that closes them."""

    session: "aiohttp.ClientSession"
    keeper: AsyncGenerator["aiohttp.ClientSession", None]


class Upstream:
    """A server at a URL, or the same at several. `headers` go with every request; nothing of them is ever said in an error.

    `shows_session`: routers are sent the session of a request. `probe` is what a server that was down is asked for.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        retry_policy: RetryPolicy = RetryPolicy(),
        shows_session: bool = True,
        probe: str = "models",
    ) -> None:
        urls = [item.rstrip("/") for item in ([url] if isinstance(url, str) else url)]
        for item in urls:
            if not re.match(r"https?://[^/]", item):
                raise UsageError(
                    f"an upstream's URL begins with http:// or https://, and {shorten(item)!r} does not", field="url"
                )
        load_aiohttp()
        self.url = ",".join(urls)
        self.replicas = Replicas(urls)
        self.retry_policy = retry_policy
        self._headers = dict(headers or {})
        self._shows_session = shows_session
        self._probe_path = probe
        self._probes: dict[Replica, asyncio.Task[None]] = {}
        self._tokens: LRU[str] = LRU(_MOST_TOKENS)  # of sessions, as the server has given them
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _KeptSession] = WeakKeyDictionary()
        self._closed = False

    async def get(self, path: str) -> Json:
        """The JSON that is there."""
        async with self._answer("GET", path, None) as response:
            return await self._json(response)

    async def post(self, path: str, body: Json, session: str = "") -> Json:
        """The JSON that answers this body."""
        async with self._answer("POST", path, body, session) as response:
            return await self._json(response)

    async def stream(
        self, path: str, body: Json, session: str = "", tried: set[Replica] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes that answer this body, as they come. Closing the generator early closes the connection.

        Requests of the same `session` go to the same server, as long as it can be asked. Where one answer is asked for several
        times, `tried` has the servers whose answers were of no use; the one that answers is added.
        """
        async with self._answer("POST", path, body, session, tried) as response:
            line = 0
            with ResponseBody(response, self.retry_policy.silence) as pieces:
                while data := await pieces.read():
                    end = data.rfind(b"\n")
                    line = line + len(data) if end < 0 else len(data) - end
                    if line > _LONGEST_LINE:
                        raise ModelError(f"{server_of(response)} sends a line without an end", hint="Ask its operator.")
                    yield data

    def wait_for(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What this function asks of the upstream, in an event loop of its own: for the moment when things are opened and no
        event loop may be there to wait in."""

        async def fetch() -> T:
            try:
                return await ask()
            finally:
                await self._close_session()

        with ThreadPoolExecutor(1, "callsmith-upstream") as thread:
            return thread.submit(lambda: asyncio.run(fetch())).result()

    async def close(self) -> None:
        """Close all connections; asking afterwards is an error, closing twice is none."""
        self._closed = True
        for task in self._probes.values():
            if task.get_loop() is asyncio.get_running_loop():
                task.cancel()
        await self._close_session()

    async def _close_session(self) -> None:
        if kept := self._sessions.get(asyncio.get_running_loop()):
            await kept.keeper.aclose()

    async def _session(self) -> "aiohttp.ClientSession":
        """The connections of this event loop. They end with it, if nobody closes them before."""
        if self._closed:
            raise UsageError("the connection to the upstream is closed")
        loop = asyncio.get_running_loop()
        if (kept := self._sessions.get(loop)) is None:
            keeper = self._keep_session(loop)  # the loop closes its async generators before it ends
            kept = self._sessions[loop] = _KeptSession(await anext(keeper), keeper)
        return kept.session

    async def _keep_session(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator["aiohttp.ClientSession", None]:
        aiohttp = load_aiohttp()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.retry_policy.connect, sock_read=None)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers, auto_decompress=True)
        try:
            yield session
        finally:
            self._sessions.pop(loop, None)
            await session.close()

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, body: Json, session: str = "", tried: set[Replica] | None = None
    ) -> AsyncGenerator["aiohttp.ClientResponse", None]:
        """The answer to a request, begun and with a status that is none of an error."""
        replica, response = await self._begin_somewhere(method, path, body, session, set() if tried is None else tried)
        try:
            yield response
            self.replicas.note_success(replica)
        except ModelError as error:
            self.replicas.note_failure(replica, error)
            raise
        except GeneratorExit:  # whoever reads has enough
            self.replicas.note_success(replica)
            raise
        finally:
            replica.answering -= 1
            response.close()

    async def _begin_somewhere(
        self, method: str, path: str, body: Json, session: str, tried: set[Replica]
    ) -> "tuple[Replica, aiohttp.ClientResponse]":
        """A server that answers, and its answer. Each is asked once, at once; after a pause all may be asked again.

        What was sent is sent as often as `retry_policy` says and no more: it may be the request that brings a server down.
        Where no server could be reached nothing was sent: that uses up pauses alone.
        """
        sent = pauses = 0
        while True:
            for down in self.replicas.down():
                if (task := self._probes.get(down)) is None or task.done():
                    self._probes[down] = asyncio.create_task(self._probe(down))
            replica = self.replicas.choose(session, tried) or self.replicas.choose(session)
            if replica is None:
                await asyncio.gather(*map(self._probe_once, self.replicas.due_now()))
                replica = self.replicas.choose(session)
            try:
                if replica is None:
                    raise self.replicas.none_usable()
                tried.add(replica)
                return replica, await self._begin_at(replica, method, path, body, session)
            except ModelError as error:
                sent += replica is not None and not isinstance(error, NotReached)
                if sent > self.retry_policy.retries:
                    raise
                # Another may be asked in place of one that is not there or cannot; one that took too long may still be at work.
                moves_on = error.retryable or isinstance(error, Unavailable)
                if moves_on and self.replicas.choose(session, tried) is not None:
                    continue
                pause = self._pause(error, pauses)
                if pause is None:
                    raise
            await asyncio.sleep(pause)
            tried.clear()
            pauses += 1

    async def _begin_at(self, replica: Replica, method: str, path: str, body: Json, session: str) -> "aiohttp.ClientResponse":
        """The answer of one server, begun."""
        replica.answering += 1
        replica.requests += 1
        try:
            response = await self._begin(replica.url, method, path, body, self._session_headers(replica, session))
        except BaseException as error:
            replica.answering -= 1
            if isinstance(error, ModelError):
                self.replicas.note_failure(replica, error)
            raise
        if session and self._shows_session and (token := response.headers.get(_TOKEN_HEADER)) and len(token) <= _LONGEST_TOKEN:
            self._tokens.set((replica.url, session), token, len(token) + len(session))
        return response

    def _session_headers(self, replica: Replica, session: str) -> dict[str, str]:
        if not session or not self._shows_session:
            return {}
        token = self._tokens.get((replica.url, session))
        return {**dict.fromkeys(_SESSION_HEADERS, session), **({_TOKEN_HEADER: token} if token else {})}

    async def _begin(
        self, server: str, method: str, path: str, body: Json, headers: Mapping[str, str]
    ) -> "aiohttp.ClientResponse":
        aiohttp, session = load_aiohttp(), await self._session()
        sent: dict[str, Any] = {"headers": headers}
        if body is not None:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
            sent = {"data": data, "headers": {"content-type": "application/json", **headers}}
        try:
            async with asyncio.timeout(self.retry_policy.begin):
                response = await session.request(method, f"{server}/{path.lstrip('/')}", allow_redirects=False, **sent)
                if error := await read_refusal(server, response):
                    response.close()
                    raise error
                return response
        except aiohttp.ServerTimeoutError as error:
            why = f"no connection within {self.retry_policy.connect:g} s"
            raise NotReached(server, why) from error
        except TimeoutError as error:
            raise TimedOut(f"{server} did not begin its answer within {self.retry_policy.begin:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise NotReached(server, reason_of(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"{server} cannot be reached: {reason_of(error)}", retryable=True) from error

    async def _probe(self, replica: Replica) -> None:
        """Ask a server from time to time until it is up again."""
        while replica.is_down and not self._closed:
            await asyncio.sleep(replica.next_probe - self.replicas.clock())
            await self._probe_once(replica)

    async def _probe_once(self, replica: Replica) -> None:
        if self._closed:
            return None
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                (await self._begin(replica.url, "GET", self._probe_path, None, {})).close()
        except (ModelError, TimeoutError) as error:
            if not isinstance(error, Rejected) or error.status >= 500:
                return self.replicas.note_failed_probe(replica)
        return self.replicas.note_success(replica)

    def _pause(self, error: ModelError, before: int) -> float | None:
        """How long to wait before the request is sent again, after so many pauses before; None if it is not."""
        if before >= self.retry_policy.retries or not error.retryable:
            return None
        retry_after = error.seconds if isinstance(error, Rejected) else None
        if retry_after is not None:
            return retry_after if retry_after <= self.retry_policy.longest_pause else None
        return min(self.retry_policy.pause * 2**before * random.uniform(0.75, 1.25), self.retry_policy.longest_pause)

    async def _json(self, response: "aiohttp.ClientResponse") -> Json:
        parts: list[bytes] = []
        size = 0
        with ResponseBody(response, self.retry_policy.silence) as pieces:
            while data := await pieces.read():
                parts.append(data)
                size += len(data)
                if size > _MOST_BODY:
                    raise ModelError(f"{server_of(response)} answers with more than {_MOST_BODY:,} bytes")
        text = b"".join(parts).decode("utf-8", "replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{server_of(response)} answers with what is no JSON: {explanation(text)}", hint=NO_API) from error
