"""Capabilities that issue, revoke and examine tokens: `auth.token.issue`, `auth.token.revoke`, `auth.token.introspect`.

A token that is issued so allows at most what its caller may do, for a quarter of an hour and a number of calls. It is in the
`meta` of the answer, which goes to the client; the model, if one is involved, sees a handle, and can use the token for nothing
but to revoke or examine it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import Answer, CapabilityCall, Handler, Offer
from callsmith.bus.trust.identity import Identity, is_node_id
from callsmith.bus.trust.revocations import Revocations
from callsmith.bus.trust.scopes import SCOPE_FIELDS, Scope, read_scope, write_scope
from callsmith.bus.trust.tokens import Token, attenuate, issue, read_token
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import Authority, is_trusted
from callsmith.core.values import Json, Schema
from callsmith.wire.capability.envelopes import parse_reference, satisfies
from callsmith.wire.capability.errors import BusError

MOST_SECONDS = 900
_REMEMBERED = 1_000  # tokens that are known by their handles
_OWN_PREFIX = "auth."  # what nobody gets by a token that was issued so


def token_capabilities(
    identity: Identity,
    verifier: TokenVerifier,
    revocations: Revocations,
    offers: Callable[[], Sequence[Offer]],
    *,
    clock: Callable[[], float] = time.time,
) -> list[tuple[Descriptor, Handler]]:
    """The capabilities with their handlers, to be registered at the node with this identity. `offers` is what its bus offers."""
    tokens = _IssuedTokens(identity, verifier, revocations, offers, clock)
    return [(_ISSUE, tokens.issue), (_REVOKE, tokens.revoke), (_INTROSPECT, tokens.introspect)]


@dataclass(eq=False)
class _IssuedTokens:
    """The tokens that a node has issued, by their handles."""

    _identity: Identity
    _verifier: TokenVerifier
    _revocations: Revocations
    _offers: Callable[[], Sequence[Offer]]
    _clock: Callable[[], float]
    # With the subject who asked for it.
    _issued: OrderedDict[str, tuple[Token, str]] = field(default_factory=OrderedDict[str, tuple[Token, str]])

    async def issue(self, call: CapabilityCall) -> Answer:
        subject = str(call.input["subject"])
        if not is_node_id(subject):
            raise BusError("bad_request", "subject: tokens are issued to a node, by its id, and never to anybody")
        scope = read_scope({name: value for name, value in call.input.items() if name in SCOPE_FIELDS})
        if any(capability.startswith(_OWN_PREFIX) for capability in scope.capabilities):
            raise BusError("token_scope_insufficient", f"no token for capabilities under {_OWN_PREFIX} is issued")
        token = self._make(call.authority, subject, scope, cast(int | None, call.input.get("ttl_seconds")))
        self._issued[token.jti] = token, call.authority.subject
        while len(self._issued) > _REMEMBERED:
            self._issued.popitem(last=False)
        return {"output": {"handle": token.jti, **_describe(token)}, "meta": {"token": token.text}}

    def _make(self, authority: Authority, subject: str, scope: Scope, seconds: int | None) -> Token:
        now, here, lifetime = self._clock(), self._identity.node_id, seconds or MOST_SECONDS
        _check_within_authority(scope, authority, self._offers())
        if not authority.token:
            return issue(self._identity, subject=subject, audience=here, scope=scope, seconds=lifetime, now=now)
        parent = read_token(authority.token)
        if parent.aud != here:
            raise BusError("unauthorized", "the caller's token is not addressed to this node, so none can be made from it")
        if seconds is not None and now + seconds > parent.exp:
            raise BusError("token_scope_insufficient", f"the caller's token ends in {parent.exp - int(now)} seconds")
        bounds = {**parent.scope.params_constraints, **scope.params_constraints}
        rate = scope.rate_limit_per_minute or parent.scope.rate_limit_per_minute
        scope = replace(scope, params_constraints=bounds, rate_limit_per_minute=rate)
        if not scope.is_within(parent.scope):
            raise BusError("token_scope_insufficient", "the caller's own token does not allow that much")
        return attenuate(self._identity, parent, subject=subject, audience=here, scope=scope, seconds=lifetime, now=now)

    async def revoke(self, call: CapabilityCall) -> Answer:
        text, owner = self._find(call)
        token = self._verifier.read(text)
        # The id of any other token was chosen by whoever has made it, and might be that of somebody else's.
        if token.iss != self._identity.node_id and token.parent is not None:
            raise BusError("unauthorized", "a token that another node has made is revoked there; or revoke what it was made from")
        if not _is_one_of(call.authority, token.iss, token.sub, owner):
            raise BusError("unauthorized", "a token is revoked by its issuer, its subject, or a trusted caller")
        await asyncio.to_thread(self._revocations.revoke, "token", token.jti)  # may wait for a disk
        return {"output": {"revoked": token.jti}, "meta": {}}

    async def introspect(self, call: CapabilityCall) -> Answer:
        text, _ = self._find(call)
        try:
            token = self._verifier.verify(text, read_token(text).sub).token
        except BusError as error:
            return {"output": {"active": False, "reason": error.code, "message": error.message}, "meta": {}}
        return {"output": {"active": True, **_describe(token), "issuer": token.iss, "audience": token.aud}, "meta": {}}

    def _find(self, call: CapabilityCall) -> tuple[str, str]:
        """The token that a call is about, and who had it issued; "" if it was sent as it is."""
        text = call.input.get("token")
        if isinstance(text, str):
            return text, ""
        token, owner = self._issued.get(str(call.input.get("handle")), (None, ""))
        if token is None or not _is_one_of(call.authority, owner):
            raise BusError("not_found", "no token of this handle was issued to this caller since the node was started")
        return token.text, owner


def _is_one_of(authority: Authority, *subjects: str) -> bool:
    """Whether a caller is one of these, or trusted as much. Callers without a name are nobody in particular."""
    return (authority.subject != "" and authority.subject in subjects) or is_trusted(authority.trust, "trusted")


def _check_within_authority(scope: Scope, authority: Authority, offers: Sequence[Offer]) -> None:
    """A BusError unless the caller may call all that the scope lists."""
    for reference in scope.capabilities:
        name, version = parse_reference(reference)
        offered = [
            offer.descriptor for offer in offers if offer.descriptor.name == name and satisfies(offer.descriptor.version, version)
        ]
        if not offered:
            raise BusError("not_found", f"nobody offers {reference}")
        if not authority.may_call(name) or not all(is_trusted(authority.trust, item.trust_required) for item in offered):
            raise BusError("token_scope_insufficient", f"the caller may not call {reference} itself")


def _describe(token: Token) -> dict[str, Json]:
    return {"subject": token.sub, "expires_at": token.exp, "scope": write_scope(token.scope)}


def _body(properties: dict[str, Json], *required: str) -> Schema:
    inner: dict[str, Json] = {"type": "object", "properties": properties, "additionalProperties": False}
    inner |= {"required": list(required)} if required else {"minProperties": 1, "maxProperties": 1}
    return {"type": "object", "properties": {"params": {"type": "object"}, "input": inner}, "required": ["input"]}


_ISSUE = Descriptor(
    "auth.token.issue",
    (1, 0),
    _body(
        {
            "subject": {"type": "string", "description": "The id of the node that may use the token: ed25519:…"},
            "capabilities": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 32},
            "params_constraints": {"type": "object", "additionalProperties": {"type": "array"}},
            "max_calls_total": {"type": "integer", "minimum": 1, "maximum": 1000},
            "rate_limit_per_minute": {"type": "integer", "minimum": 1},
            "ttl_seconds": {"type": "integer", "minimum": 1, "maximum": MOST_SECONDS},
        },
        "subject",
        "capabilities",
        "max_calls_total",
    ),
    description="Let another node make some calls here for a short time. Allows at most what the caller may do.",
    side_effects=True,
)
_WHICH: dict[str, Json] = {
    "handle": {"type": "string", "description": "The handle that auth.token.issue gave"},
    "token": {"type": "string", "description": "The token itself"},
}
_REVOKE = Descriptor(
    "auth.token.revoke",
    (1, 0),
    _body(_WHICH),
    description="Revoke a token, and all that were made from it, at once and for good.",
    idempotent=True,
    side_effects=True,
)
_INTROSPECT = Descriptor(
    "auth.token.introspect",
    (1, 0),
    _body(_WHICH),
    description="What a token allows, and whether it still counts.",
    idempotent=True,
)
