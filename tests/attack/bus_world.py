"""A node with a capability, its operator, its callers and their enemies; and tokens and envelopes as nobody should make them."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall, nothing_received
from callsmith.bus.trust.authorize import Authorizer, ReplayWindow
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.revocations import MemoryRevocations
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import Authority
from callsmith.wire.capability.envelopes import read_envelope, signed_bytes
from callsmith.wire.capability.errors import BusError

NOW = 1_790_000_000
COMMUNITY = "village"


def identity(name: str) -> Identity:
    """The same key in every run."""
    return Identity(Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest()))


OPERATOR, NODE, ALICE, MODEL, FRIEND = map(identity, ("operator", "node", "alice", "model", "friend"))
STRANGER, MALLORY, OTHER_NODE = map(identity, ("stranger", "mallory", "other node"))
NODES = {ALICE.node_id: "member", MODEL.node_id: "member", FRIEND.node_id: "anchor"}

QUERY = Descriptor("rag.query", (1, 2), {"type": "object"}, trust_required="member", max_concurrent=1000)
BODY: dict[str, Any] = {"params": {"corpus": "village"}, "input": {"query": "hall"}}


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def written(value: Any) -> bytes:
    """The bytes of a part of a token: as they are, or the JSON of a value."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


HEADER = {"alg": "EdDSA", "typ": "hntoken", "v": 1}


def jws(payload: Any, signer: Identity = OPERATOR, header: Any = HEADER, sign: Callable[[bytes], bytes] | None = None) -> str:
    """A token of any header and payload, signed by anybody, or by any function."""
    signing = f"{encode(written(header))}.{encode(written(payload))}"
    signature = (sign or signer.private_key.sign)(signing.encode())
    return f"hntoken://v1/{signing}.{encode(signature)}"


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a token that is good, but for the changes; a value of `...` leaves a claim out."""
    good = {"iss": OPERATOR.node_id, "sub": ALICE.node_id, "aud": NODE.node_id, "iat": NOW, "nbf": NOW, "exp": NOW + 600}
    good |= {"jti": "01J00000000000000000000000", "scope": {"capabilities": ["rag.query@1.0"]}}
    return {name: value for name, value in (good | changes).items() if value is not ...}


def token(signer: Identity = OPERATOR, header: Any = HEADER, **changes: Any) -> str:
    return jws(claims(**changes), signer, header)


SCOPE = {
    "capabilities": ["rag.query@1.1", "rag.list_corpora@1.0"],
    "params_constraints": {"corpus": ["village", "city"]},
    "rate_limit_per_minute": 10,
    "max_calls_total": 100,
}


def passed_on(signer: Identity = MODEL, parent: Mapping[str, Any] | str = "", **changes: Any) -> str:
    """Alice's token, addressed to the model's node, and what that one has made of it to call this node."""
    if not isinstance(parent, str) or not parent:
        parent = token(**{"aud": MODEL.node_id, "scope": SCOPE, "jti": "root", **(parent or {})})
    own = {"iss": MODEL.node_id, "sub": MODEL.node_id, "scope": SCOPE, "jti": "child", "parent": parent}
    return jws(claims(**(own | changes)), signer)


_ids = iter(range(10**9))


def envelope(sender: Identity | str = ALICE, **changes: Any) -> dict[str, Any]:
    """An envelope that is good, but for the changes; a value of `...` leaves a field out."""
    good: dict[str, Any] = {"capability": "rag.query", "version": "1.0", "request_id": f"r{next(_ids)}", "body": BODY}
    good |= {"from": sender if isinstance(sender, str) else sender.node_id, "timestamp": float(NOW), "to": NODE.node_id}
    return {name: value for name, value in (good | changes).items() if value is not ...}


class Clock:
    """The time, as the test sets it."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """This node: its bus with one capability, and the checks before it. `ran` are the bodies that its handler was given."""

    bearer: bool = False
    issuers: dict[str, Any] = field(default_factory=lambda: {OPERATOR.node_id: "member"})
    nodes: dict[str, Any] = field(default_factory=lambda: dict(NODES))
    community: str = COMMUNITY
    replays_most: int = 1_000

    def __post_init__(self) -> None:
        self.clock, self.revocations = Clock(), MemoryRevocations()
        self.verifier = TokenVerifier(
            NODE.node_id, self.community, self.issuers, self.revocations, bearer=self.bearer, clock=self.clock
        )
        self.replays = ReplayWindow(self.replays_most, clock=self.clock, since=0)
        self.authorizer = Authorizer(NODE.node_id, self.community, self.nodes, self.verifier, replays=self.replays)
        self.bus = CapabilityBus(check_authority=self.authorizer.authorize)
        self.ran: list[Any] = []
        self.authorities: list[Authority] = []
        self.bus.register(QUERY, self._answer)

    async def _answer(self, call: CapabilityCall) -> dict[str, Any]:
        self.ran.append(dict(call.body))
        self.authorities.append(call.authority)
        return {"output": {}, "meta": {}}

    async def receive(self, sent: Any, signature: str = "", signed: bytes | None = None) -> str:
        """What becomes of an envelope: the code of the error, or "" if the capability has answered."""
        try:
            read = read_envelope(sent)
            authority = self.authorizer.authenticate(read, signature, signed_bytes(sent) if signed is None else signed)
        except BusError as error:
            return error.code
        frames = [frame async for burst in self.bus.receive(read, authority, nothing_received) for frame in burst]
        return "" if frames[-1].event == "done" else str(frames[-1].data["error"])

    async def send(self, text: str, sender: Identity = ALICE, **changes: Any) -> str:
        """What becomes of a call that the sender has signed, with a token."""
        sent = envelope(sender, token=text, **changes)
        return await self.receive(sent, sender.sign(signed_bytes(sent)))
