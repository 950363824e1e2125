"""CapabilityBus: calls capabilities of this node and, over a transport, of others.

    bus = CapabilityBus()
    bus.register(Descriptor("rag.query", …), answer_query)
    answer = await bus.call("rag.query", (1, 0), {"params": {"corpus": "village"}, "input": {"query": "hall"}})

A call is routed, checked (trust, token, schema, capacity), run under its deadline, and what comes back is checked too. Exactly
one frame, "done" or "error", ends every stream.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import urandom
from types import TracebackType

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.local import LocalProvider, current_authority
from callsmith.bus.port import (
    Answer,
    AuthorityCheck,
    CapabilityCall,
    Disconnected,
    Handler,
    Offer,
    ParamsTest,
    Receive,
    Transport,
    nothing_received,
)
from callsmith.bus.remote import RemoteProvider
from callsmith.bus.router import Health, Router
from callsmith.bus.trace import BusTrace, Observer
from callsmith.core.capability.authority import Authority, is_trusted
from callsmith.core.capability.execution import Audit
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Envelope, Version, check_name
from callsmith.wire.capability.errors import BusError, as_bus_error
from callsmith.wire.capability.frames import Frame, error_frame

MAX_DEPTH = 6  # calls inside calls
_ATTEMPTS = 3  # at different providers
# Errors that say something about the provider; the others are the caller's doing, or pass by themselves.
_PROVIDER_FAILURES = frozenset({"timeout", "partition", "internal_error"})
_NOT_RUN = frozenset({"capacity_exceeded", "rate_limited", "not_found"})  # a provider that says so has as a rule run nothing


class CapabilityBus:
    """A bus: of this process alone or, with a transport, one with other nodes.

    `check_authority` is asked about every call here that is made with a token. `observers` see every call, and `audit`
    of every capability of this node that runs.
    """

    def __init__(
        self,
        transport: Transport | None = None,
        *,
        check_authority: AuthorityCheck | None = None,
        observers: Iterable[Observer] = (),
        audit: Audit | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        self._transport = transport
        self._check_authority = check_authority
        self._max_depth = max_depth
        self._providers: dict[tuple[str, Version], LocalProvider] = {}
        self._tests: dict[str, ParamsTest] = {}
        self._local: dict[str, list[Offer]] = {}
        self._router = Router()
        self.audit = audit
        self.trace = BusTrace(tuple(observers))

    async def __aenter__(self) -> "CapabilityBus":
        await self.start()
        return self

    async def start(self) -> None:
        """Connect with the other nodes; a BusError partition if that cannot be done now, and may be tried again."""
        if self._transport is not None:
            await self._transport.start(self)
            self._announce()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the other nodes; what runs for them has a moment to end. Once more does no harm."""
        if self._transport is not None:
            await self._transport.close()

    @property
    def node(self) -> str:
        """The id of this node."""
        return self._transport.node if self._transport else "local"

    def register(self, descriptor: Descriptor, handler: Handler, fits: ParamsTest | None = None) -> Callable[[], None]:
        """Offer a capability. Calling what is returned withdraws it. `fits` says whether the params of a call can be served."""
        key = descriptor.name, descriptor.version
        if key in self._providers:
            raise UsageError(f"{descriptor.reference} is offered by this node already")
        provider = self._providers[key] = LocalProvider(descriptor, handler, lambda: self.audit)
        if fits is not None:
            self._tests[descriptor.reference] = fits

        def withdraw() -> None:
            if self._providers.get(key) is provider:  # else it was withdrawn before, and what is offered now is somebody else's
                del self._providers[key]
                self._tests.pop(descriptor.reference, None)
                self._announce()

        try:
            self._announce()
        except CallsmithError:  # it is more than a node may offer
            withdraw()
            raise
        return withdraw

    def _announce(self) -> None:
        self._local = {}
        for provider in self._providers.values():
            offer = Offer(self.node, provider.descriptor, is_local=True)
            self._local.setdefault(provider.descriptor.name, []).append(offer)
        if self._transport is not None:
            self._transport.announce([provider.descriptor for provider in self._providers.values()])

    def offers(self, capability: str = "") -> Sequence[Offer]:
        """What is offered, here and elsewhere: of one capability, or of all."""
        local = self._local.get(capability, ()) if capability else [offer for offers in self._local.values() for offer in offers]
        if self._transport is None:
            return local
        return [*local, *self._transport.offers(capability)]

    async def call(
        self,
        capability: str,
        version: Version,
        body: Mapping[str, Json],
        *,
        session_id: str = "",
        timeout: float | None = None,
        authority: Authority | None = None,
    ) -> Answer:
        """The answer; a BusError says why there is none, within `timeout` seconds.

        Without an `authority` the call is made with that of the call that is being handled here, or as the node's own.
        """
        call = _build_call(capability, version, body, session_id, timeout, authority)
        failure: BusError | None = None
        for attempt in self._attempts(call, self._candidates(call)):
            try:
                with attempt as provider:
                    return await provider.answer(self._admit(call, attempt.offer))
            except BusError as error:
                if not _may_go_elsewhere(error, attempt.offer.descriptor, call):
                    raise
                failure = error
        raise failure or _unreachable(capability)

    def stream(
        self,
        capability: str,
        version: Version,
        body: Mapping[str, Json],
        *,
        session_id: str = "",
        timeout: float | None = None,
        authority: Authority | None = None,
        receive: Receive = nothing_received,
    ) -> AsyncGenerator[Frame, None]:
        """The frames of an answer, of which exactly the last is "done" or "error". Closing the iterator cancels the call."""
        make = partial(_build_call, capability, version, body, session_id, timeout, authority, receive)
        return _one_by_one(_number_frames(self._frames(make, self._candidates)))

    async def answer(self, envelope: Envelope, authority: Authority) -> Frame:
        """The answer to a call that has come in from elsewhere with this authority, in one piece: "done", or "error"."""
        call = _receive_call(envelope, authority)
        try:
            offer = self._local_candidates(call)[0]
            provider = self._providers[call.capability, offer.descriptor.version]
            with _ProviderAttempt(self, call, offer):
                return Frame("done", await provider.answer(self._admit(call, offer), inline=True), 1)
        except BusError as error:
            return error_frame(error, 1)

    def receive(self, envelope: Envelope, authority: Authority, receive: Receive) -> AsyncGenerator[Sequence[Frame], None]:
        """The same, in bursts of frames."""
        make = partial(_receive_call, envelope, authority, receive)
        return _number_frames(self._frames(make, lambda call: self._local_candidates(call)[:1]))

    def _local_candidates(self, call: CapabilityCall) -> list[Offer]:
        offers = self._local.get(call.capability, ())
        return self._router.candidates(offers, call.capability, call.version, call.params, self._tests)

    async def _frames(
        self, make: Callable[[], CapabilityCall], candidates: Callable[[CapabilityCall], Sequence[Offer]]
    ) -> AsyncGenerator[Sequence[Frame], None]:
        """The frames of the first provider that begins to answer."""
        has_begun, call, failure = False, make(), None
        for attempt in self._attempts(call, candidates(call)):
            try:
                with attempt as provider:
                    async with closing(provider.frames(self._admit(call, attempt.offer))) as bursts:
                        async for burst in bursts:
                            has_begun = True
                            yield burst
                    return
            except BusError as error:
                if has_begun or not _may_go_elsewhere(error, attempt.offer.descriptor, call):
                    raise
                failure = error
        raise failure or _unreachable(call.capability)

    def _attempts(self, call: CapabilityCall, offers: Sequence[Offer]) -> "Iterable[_ProviderAttempt]":
        """Tries at different nodes, of which the first may be whichever takes the call of those that share them."""
        return (_ProviderAttempt(self, call, offers[0]),) if len(offers) == 1 else self._several_attempts(call, offers)

    def _several_attempts(self, call: CapabilityCall, offers: Sequence[Offer]) -> "Iterator[_ProviderAttempt]":
        tried = set[str]()
        for number in range(_ATTEMPTS):
            offer = next((offer for offer in offers if offer.node not in tried), None)
            if offer is None:
                return
            attempt = _ProviderAttempt(self, call, offer, may_share=number == 0)
            yield attempt
            tried.add(attempt.node)

    def _candidates(self, call: CapabilityCall) -> list[Offer]:
        """The providers to try, in their order."""
        name = call.capability
        offers = self._local.get(name, ())
        if self._transport is not None:
            others = self._transport.offers(name)
            offers = [*offers, *others] if offers else others
        candidates = self._router.candidates(offers, name, call.version, call.params, self._tests)
        if call.session_id and len(candidates) > 1 and (node := self._router.sticky(call.session_id, name)):
            candidates.sort(key=lambda offer: offer.node != node)
        return candidates

    def _admit(self, call: CapabilityCall, offer: Offer) -> CapabilityCall:
        """The call as the provider gets it. Other nodes check tokens themselves, and rely on this one for its callers."""
        authority = call.authority
        if authority.depth >= (self._max_depth if authority.max_depth is None else authority.max_depth):
            raise BusError("bad_request", f"calls are nested {authority.depth} deep, which is the limit")
        if not authority.may_call(call.capability):
            raise BusError("unauthorized", f"this caller may not call {call.capability}")
        if not is_trusted(authority.trust, offer.descriptor.trust_required):
            needed = offer.descriptor.trust_required
            raise BusError("unauthorized", f"{call.capability} is for callers of the trust {needed!r}, not {authority.trust!r}")
        if not offer.is_local:
            return call
        if authority.token:
            if self._check_authority is None:
                raise BusError("token_invalid", "this node knows no issuer of tokens")
            self._check_authority(authority, call.capability, offer.descriptor.version, call.params)
        return CapabilityCall(  # `replace` takes longer than all the rest of this
            call.capability,
            call.version,
            call.body,
            authority.deeper(call.request_id),
            call.request_id,
            call.session_id,
            call.deadline,
            call.stream,
            call.receive,
        )

    def begin(self, call: CapabilityCall, offer: Offer, *, may_share: bool) -> tuple[Health, LocalProvider | RemoteProvider]:
        """Who answers for an offer, which counts as busy with the call until `record_end`."""
        if self._transport is None or offer.is_local:
            provider = self._providers.get((offer.descriptor.name, offer.descriptor.version))
            if provider is None:  # while another one was tried
                raise BusError("not_found", f"{offer.descriptor.reference} was withdrawn meanwhile")
            return self._router.begin(offer), provider
        health = self._router.begin(offer)
        may_share = may_share and not call.session_id and not call.authority.token  # else one node is meant, and no other
        share = may_share and self._router.may_share(offer, self.offers(call.capability))
        return health, RemoteProvider(self._transport, offer, share=share)

    def record_end(
        self, call: CapabilityCall, offer: Offer, health: Health, node: str, error: BusError | None, seconds: float
    ) -> None:
        """Take down how a call has ended."""
        code, succeeded = "ok", True
        if error is not None:
            code = error.code
            # That nobody was there to get the call, or that this node is cut off, says nothing about the provider.
            is_unsent = (code == "partition" and not error.sent) or isinstance(error, Disconnected)
            succeeded = False if code in _PROVIDER_FAILURES and not is_unsent else None
        self._router.record_end(health, offer, node, succeeded, seconds)
        if call.session_id and error is None:
            self._router.stick(call.session_id, call.capability, node)
        self.trace.add(call, node, code, seconds, is_local=offer.is_local)


