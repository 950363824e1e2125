"""NatsConnection: a connection to a NATS server that comes back, and that no message from others can break."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from callsmith.bus.nats.messages import PART, SIGNATURE, NatsMessage, bytes_to_sign
from callsmith.bus.port import Disconnected
from callsmith.bus.trust.identity import Identity
from callsmith.core.errors import MissingExtra
from callsmith.wire.capability.errors import BusError

try:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription
    from nats.errors import Error as NatsError
    from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser
except ImportError as missing:
    raise MissingExtra("bus", "a bus over NATS") from missing

_log = logging.getLogger(__name__)

LOST = "the connection to the NATS server is lost; it will be restored"
Taker: TypeAlias = Callable[[NatsMessage], None]
_HEADER_BYTES = 1024  # that a message may take besides its payload
_START_SECONDS = 5.0
_PING_SECONDS, _MISSED_PONGS = 1, 2  # after which the server counts as gone
_NO_HEADERS: Mapping[str, str] = {}
_MESSAGE = re.compile(rb"MSG (\S+) (\d{1,18}) (?:(\S+) )?()(\d{1,18})\r\n")
_WITH_HEADERS = re.compile(rb"HMSG (\S+) (\d{1,18}) (?:(\S+) )?(\d{1,18}) (\d{1,18})\r\n")


class _Parser(Parser):
    """nats-py's parser, which takes messages out of what was read where they stand: its own way moves all that follows, twice for
    each of them. What is no message is read as it does."""

    def __init__(self, client: "_Client") -> None:
        cast(Any, super()).__init__(client)
        self._client = client

    async def parse(self, data: bytes = b"") -> None:
        self._client.note_sign_of_life()
        if self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        if self.buf:
            self.buf.extend(data)
            if len(self.buf) < self.needed:
                return
            data = bytes(self.buf)
            self.buf.clear()
        at = await self._take_messages(data)
        self.buf.extend(data[at:])

    async def _take_messages(self, data: bytes) -> int:
        """Take what is whole, and say where the rest begins; `needed` is how long that must be at least."""
        at = self.needed = 0
        while at < len(data):
            head = _MESSAGE.match(data, at) or _WITH_HEADERS.match(data, at)
            if head is None:
                end = data.find(b"\r\n", at) + 2
                if end < 2:
                    return at
                await super().parse(data[at:end])
                if self.state != AWAITING_CONTROL_LINE:  # it takes for a message what the server never writes
                    await super().parse(data[end:])
                    return len(data)
                at = end
                continue
            subject, sid, reply, header_size, size = head.groups()
            begin = head.end()
            end = begin + int(size)
            if end + 2 > len(data):
                self.needed = end + 2 - at
                return at
            if header_size:
                body = begin + int(header_size)
                await self._client.take_with_headers(int(sid), subject, reply or b"", data[body:end], data[begin:body])
            else:
                self._client.take(int(sid), subject, reply or b"", data[begin:end], _NO_HEADERS)
            at = end + 2
        return at


class _Client(Client):
    """nats-py's client, which gives messages straight to who takes them.

    Its own way is a queue and a task for each subscription; and a subject, reply or header that it cannot read ends its reading
    for good, so that anybody could silence it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ps = _Parser(self)
        self.takers: dict[object, Taker] = {}
        self._will_write = False

    def send(self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str]) -> None:
        """Send a message. `publish` does the same, in four coroutines."""
        to = f"{subject} {reply}" if reply else subject
        if headers:
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            head = f"NATS/1.0\r\n{lines}\r\n".encode()
            message = b"HPUB %s %d %d\r\n%s%s\r\n" % (to.encode(), len(head), len(head) + len(payload), head, payload)
        else:
            message = b"PUB %s %d\r\n%s\r\n" % (to.encode(), len(payload), payload)
        self._pending.append(message)
        self._pending_data_size += len(message)
        if not self._will_write:
            self._flush()

    async def _flush_pending(self, force_flush: bool = False) -> None:
        self._flush()

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Ask for a sign of life. nats-py writes this ahead of what is still to be sent, of which the sign should tell."""
        self._write()
        await cast(Any, super())._send_ping(future)

    def note_sign_of_life(self) -> None:
        """The server is there. The pong for which nats-py waits may be far behind in a flood of messages."""
        self._pings_outstanding = 0

    def _flush(self) -> None:
        """Write what is to be sent, all that comes in one turn of the event loop together: a system call wakes up the server."""
        if not self._will_write:
            self._will_write = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._will_write = False
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0

    async def take_with_headers(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        try:
            read = await cast(Any, self)._process_headers(headers)
        except Exception:  # of whatever kind: it would end nats-py's reading, and others have written these headers
            _log.debug("a message with headers that cannot be read was dropped", exc_info=True)
            return
        self.take(sid, subject, reply, data, read or _NO_HEADERS)

    _process_msg = take_with_headers  # as nats-py calls it

    def take(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Mapping[str, str]) -> None:
        taker = self.takers.get(self._subs.get(sid))
        if taker is None:
            return
        try:
            taker(NatsMessage(subject.decode(), reply.decode(), data, headers))
        except Exception:  # whatever others have sent, and whatever it leads to: the next message is read
            _log.debug("a message from NATS was dropped", exc_info=True)


class NatsConnection:
    """A connection to one of these servers. While it is away, nothing is sent, and nothing is kept to be sent later.

    What is sent is signed with the `identity`, if the node has one.
    """

    def __init__(
        self,
        urls: Sequence[str],
        identity: Identity | None = None,
        *,
        on_lost: Callable[[], None],
        on_return: Callable[[], None],
    ) -> None:
        self._urls, self._identity = list(urls), identity
        self._on_lost = on_lost
        self._on_return = on_return
        self._client = _Client()
        self.most_bytes = self._client.max_payload - _HEADER_BYTES  # of the payload of a message
        self._subscriptions: dict[str, tuple[Taker, str, Subscription]] = {}
        self._up = asyncio.Event()

    async def open(self) -> None:
        """Connect; a BusError partition if there is no server."""
        client = _Client()
        try:
            async with asyncio.timeout(_START_SECONDS):
                await client.connect(
                    self._urls,
                    error_cb=_log_error,
                    disconnected_cb=self._lost,
                    reconnected_cb=self._on_reconnected,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    connect_timeout=2,
                    ping_interval=_PING_SECONDS,
                    max_outstanding_pings=_MISSED_PONGS,
                    pending_size=0,
                    skip_subject_validation=True,  # subjects are made here
                )
        except BaseException as error:  # also a cancellation: nothing stays open on any way out
            with suppress(Exception):  # it was never open
                await client.close()
            if not isinstance(error, TimeoutError | OSError | NatsError):
                raise
            where = ", ".join(_without_password(url) for url in self._urls)
            raise BusError("partition", f"there is no NATS server at {where}, or it lets nobody in; is it running?") from error
        self._client = client
        self._on_connected()

    async def reopen(self) -> None:
        """Connect anew after nats-py has given up, as it does when a server turns it away."""
        await self.open()
        for subject, (taker, queue, _) in list(self._subscriptions.items()):
            await self.subscribe(subject, taker, queue)
        self._on_return()

    @property
    def is_up(self) -> bool:
        return self._client.is_connected

    @property
    def is_given_up(self) -> bool:
        return self._client.is_closed

    async def subscribe(self, subject: str, taker: Taker, queue: str = "") -> None:
        subscription: Subscription = await cast(Any, self._client).subscribe(subject, queue)
        self._client.takers[subscription] = taker
        self._subscriptions[subject] = taker, queue, subscription

    async def unsubscribe(self, subject: str) -> None:
        """Take no more messages, after those that are on their way."""
        subscription = self._subscriptions.pop(subject)[2]
        with suppress(NatsError, TimeoutError):  # the connection is lost meanwhile: what it takes until it returns is harmless
            await (subscription.drain() if self.is_up else subscription.unsubscribe())
        self._client.takers.pop(subscription, None)

    def publish(self, subject: str, payload: bytes, what: str | None, *, reply: str = "", part: str = "") -> None:
        """Send a message; a BusError partition if that cannot be done now, and bad_request if it is too long: the server would
        close the connection. `what` it is, for its signature; None: it has none."""
        if not self._client.is_connected:
            raise Disconnected(LOST)
        if len(payload) > self.most_bytes:
            raise BusError("bad_request", f"this has {len(payload)} bytes, and the NATS server takes {self.most_bytes}")
        headers = {PART: part} if part else {}
        if self._identity is not None and what is not None:
            headers[SIGNATURE] = self._identity.sign(bytes_to_sign(what, payload))
        self._client.send(subject, payload, reply, headers)

    async def is_back(self, seconds: float) -> bool:
        """Whether the connection is there, or is within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._up.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        with suppress(NatsError, OSError):
            await self._client.close()

    async def _lost(self) -> None:
        self._up.clear()
        self._on_lost()

    async def _on_reconnected(self) -> None:
        self._on_connected()
        self._on_return()

    def _on_connected(self) -> None:
        self.most_bytes = self._client.max_payload - _HEADER_BYTES
        self._up.set()


async def _log_error(error: Exception) -> None:
    _log.info("NATS: %s: %s", type(error).__name__, error)


def _without_password(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
