"""Authorization of calls between nodes: who has sent one, on whose authority it runs, and what an outgoing one carries."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from threading import Lock
from typing import cast

from callsmith.bus.trust.identity import Identity, is_node_id, verify_signature
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import MOST_SECONDS, attenuate, read_token
from callsmith.bus.trust.verification import TokenVerifier, VerifiedToken, trust_table
from callsmith.core.capability.authority import Authority, Trust, least_trust
from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.chat import list_delegated
from callsmith.wire.capability.envelopes import Envelope, Version, parse_reference, write_reference
from callsmith.wire.capability.errors import BusError

ANONYMOUS = Authority(trust="unknown")
_SPARE_SECONDS = 30.0  # a token outlives the deadline of its call by this much: clocks differ
_DELEGATED_CALLS = 64  # calls with a token that lets its receiver call others in turn
_SECONDS = 60.0  # by which the time of an envelope may differ from ours


class ReplayWindow:
    """The ids of requests that were accepted lately. Safe for threads.

    There is room for `most` ids for each known sender, for all who call with tokens made from one, and for all strangers: keys
    are free, so strangers without end must not take the room of others. Without room a request is refused: forgetting an id
    would let it in again. What was signed before `since`, by default before there was this window, may have been accepted by
    the process that was here before, and is refused.
    """

    def __init__(self, most: int = 250_000, *, clock: Callable[[], float] = time.time, since: float | None = None) -> None:
        self._most = most
        self._clock = clock
        self._since = clock() if since is None else since
        self._ids: dict[str, dict[bytes, float]] = {}  # digests of ids, with the time from which they are stale anyway
        self._next_sweep = 64
        self._lock = Lock()

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def accept(self, sender: str, request_id: str, timestamp: float, *, room: str) -> None:
        """Remember a request whose signature is verified; a BusError invalid_signature if it is stale or was accepted before.

        `room` says whose room it takes: "" is that of all strangers.
        """
        now = self._clock()
        if not request_id:
            raise BusError("invalid_signature", "a signed envelope has a request_id, and none twice")
        if not abs(now - timestamp) <= _SECONDS:
            raise BusError("invalid_signature", f"the envelope is of another time: clocks may differ by {_SECONDS:g} seconds")
        if timestamp < self._since:
            raise BusError("invalid_signature", "the envelope was signed before this node was started: sign it again")
        digest = blake2b(f"{sender}\n{request_id}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            ids = self._ids.get(room)
            if ids is None:
                if len(self._ids) >= self._next_sweep:  # forget those of whom all is stale; each time there are twice as many
                    self._ids = {room: ids for room, ids in self._ids.items() if max(ids.values(), default=0.0) >= now}
                    self._next_sweep = max(64, 2 * len(self._ids))
                ids = self._ids[room] = {}
            while ids and ids[oldest := next(iter(ids))] < now:
                del ids[oldest]
            if digest in ids:
                raise BusError("invalid_signature", "the envelope is replayed: its request_id was used before")
            if len(ids) >= self._most:
                raise BusError("rate_limited", "too many signed calls in a short time", seconds=1)
            ids[digest] = timestamp + _SECONDS


class Authorizer:
    """Finds out on whose authority a call from elsewhere runs, and checks what that authority allows.

    `node` and `community` are this node's. `nodes` says how far each known node is trusted; any other one that signs is unknown,
    unless it has a token. What an envelope says of its lineage can lower the trust of a call, and never raises it.
    """

    def __init__(
        self,
        node: str,
        community: str = "",
        nodes: Mapping[str, Trust] | None = None,
        verifier: TokenVerifier | None = None,
        *,
        replays: ReplayWindow | None = None,
        max_depth: int = 6,
    ) -> None:
        self._node, self._community = node, community
        self._nodes = trust_table(nodes, "nodes")
        for known in self._nodes:
            if not is_node_id(known):
                raise UsageError(f"{known!r} is no id of a node, as callsmith bus id prints it", field="nodes")
        self._verifier = TokenVerifier(node, community) if verifier is None else verifier
        self._replays = ReplayWindow() if replays is None else replays
        self._max_depth = max_depth

    def authenticate(
        self, envelope: Envelope, signature: str = "", signed: bytes = b"", *, unsigned: Authority = ANONYMOUS
    ) -> Authority:
        """The authority of a call. A BusError says why it has none.

        `signed` are the bytes that the signature is for: the raw payload, or `signed_bytes` of the envelope as it came.
        `unsigned` is the authority of whoever sends no signature: that of an API key, or nobody's. The capabilities it may call
        bound those who sign as well.
        """
        if envelope.depth > self._max_depth:
            raise BusError("bad_request", f"calls are nested {envelope.depth} deep; the limit is {self._max_depth}")
        if envelope.to not in ("", self._node):
            raise BusError("unauthorized", "the call is meant for another node")
        presenter = envelope.sender if signature else ""
        if signature:
            verify_signature(presenter, signed, signature)
        verified = self._verifier.verify(envelope.token, presenter) if envelope.token else None
        if signature:
            # Whose room for ids of requests it takes: the sender's, that of the first token, or that of all strangers.
            room = "" if verified is None else f"{verified.root.iss} {verified.root.jti}"
            room = presenter if presenter in self._nodes or presenter == self._node else room
            self._replays.accept(presenter, envelope.request_id, envelope.timestamp, room=room)
        if verified is not None:
            authority = self._with_token(envelope, verified, presenter)
        elif presenter:
            authority = self._without_token(envelope)
        else:
            authority = unsigned
        token, trace_id = envelope.token, envelope.trace_id or envelope.request_id
        verified_authority = Authority(
            authority.subject, authority.via, authority.trust, token, trace_id, envelope.depth, unsigned.capabilities
        )
        return verified_authority.narrow(envelope.trust, envelope.capabilities)

    def authorize(self, authority: Authority, capability: str, version: Version, params: Mapping[str, Json]) -> None:
        """Count a call that is made with this authority; a BusError if its token does not allow it.

        Every call is checked once, where it runs: those from elsewhere, and those that their handlers make in turn. The
        node's own calls need no token here; what the tokens allow that it has from others is checked by those.
        """
        if authority.token and authority.trust != "self":
            self._verifier.check(authority.token, capability, version, params)

    def _without_token(self, envelope: Envelope) -> Authority:
        if self._community and envelope.community not in ("", self._community):
            raise BusError("unauthorized", "calls from another community need a token")
        sender, subject = envelope.sender, envelope.subject or envelope.sender
        via = (*envelope.via, sender) if envelope.via or subject != sender else ()
        if subject == self._node and not via:
            return Authority(subject)
        return Authority(subject, via, self._least_trust("anchor", (subject, *via), stranger="unknown"))

    def _with_token(self, envelope: Envelope, verified: VerifiedToken, presenter: str) -> Authority:
        proven = (verified.subject, *verified.via, *filter(None, (presenter,)))
        trust = self._least_trust(verified.trust, proven, stranger=verified.trust)
        if presenter:
            trust = self._least_trust(trust, {envelope.subject, *envelope.via}.difference(proven), stranger="unknown")
        return Authority(verified.subject, verified.via, trust, envelope.token)

    def _least_trust(self, trust: Trust, nodes: Iterable[str], *, stranger: Trust) -> Trust:
        """The least trust among these nodes. What is no node is the name of a user, for whom the sender answers."""
        for node in nodes:
            if node != self._node and is_node_id(node):
                trust = least_trust(trust, self._nodes.get(node, stranger))
        return trust


def outgoing_token(
    identity: Identity | None, authority: Authority, node: str, envelope: Envelope, version: Version, seconds: float
) -> str:
    """The token that an envelope carries to a node, if its authority has one: with what its tools name to be called in turn."""
    if not authority.token:
        return ""
    if identity is None:
        raise BusError("unauthorized", "a node needs an identity to pass the token of a caller on")
    params = envelope.body.get("params")
    return per_call_token(
        identity,
        authority,
        node,
        envelope.capability,
        version,
        cast(dict[str, Json], params) if isinstance(params, dict) else {},
        seconds,
        delegate=list_delegated(envelope.capability, envelope.body),
    )


def per_call_token(
    identity: Identity,
    authority: Authority,
    node: str,
    capability: str,
    version: Version,
    params: Mapping[str, Json],
    seconds: float,
    *,
    delegate: Sequence[str] = (),
    now: float | None = None,
) -> str:
    """The token that a call to another node carries: made from the caller's, for this node, this call and its deadline alone.

    "" for an authority without a token. `delegate`: further capabilities that the receiver may call in turn ("rag.query@1.0"). A
    BusError if the caller's token allows no such call, or was not given to this node to be passed on.
    """
    if not authority.token:
        return ""
    now = time.time() if now is None else now
    parent = read_token(authority.token)
    if identity.node_id not in (parent.sub, parent.aud):
        raise BusError(
            "unauthorized", "the caller's token is not addressed to this node, so the call cannot be passed on to another"
        )
    if not parent.scope.covers(capability, version, params):
        raise BusError("token_scope_insufficient", f"the caller's token does not cover {write_reference(capability, version)}")
    for reference in delegate:
        if not parent.scope.grants(*parse_reference(reference)):
            raise BusError(
                "token_scope_insufficient", f"the caller's token does not cover {reference}, which is to be called in turn"
            )
    if parent.exp <= now:
        raise BusError("token_expired", "the caller's token has expired")
    constraints = parent.scope.params_constraints
    scope = Scope(
        tuple(dict.fromkeys((write_reference(capability, version), *delegate))),
        constraints if delegate else {name: (params[name],) for name in constraints},
        parent.scope.rate_limit_per_minute,
        min(_DELEGATED_CALLS if delegate else 1, parent.scope.max_calls_total or _DELEGATED_CALLS),
    )
    lifetime = min(max(seconds, 0) + _SPARE_SECONDS, MOST_SECONDS)
    return attenuate(identity, parent, subject=identity.node_id, audience=node, scope=scope, seconds=lifetime, now=now).text