class _ProviderAttempt:
    """One try to have a call answered by one provider, from its beginning to its end."""

    __slots__ = ("_began", "_bus", "_call", "_health", "_may_share", "_provider", "node", "offer")

    def __init__(self, bus: CapabilityBus, call: CapabilityCall, offer: Offer, *, may_share: bool = False) -> None:
        self._bus, self._call, self.offer, self._may_share = bus, call, offer, may_share
        self.node = offer.node  # who is asked; afterwards, who has answered: empty if nobody knows

    def __enter__(self) -> LocalProvider | RemoteProvider:
        self._began = asyncio.get_running_loop().time()
        self._health, self._provider = self._bus.begin(self._call, self.offer, may_share=self._may_share)
        return self._provider

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failure = None
        if error is not None:
            is_cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
            failure = BusError("cancelled") if is_cancelled else as_bus_error(error)
        self.node = self._provider.node if isinstance(self._provider, RemoteProvider) else self.offer.node
        seconds = asyncio.get_running_loop().time() - self._began
        self._bus.record_end(self._call, self.offer, self._health, self.node, failure, seconds)


def _build_call(
    capability: str,
    version: Version,
    body: Mapping[str, Json],
    session_id: str,
    timeout: float | None,
    authority: Authority | None,
    receive: Receive | None = None,
) -> CapabilityCall:
    """A call that begins here; its answer is a stream if there is something to receive meanwhile."""
    authority = current_authority() if authority is None else authority
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    capability, receive, stream = check_name(capability), receive or nothing_received, receive is not None
    return CapabilityCall(capability, version, body, authority, urandom(16).hex(), session_id, deadline, stream, receive)


