"""Capability tokens: `hntoken://v1/` and a JWS, by which an issuer lets a node make some calls for some time.

    {"alg": "EdDSA", "typ": "hntoken", "v": 1}
    {"iss": "ed25519:…", "sub": "ed25519:…", "aud": "ed25519:…", "iat": 1790000000, "nbf": 1790000000, "exp": 1790003600,
     "jti": "01J…", "scope": {"capabilities": ["rag.query@1.0"]}, "parent": "hntoken://v1/…"}

A token may be made from another one, its `parent`, and allows at most what that one does. Whoever a token is for (`sub`) may make
one from it, and so may the node it is addressed to (`aud`), which then calls others for `sub`. Nobody else may.
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from callsmith.bus.trust.identity import Identity, decode_base64url, is_node_id, public_key
from callsmith.bus.trust.scopes import Scope, read_scope, write_scope
from callsmith.core.errors import MissingExtra, UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError

try:
    import jwt
except ImportError as missing:
    raise MissingExtra("bus", "capability tokens") from missing

PREFIX = "hntoken://v1/"
ANYBODY = "*"  # the subject of a bearer token
DEFAULT_SECONDS, MOST_SECONDS = 3600, 86_400
MOST_BYTES, MOST_LINKS = 8 * 1024, 4
_HEADER: dict[str, Json] = {"alg": "EdDSA", "typ": "hntoken", "v": 1}
_LONGEST_ID = 128
_LATEST = 2**53 - 1
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_JWS = jwt.PyJWS(algorithms=["EdDSA"])


@dataclass(frozen=True, slots=True)
class Token:
    """The claims of a token, under their names in JWT. `text` is the whole token as it is sent."""

    iss: str
    sub: str
    aud: str
    iat: int
    nbf: int
    exp: int
    jti: str
    scope: Scope
    parent: "Token | None" = None
    text: str = ""

    def __repr__(self) -> str:  # the text is a credential, and has no place in logs
        return f"Token({self.jti} for {self.sub} by {self.iss})"

    def links(self) -> Iterator["Token"]:
        """This token, the one it was made from, and so on to the first."""
        link: Token | None = self
        while link is not None:
            yield link
            link = link.parent


def issue(
    identity: Identity,
    *,
    subject: str,
    audience: str,
    scope: Scope,
    seconds: float = DEFAULT_SECONDS,
    not_before: float | None = None,
    now: float | None = None,
) -> Token:
    """A token that lets `subject` make the calls of `scope` at `audience`, a node or a community."""
    now = time.time() if now is None else now
    start, exp = int(now if not_before is None else not_before), int(now + _check_seconds(seconds))
    return _sign(identity, Token(identity.node_id, subject, audience, int(now), start, exp, _new_id(now), scope))


def attenuate(
    identity: Identity,
    parent: Token,
    *,
    subject: str,
    audience: str,
    scope: Scope | None = None,
    seconds: float = DEFAULT_SECONDS,
    now: float | None = None,
) -> Token:
    """A token that is made from another one, and allows no more: not more calls, and not longer. `scope`: by default the same."""
    now = time.time() if now is None else now
    exp = min(parent.exp, int(now + _check_seconds(seconds)))
    claims = identity.node_id, subject, audience, int(now), int(now), exp, _new_id(now), scope or parent.scope, parent
    return _sign(identity, Token(*claims))


def _check_seconds(seconds: float) -> float:
    if not 1 <= seconds <= MOST_SECONDS:
        raise UsageError(f"a token is valid for 1 to {MOST_SECONDS} seconds, not {seconds:g}", field="seconds")
    return seconds


def _sign(identity: Identity, token: Token) -> Token:
    if token.sub != ANYBODY and not is_node_id(token.sub):
        raise UsageError(f"{token.sub!r} is no id of a node, as callsmith bus id prints it", field="subject")
    payload: dict[str, Json] = {name: getattr(token, name) for name in ("iss", "sub", "aud", "iat", "nbf", "exp", "jti")}
    payload["scope"] = write_scope(token.scope)
    if token.parent is not None:
        payload["parent"] = token.parent.text
    data = json.dumps(payload, separators=(",", ":")).encode()
    text = PREFIX + _JWS.encode(data, identity.private_key, "EdDSA", dict(_HEADER))
    signed = read_token(text)
    check_links(signed)
    return signed


def _new_id(now: float) -> str:
    """A ULID: the milliseconds, then 80 random bits."""
    number = int(now * 1000) << 80 | secrets.randbits(80)
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def read_token(text: str) -> Token:
    """The token in this text, with those it was made from. Nothing in it is proven yet: `check_signatures` does that.

    A BusError bad_request says what is malformed; token_invalid, that its header is not the one that tokens have.
    """
    return _read(text, MOST_LINKS)


def _read(text: str, most_links: int) -> Token:
    if len(text) > MOST_BYTES:
        raise BusError("bad_request", f"a token has at most {MOST_BYTES} characters")
    if most_links < 1:
        raise BusError("token_invalid", f"a token is made from at most {MOST_LINKS - 1} others")
    parts = text.removeprefix(PREFIX).split(".")
    if not text.startswith(PREFIX) or len(parts) != 3:
        raise BusError("bad_request", f"a token is {PREFIX} and three parts with points between them")
    try:
        header, payload = (_read_object(decode_base64url(part)) for part in parts[:2])
        decode_base64url(parts[2])
    except (ValueError, RecursionError) as error:
        raise BusError("bad_request", f"the token cannot be read: {error}") from error
    if header != _HEADER or type(header["v"]) is not int:
        raise BusError("token_invalid", f"the header of a token is {json.dumps(_HEADER)}, and nothing else")
    parent = payload.get("parent")
    if parent is not None and not isinstance(parent, str):
        raise BusError("bad_request", "the parent of a token is a token")
    return Token(
        iss=_text(payload, "iss"),
        sub=_text(payload, "sub"),
        aud=_text(payload, "aud"),
        iat=_time(payload, "iat"),
        nbf=_time(payload, "nbf" if "nbf" in payload else "iat"),
        exp=_time(payload, "exp"),
        jti=_text(payload, "jti"),
        scope=read_scope(payload.get("scope")),
        parent=None if parent is None else _read(parent, most_links - 1),
        text=text,
    )


def _read_object(data: bytes) -> dict[str, Json]:
    value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_duplicates)
    if not isinstance(value, dict):
        raise ValueError("header and payload are JSON objects")
    return cast(dict[str, Json], value)


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return members


def _text(payload: Mapping[str, Json], name: str) -> str:
    value = payload.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID or not value.isprintable():
        raise BusError("bad_request", f"{name} of a token is a text of at most {_LONGEST_ID} printable characters")
    return value


def _time(payload: Mapping[str, Json], name: str) -> int:
    value = payload.get(name)
    if type(value) is not int or not 0 <= value <= _LATEST:  # neither a bool nor a float
        raise BusError("bad_request", f"{name} of a token is a time in whole seconds since 1970")
    return value


def check_links(token: Token, community: str | None = None) -> None:
    """A BusError token_invalid if a token in the chain is made by the wrong node, allows more than its parent or lives too long.

    The subject may address a token anew only within the `community` that its parent is for; None: that is not looked at.
    """
    for link in token.links():
        if link.exp - link.iat > MOST_SECONDS:
            raise BusError("token_invalid", f"a token is valid for at most {MOST_SECONDS} seconds")
        if (parent := link.parent) is None:
            continue
        if link.iss not in (parent.sub, parent.aud):
            raise BusError(
                "token_invalid", "a token may be passed on by its subject and by the node it is addressed to, nobody else"
            )
        if link.iss != parent.aud != link.aud and community not in (None, parent.aud):
            raise BusError("token_invalid", "the subject of a token may not address it to another node")
        if link.exp > parent.exp:
            raise BusError("token_invalid", "a token ends no later than the one it was made from")
        if not link.scope.is_within(parent.scope):
            raise BusError("token_invalid", "a token allows no more than the one it was made from")


def check_signatures(token: Token) -> None:
    """A BusError token_invalid unless every token of the chain is signed by its issuer."""
    for link in token.links():
        _check_signature(link.text, link.iss)


@lru_cache(maxsize=1024)  # many tokens for single calls are made from one
def _check_signature(text: str, issuer: str) -> None:
    try:
        _JWS.decode(text.removeprefix(PREFIX), public_key(issuer), algorithms=["EdDSA"])
    except (jwt.PyJWTError, BusError) as error:
        raise BusError("token_invalid", f"a token of the chain is not signed by its issuer, {issuer}") from error
