"""Callers of the bus: on whose authority a call over HTTP or WebSocket runs, and how it is made."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from callsmith.bus.port import Answer, Receive, nothing_received
from callsmith.core.capability.authority import Authority
from callsmith.core.closing import closing
from callsmith.server.http.request_context import caller, current_request
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.service import Service
from callsmith.wire.capability.envelopes import satisfies
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from callsmith.wire.capability.requests import REQUEST_ID, SentCall


def authority_of(part: BusPart, service: Service, sent: SentCall) -> Authority:
    """On whose authority a call runs: a signature and a token can narrow what the key allows, and nothing widens it."""
    own, envelope = service.tools.authority_of(caller()), sent.envelope
    if part.authenticator is not None:
        found = part.authenticator.authenticate(envelope, sent.signature, sent.signed, unsigned=own)
    elif sent.signature:
        raise BusError("invalid_signature", "this server knows no nodes: call it without a signature, with an API key")
    elif envelope.token:
        raise BusError("token_invalid", "this server knows no issuer of tokens: call it without one, with an API key")
    else:
        found = replace(own, depth=envelope.depth, trace_id=envelope.trace_id).narrowed(envelope.trust, envelope.capabilities)
    http = current_request()
    trace_id = found.trace_id or (http.id if http else "")
    return replace(found, trace_id=trace_id).narrowed(own.trust, own.capabilities)


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
        offers = [one.descriptor for one in self.part.bus.offers(envelope.capability)]
        return any(one.stream_schema is not None for one in offers if satisfies(one.version, envelope.version))

    async def answer(self) -> Answer:
        """The answer, in one piece."""
        envelope = self.sent.envelope
        async with self.service.answers.admission():
            return await self.part.bus.call(
                envelope.capability,
                envelope.version,
                envelope.body,
                session_id=envelope.session_id,
                timeout=self._seconds,
                authority=self.authority,
            )

    async def frames(self, receive: Receive = nothing_received) -> AsyncGenerator[Frame, None]:
        """The answer, in frames."""
        envelope = self.sent.envelope
        async with self.service.answers.admission():
            answering = self.part.bus.stream(
                envelope.capability,
                envelope.version,
                envelope.body,
                session_id=envelope.session_id,
                timeout=self._seconds,
                authority=self.authority,
                receive=receive,
            )
            async with closing(answering) as frames:
                async for frame in frames:
                    yield frame

    @property
    def _seconds(self) -> float | None:
        given, most = self.sent.envelope.seconds, self.service.settings.request_seconds
        return most if given is None else given if most is None else min(given, most)


def authorize(part: BusPart, service: Service, sent: SentCall) -> AuthorizedCall:
    """The call, if it may be made at all. Its id becomes that of the request, and its capability is logged."""
    if http := current_request():
        http.id = sent.envelope.request_id or http.id
        http.headers[REQUEST_ID] = http.id
        http.capability = sent.envelope.capability
    return AuthorizedCall(part, service, sent, authority_of(part, service, sent))