def _receive_call(envelope: Envelope, authority: Authority, receive: Receive = nothing_received) -> CapabilityCall:
    """A call that has come in from elsewhere."""
    return CapabilityCall(
        envelope.capability,
        envelope.version,
        envelope.body,
        authority,
        envelope.request_id or urandom(16).hex(),
        envelope.session_id,
        None if envelope.seconds is None else asyncio.get_running_loop().time() + envelope.seconds,
        envelope.stream,
        receive,
    )


def _unreachable(capability: str) -> BusError:
    return BusError("partition", f"no provider of {capability} could be reached")


def _may_go_elsewhere(error: BusError, descriptor: Descriptor, call: CapabilityCall) -> bool:
    """Whether another provider may be asked: nothing has run, or running it twice does no harm; and there is time left."""
    if call.deadline is not None and asyncio.get_running_loop().time() >= call.deadline:
        return False
    if not error.has_run and (error.code in _NOT_RUN or not error.sent):
        return error.code in _NOT_RUN | {"partition"}
    return descriptor.idempotent and error.code in _PROVIDER_FAILURES


async def _number_frames(bursts: AsyncGenerator[Sequence[Frame], None]) -> AsyncGenerator[Sequence[Frame], None]:
    """The frames with their numbers, ended by exactly one "done" or "error"."""
    seq, last = 0, None
    try:
        async with closing(bursts) as items:
            async for burst in items:
                if burst[-1].is_end:  # it comes when the call has ended: whoever reads no further would seem to have cancelled it
                    *burst, last = burst
                if burst:
                    yield [Frame(frame.event, frame.data, seq + number) for number, frame in enumerate(burst, 1)]
                    seq += len(burst)
        if last is None:
            raise BusError("internal_error", "the answer ended without its last frame")
    except BusError as error:
        last = error_frame(error)
    yield (Frame(last.event, last.data, seq + 1),)


async def _one_by_one(bursts: AsyncGenerator[Sequence[Frame], None]) -> AsyncGenerator[Frame, None]:
    async with closing(bursts) as items:
        async for burst in items:
            for frame in burst:
                yield frame
