"""A call of the bus over WebSocket: one call to a connection, its frames as messages, and what its caller sends meanwhile.

    → {"type": "call", "envelope": {"capability": "llm.chat", "version": "2.0", "body": {…}}}
    ← {"event": "tool_call", "data": {"id": "tc_1", "name": "clock", "arguments": {}}, "seq": 1}
    → {"type": "tool_result", "tool_call_id": "tc_1", "body": {"content": "12:00"}}
    ← {"event": "token", "data": {"text": "Noon"}, "seq": 2} … {"event": "done", "data": {…}, "seq": 9}

Exactly one frame, "done" or "error", is the last. Messages may be text or binary, and are answered in kind. A client that
acknowledges nothing, does not read, or is waited for too long is given up; one that disconnects ends the call at once. Pings are
the HTTP server's.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from callsmith.bus.flow import FlowControl
from callsmith.bus.port import Answer, Receive, nothing_received
from callsmith.core.capability.authority import Authority
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, LimitReached
from callsmith.core.values import Json
from callsmith.server.http.errors import refuse
from callsmith.server.http.request_context import caller, client, current_request, request_id
from callsmith.server.http.shutdown import DRAINING
from callsmith.server.http.sockets import SocketWriter
from callsmith.server.http.streams import cancel_all, until_first_ends
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.service import Service
from callsmith.wire.capability.envelopes import satisfies
from callsmith.wire.capability.errors import BusError, as_bus_error, write_error
from callsmith.wire.capability.frames import Frame, encode_frame
from callsmith.wire.capability.requests import (
    REQUEST_ID,
    SUBPROTOCOL,
    Ack,
    Cancel,
    End,
    HandlerReply,
    SentCall,
    read_call,
    read_message,
)

_log = logging.getLogger(__name__)

_MOST_REPLIES = 64  # that the handler has not taken
_RETRY = {"retry-after": "1"}


def authority_of(part: BusPart, service: Service, sent: SentCall) -> Authority:
    """On whose authority a call runs: a signature and a token can narrow what the key allows, and nothing widens it."""
    own, envelope = service.tools.authority_of(caller()), sent.envelope
    if part.authenticator is not None:
        authority = part.authenticator.authenticate(envelope, sent.signature, sent.signed, unsigned=own)
    elif sent.signature:
        raise BusError("invalid_signature", "this server knows no nodes: call it without a signature, with an API key")
    elif envelope.token:
        raise BusError("token_invalid", "this server knows no issuer of tokens: call it without one, with an API key")
    else:
        authority = replace(own, depth=envelope.depth, trace_id=envelope.trace_id).narrow(envelope.trust, envelope.capabilities)
    return replace(authority, trace_id=authority.trace_id or request_id()).narrow(own.trust, own.capabilities)


@dataclass(frozen=True, slots=True)
class AuthorizedCall:
    """A call that has come in, and the authority it is made with."""

    part: BusPart
    service: Service
    sent: SentCall
    authority: Authority

    @property
    def streams(self) -> bool:
        """Whether the capability answers with frames."""
        envelope = self.sent.envelope
        descriptors = [offer.descriptor for offer in self.part.bus.offers(envelope.capability)]
        return any(known.stream_schema is not None for known in descriptors if satisfies(known.version, envelope.version))

    async def answer(self) -> Answer:
        envelope, options = self.sent.envelope, self._options()
        async with self.service.answers.admission():
            return await self.part.bus.call(envelope.capability, envelope.version, envelope.body, **options)

    async def frames(self, receive: Receive = nothing_received) -> AsyncGenerator[Frame, None]:
        envelope, bus, options = self.sent.envelope, self.part.bus, self._options()
        async with self.service.answers.admission():
            answering = bus.stream(envelope.capability, envelope.version, envelope.body, receive=receive, **options)
            async with closing(answering) as frames:
                async for frame in frames:
                    yield frame

    def _options(self) -> dict[str, Any]:
        envelope = self.sent.envelope
        seconds = [limit for limit in (envelope.seconds, self.service.settings.request_seconds) if limit is not None]
        return {"session_id": envelope.session_id, "timeout": min(seconds, default=None), "authority": self.authority}


def authorize(part: BusPart, service: Service, sent: SentCall) -> AuthorizedCall:
    """The call, if it may be made at all. Its id becomes that of the request, and its capability is logged."""
    if http := current_request():
        http.id = sent.envelope.request_id or http.id
        http.headers[REQUEST_ID] = http.id
        http.capability = sent.envelope.capability
    return AuthorizedCall(part, service, sent, authority_of(part, service, sent))


class CallConnection:
    """A WebSocket connection, for one call."""

    def __init__(self, socket: WebSocket, part: BusPart, service: Service) -> None:
        self._socket = socket
        self._part = part
        self._service = service
        self._writer = SocketWriter(socket, service.settings.stalled_seconds)
        self._flow = FlowControl()
        self._replies: asyncio.Queue[Mapping[str, Json] | None] = asyncio.Queue(_MOST_REPLIES)
        loop = asyncio.get_running_loop()
        self._call: asyncio.Future[bytes] = loop.create_future()
        self._interruption: asyncio.Future[BusError] = loop.create_future()
        self._is_binary = False
        self._latest = Frame("")

    async def serve(self) -> None:
        """Answer the call, if there is room for it."""
        if refusal := self._refusal():
            await refuse(self._socket.scope, self._socket.receive, self._socket.send, refusal)
            return
        with self._service.sockets.count_open():
            await self._socket.accept(SUBPROTOCOL)
            await until_first_ends(self._receive(), self._answer(), self._leave(), self._writer.wait_until_stalled())

    def _refusal(self) -> HTTPException | None:
        """Why there is no connection; its client can call without one all the same."""
        if SUBPROTOCOL not in self._socket.scope.get("subprotocols", ()):
            headers = {"upgrade": "websocket", "sec-websocket-protocol": SUBPROTOCOL}
            return HTTPException(426, f"expected the WebSocket subprotocol {SUBPROTOCOL}", headers)
        service, settings = self._service, self._service.settings
        if not service.sockets.may_open(settings.websockets):
            return HTTPException(503, f"there are {settings.websockets} connections of this caller already", _RETRY)
        try:
            service.answers.gate.check(settings.queue, client(), service.answers.caller_limits())
        except LimitReached as error:
            return HTTPException(503, str(error), _RETRY)
        return None

    async def _receive(self) -> None:
        """Take what the client sends; returns when it disconnects, or sends nothing at all."""
        try:
            async with asyncio.timeout(self._service.settings.websocket_idle_seconds):
                first = await self._socket.receive()
        except TimeoutError:
            await self._socket.close(1000, "nothing was called")
            return
        if first["type"] == "websocket.disconnect":
            return
        self._is_binary = first.get("bytes") is not None
        self._call.set_result(_content(first))
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            if not self._interruption.done():
                await self._take(_content(message))
            await asyncio.sleep(0)  # messages that have arrived are there at once: many of them should not block the loop

    async def _take(self, content: bytes) -> None:
        """Take a message; one that should not have come ends the call."""
        try:
            match read_message(await self._service.bodies.parse(content)):
                case Ack(upto):
                    self._flow.acknowledge(upto)
                case HandlerReply(message):
                    self._replies.put_nowait(message)
                case End():
                    self._replies.put_nowait(None)
                case Cancel():
                    self._interrupt(BusError("cancelled", "the caller has cancelled the call"))
        except asyncio.QueueFull:
            self._interrupt(BusError("bad_request", f"{_MOST_REPLIES} results were sent that nobody waits for"))
        except (CallsmithError, HTTPException) as error:
            self._interrupt(_bus_error(error))

    def _interrupt(self, error: BusError) -> None:
        if not self._interruption.done():
            self._interruption.set_result(error)

    async def _next_reply(self) -> Mapping[str, Json] | None:
        """The next message for the handler; None: no more comes. A client that lets it wait for too long is given up."""
        seconds = self._service.settings.websocket_idle_seconds
        why = BusError("timeout", f"nothing came from the caller for {seconds:g} s")
        timer = asyncio.get_running_loop().call_later(seconds, self._interrupt, why)
        try:
            reply = await self._replies.get()
        finally:
            timer.cancel()
        if reply is None:
            self._replies.put_nowait(None)  # there is still nothing more
        return reply

    async def _answer(self) -> None:
        """Answer the call, to its last frame; then the connection is closed."""
        answering = asyncio.create_task(self._send_frames(await self._call))
        try:
            await asyncio.wait({answering, self._interruption}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                error = answering.exception()
            else:
                answering.cancel()  # it sends nothing any more; how long it takes to end is not the client's concern
                error = self._interruption.result()
            if isinstance(error, WebSocketDisconnect):
                return
            if error is not None and not self._latest.is_end:
                await self._send(Frame("error", write_error(_bus_error(error)), self._latest.seq + 1))
            await self._socket.close(1000)
        finally:
            await cancel_all(answering)

    async def _send_frames(self, content: bytes) -> None:
        call = await self._read(content)
        async with closing(call.frames(self._next_reply)) as frames:
            async for frame in frames:
                if frame.event != "error":
                    await self._flow.room()
                await self._send(frame)

    async def _read(self, content: bytes) -> AuthorizedCall:
        bodies = self._service.bodies
        message = await bodies.parse(content)
        if not isinstance(message, dict) or cast(dict[str, Json], message).get("type") != "call":
            raise BusError("bad_request", 'the first message is {"type": "call", "envelope": {…}}')
        sent = await bodies.read_with(read_call, self._socket.headers.items(), message)
        return authorize(self._part, self._service, sent)

    async def _send(self, frame: Frame) -> None:
        await self._writer.send(encode_frame(frame), binary=self._is_binary)
        self._latest = frame

    async def _leave(self) -> None:
        """Close a connection without a call when the server shuts down."""
        draining: asyncio.Event = self._socket.scope.get(DRAINING) or asyncio.Event()
        await draining.wait()
        if not self._call.done():
            await self._socket.close(1012)
        else:
            await asyncio.Event().wait()  # the call goes on


def _content(message: Message) -> bytes:
    return message.get("bytes") or (message.get("text") or "").encode("utf-8", "replace")


def _bus_error(error: BaseException) -> BusError:
    """The error as the caller may see it; what nobody foresaw is logged."""
    if isinstance(error, HTTPException):
        return BusError("bad_request", error.detail)
    if isinstance(error, BusError):
        return error
    if not isinstance(error, CallsmithError):
        _log.error("a call failed", exc_info=error)
    return as_bus_error(error)
