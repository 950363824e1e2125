"""HttpTransport: the capabilities of a server, for a bus of this process.

    async with CapabilityBus(HttpTransport("http://127.0.0.1:8000", key="sk-callsmith-…")) as bus:
        answer = await bus.call("rag.query", (1, 0), {"params": {"corpus": "village"}, "input": {"query": "hall"}})

Streams come over a WebSocket or, where the server refuses one, as server-sent events: then nothing can be sent to the call while
it runs. The server cannot call this process: what is registered on the bus stays its own.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from msgspec.structs import replace

from callsmith.bus.descriptor import Descriptor, read_descriptor, write_descriptor
from callsmith.bus.flow import Acknowledgements
from callsmith.bus.port import Offer, Receive, Receiver, nothing_received
from callsmith.bus.remote import ACCEPTED
from callsmith.core.capability.authority import Authority
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, MissingExtra, UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Envelope, canonical, signed_bytes, write_envelope
from callsmith.wire.capability.errors import BusError, as_bus_error, read_error
from callsmith.wire.capability.frames import Frame, encode_json, read_frame
from callsmith.wire.capability.requests import PATH, SUBPROTOCOL, write_call
from callsmith.wire.sse import FrameReader

try:
    import aiohttp
except ImportError as missing:
    raise MissingExtra("remote", "calling capabilities over HTTP") from missing

if TYPE_CHECKING:
    from callsmith.bus.trust.identity import Identity

_log = logging.getLogger(__name__)

REFRESH_SECONDS = 30.0  # after which the server is asked again what it offers
_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 60.0  # in a stream of events, which has a sign of life every 15 s
_MOST_BYTES = 64 * 1024 * 1024  # of an answer, or of one frame
_MOST_OFFERS = 10_000
_AHEAD = 256  # frames that are read from a socket before whoever reads the answer wants them
_MARGIN_SECONDS = 1.0  # by which the server's word that a call took too long may come later


class HttpTransport:
    """The server at a URL, which is called with an API key and, if there is an identity, with signed envelopes.

    `token` is a capability token that was issued to this node. Calls that are made for somebody else, whose own token this node
    was given, carry one that is made from that for the call alone.
    """

    def __init__(
        self, url: str, *, key: str = "", identity: "Identity | None" = None, community: str = "", token: str = ""
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"the URL of a server begins with http:// or https://, and {url[:100]!r} does not", field="url")
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._identity = identity
        self._community = community
        self._token = token
        self._node = identity.node_id if identity else f"anon:{uuid4().hex}"
        self._server = ""
        self._offers: Sequence[Offer] = ()
        self._by_name: Mapping[str, list[Offer]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def node(self) -> str:
        return self._node

    async def start(self, receiver: Receiver) -> None:
        """Ask the server what it offers. A BusError if it cannot be reached, or does not let this caller in."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)
        try:
            await self.refresh()
        except BaseException:  # also a cancellation: the session is closed on every way out
            await self.close()
            raise
        self._refreshing = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait((self._refreshing,))
        if self._session is not None:
            await self._session.close()

    def announce(self, descriptors: Sequence[Descriptor]) -> None:
        """Nothing: the server cannot call this process."""

    def offers(self, capability: str = "") -> Sequence[Offer]:
        """What the server offers to this caller: of one capability, or of all."""
        return self._offers if not capability else self._by_name.get(capability, ())

    async def refresh(self) -> None:
        """Ask the server what this caller may call."""
        async with self._request("GET", "/bus/v1/capabilities", None, _CONNECT_SECONDS) as response:
            listing = await _read_json(response)
        listed: Json = listing.get("capabilities")
        if response.status != 200 or not isinstance(listed, list):
            if isinstance(listing.get("error"), str):
                raise read_error(listing)
            what = f"{self._url} has no capability bus: is it the address of a callsmith server, without /v1?"
            raise BusError("not_found", what)
        self._server = str(listing.get("node", self._url))
        self._offers = tuple(Offer(self._server, item) for item in _callable(cast(list[Json], listed[:_MOST_OFFERS])))
        by_name: dict[str, list[Offer]] = {}
        for offer in self._offers:
            by_name.setdefault(offer.descriptor.name, []).append(offer)
        self._by_name = by_name

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except BusError as error:  # calls will say the same
                _log.warning("%s does not say what it offers: %s", self._url, error)

    async def request(self, envelope: Envelope, offer: Offer, *, share: bool, authority: Authority) -> tuple[str, Frame]:
        """Send a call, and give its answer."""
        node = self._server
        async with closing(self.send(envelope, offer, share=share, receive=nothing_received, authority=authority)) as frames:
            async for (frame,) in frames:
                if frame.event == ACCEPTED:
                    node = str(frame.data["node"])
                elif frame.is_end:
                    return node, frame
        raise BusError("partition", f"{envelope.capability} ended without its last frame", sent=True)

    async def send(
        self, envelope: Envelope, offer: Offer, *, share: bool, receive: Receive, authority: Authority
    ) -> AsyncGenerator[Sequence[Frame], None]:
        """Send a call and give the frames of its answer, one by one."""
        message, seconds = self._message(envelope, authority), envelope.seconds
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds + _MARGIN_SECONDS
        streams = envelope.stream and offer.descriptor.stream_schema is not None
        socket = await self._connect(until) if streams else None
        answering = self._post(message, until) if socket is None else _SocketCall(socket, receive, until).frames(message)
        async with closing(answering) as frames:
            async for frame in frames:
                yield (frame,)

    def _message(self, envelope: Envelope, authority: Authority) -> dict[str, Json]:
        """The call as it is sent: to the server, which finds out who answers. What is signed for it is of no use elsewhere."""
        token = self._token_for(envelope, authority)
        to = self._server if self._server.startswith("ed25519:") else ""
        envelope = replace(envelope, to=to, sender="", community=self._community, token=token)
        if self._identity is None:
            return write_call(envelope)
        envelope = replace(envelope, sender=self._node, timestamp=time.time())
        return write_call(envelope, self._identity.sign(signed_bytes(write_envelope(envelope))))

    def _token_for(self, envelope: Envelope, authority: Authority) -> str:
        if not authority.token:
            return self._token
        from callsmith.bus.trust.authorize import outgoing_token

        seconds = envelope.seconds or _SILENT_SECONDS
        return outgoing_token(self._identity, authority, self._server, envelope, envelope.version, seconds)

    async def _connect(self, until: float | None) -> "aiohttp.ClientWebSocketResponse | None":
        """A WebSocket; None where the server has none for this call."""
        timeout = cast(Any, aiohttp.ClientWSTimeout)(ws_close=1.0)  # its fields are not known to type checkers
        try:
            async with asyncio.timeout_at(until):
                socket = await self._open_session.ws_connect(
                    self._url + PATH, protocols=(SUBPROTOCOL,), timeout=timeout, heartbeat=30, max_msg_size=_MOST_BYTES
                )
        except aiohttp.WSServerHandshakeError:  # the same call without a socket is answered, or refused for a reason
            return None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(self._url, error) from error
        if socket.protocol == SUBPROTOCOL:
            return socket
        await socket.close()
        return None

    async def _post(self, message: Json, until: float | None) -> AsyncGenerator[Frame, None]:
        """The answer in one piece, or as server-sent events."""
        seconds = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        async with self._request("POST", PATH, message, seconds) as response:
            if response.status != 200 or response.content_type != "text/event-stream":
                answer = await _read_json(response)
                if response.status != 200:
                    raise read_error(answer)
                yield Frame(ACCEPTED, {"node": self._server})
                yield Frame("done", answer)
                return
            yield Frame(ACCEPTED, {"node": self._server})
            reader, size, seq = FrameReader(), 0, 0
            async for data in response.content.iter_any():
                size += len(data)
                for event in reader.feed(data):
                    seq, size = seq + 1, 0
                    yield read_frame({"event": event.event, "data": _parse_json(event.data), "seq": seq})
                if size > _MOST_BYTES:
                    raise BusError("partition", f"{self._url} sends a frame without an end", sent=True)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: Json, seconds: float | None
    ) -> "AsyncGenerator[aiohttp.ClientResponse, None]":
        timeout = aiohttp.ClientTimeout(
            seconds, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS if seconds is None else None
        )
        data = None if body is None else encode_json(body)
        headers = {"content-type": "application/json"}
        try:
            async with self._open_session.request(
                method, self._url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                yield response
        except CallsmithError:
            raise
        except aiohttp.ClientConnectorError as error:
            raise _unreachable(self._url, error) from error
        except TimeoutError as error:
            raise BusError("timeout", f"{self._url} gave no answer in time", sent=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BusError("partition", f"{self._url} broke off: {type(error).__name__}", sent=True) from error

    @property
    def _open_session(self) -> "aiohttp.ClientSession":
        if self._session is None or self._session.closed:
            raise UsageError("the bus has not been started: use it as `async with CapabilityBus(HttpTransport(…)) as bus`")
        return self._session


def _callable(listed: list[Json]) -> Iterable[Descriptor]:
    """What may be called. Nodes that offer the same are one here: which of them answers, the server finds out."""
    descriptors: dict[bytes, Descriptor] = {}
    for item in listed:
        try:
            if isinstance(item, dict) and cast(dict[str, Json], item).get("callable"):
                descriptor = read_descriptor(item)
                descriptors[canonical(write_descriptor(descriptor))] = descriptor
        except BusError as error:
            _log.warning("a capability is left out: %s", error)
    return descriptors.values()


async def _read_json(response: "aiohttp.ClientResponse") -> dict[str, Json]:
    """The object that a response consists of; a BusError if it is none."""
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > _MOST_BYTES:
            raise BusError("partition", f"{response.url.host} answers with more than {_MOST_BYTES} bytes", sent=True)
    body = _parse_json(data.decode("utf-8", "replace"))
    if isinstance(body, dict):
        return cast(dict[str, Json], body)
    raise BusError("partition", f"{response.url.host} answers {response.status}, with something that is no JSON", sent=True)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unreachable(url: str, error: BaseException) -> BusError:
    return BusError("partition", f"{url} cannot be reached: {type(error).__name__}", sent=False)


class _SocketCall:
    """A call on a WebSocket that was opened for it. `until` is the time of the event loop by which it has to end."""

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
                async with asyncio.timeout_at(self._until):
                    frame = await self._frames.get()
                if isinstance(frame, BusError):
                    raise frame
                yield frame
                if frame.is_end:
                    return
        except TimeoutError:
            raise BusError("timeout", "there was no complete answer in time", sent=True) from None
        finally:
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:  # whoever reads may be cancelled once more meanwhile
                await self._socket.close()

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
        """Send what the caller has for the handler, and that there is no more. A failure at that ends the call, or the
        handler would wait in vain. That the connection has broken off, the reader finds out as well."""
        try:
            while (message := await self._receive()) is not None:
                await self._send(dict(message))
            await self._send({"type": "end"})
        except Exception as error:  # other people's code: whatever it raises is an error of the wire
            if not isinstance(error, CallsmithError):
                _log.error("what a call was to be given could not be had", exc_info=error)
            if (failure := as_bus_error(error)).code != "partition":
                await self._frames.put(failure)

    async def _send(self, message: dict[str, Json]) -> None:
        try:
            await self._socket.send_str(encode_json(message).decode())
        except (ConnectionError, RuntimeError) as error:
            raise BusError("partition", f"the connection broke off: {type(error).__name__}", sent=True) from error
