"""Verification of capability tokens: who they are from, for whom, for what, and whether they still count."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import TypeAlias

from callsmith.bus.trust.revocations import MemoryRevocations, Revocations
from callsmith.bus.trust.tokens import ANYBODY, Token, check_links, check_signatures, read_token
from callsmith.core.capability.authority import Trust
from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Version, write_reference
from callsmith.wire.capability.errors import BusError

_Key: TypeAlias = tuple[str, str]  # issuer and jti: an issuer who gives one id twice has both counted together
_CLOCK_SKEW = 30.0  # seconds by which the clock of an issuer may be ahead; an expired token has no such leeway
_CACHED = 1024  # tokens of at most 8 KiB
_MINUTE = 60.0


@dataclass(slots=True)
class _Usage:
    """The calls made with one token: all of them, and when those of the last minute were."""

    root: _Key
    exp: int
    total: int = 0
    lately: deque[float] = field(default_factory=deque[float])


class UsageCounter:
    """Counts calls against the limits of tokens. Safe for threads.

    A token that has a limit is remembered until it expires, so that no flood of others makes it fresh again. There is room for
    `most` of them, and for `most_per_root` that were made from one token: a caller who makes new ones without end shuts out
    nobody else. Where there is no room, calls with further tokens of that kind are refused with capacity_exceeded.
    """

    def __init__(self, most: int = 200_000, most_per_root: int = 50_000) -> None:
        self._most, self._most_per_root = most, most_per_root
        self._used: dict[_Key, _Usage] = {}
        self._roots: Counter[_Key] = Counter()
        self._next_size, self._next_time = 1024, 0.0  # of the next sweep
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._used)

    def count(self, links: Sequence[Token], now: float) -> None:
        """Count a call with this chain, or raise a BusError and count nothing. The last link is the first token."""
        limited = [link for link in links if link.scope.rate_limit_per_minute or link.scope.max_calls_total]
        if not limited:
            return
        root = _key(links[-1])
        with self._lock:
            entries = [(link, self._entry(link, root, now)) for link in limited]
            for link, entry in entries:
                _check(link, entry, now)
            for link, entry in entries:
                entry.total += 1
                if link.scope.rate_limit_per_minute:
                    entry.lately.append(now)

    def _entry(self, link: Token, root: _Key, now: float) -> _Usage:
        key = _key(link)
        entry = self._used.get(key)
        if entry is None:
            if len(self._used) >= self._next_size or self._is_full(root):
                self._sweep(now)
            if self._is_full(root):
                raise BusError(
                    "capacity_exceeded", "too many tokens with limits are in use; try again when some have expired", seconds=30
                )
            entry = self._used[key] = _Usage(root, link.exp)
            self._roots[root] += 1
        entry.exp = max(entry.exp, link.exp)
        return entry

    def _is_full(self, root: _Key) -> bool:
        return len(self._used) >= self._most or self._roots[root] >= self._most_per_root

    def _sweep(self, now: float) -> None:
        """Forget tokens that have expired; at most once a second, since it goes through all of them."""
        if now < self._next_time:
            return
        self._used = {key: entry for key, entry in self._used.items() if entry.exp > now}
        self._roots = Counter(entry.root for entry in self._used.values())
        self._next_size, self._next_time = max(1024, 2 * len(self._used)), now + 1


def _key(token: Token) -> _Key:
    return token.iss, token.jti


def _check(link: Token, entry: _Usage, now: float) -> None:
    budget, rate = link.scope.max_calls_total, link.scope.rate_limit_per_minute
    if budget is not None and entry.total >= budget:
        raise BusError("token_scope_insufficient", f"the token's budget of {budget} calls is spent; ask its issuer for a new one")
    while entry.lately and entry.lately[0] <= now - _MINUTE:
        entry.lately.popleft()
    if rate is not None and len(entry.lately) >= rate:
        wait = entry.lately[0] + _MINUTE - now
        raise BusError("rate_limited", f"the token allows {rate} calls a minute", seconds=max(wait, 0.001))


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token that counts here and now.

    `root` is the first token of the chain, `subject` whom that was issued to, `via` are the nodes that passed it on. `trust` is
    what the operator lets tokens of its issuer give.
    """

    token: Token
    root: Token
    subject: str
    via: tuple[str, ...]
    trust: Trust


class TokenVerifier:
    """Verifies tokens for a node. Safe for threads.

    `issuers` are the nodes and communities whose tokens count here, each with the trust that its tokens give. `bearer`: whether
    tokens are accepted that are for anybody who has them. Signatures are verified once a token; expiry and revocation every time.
    """

    def __init__(
        self,
        node: str,
        community: str = "",
        issuers: Mapping[str, Trust] | None = None,
        revocations: Revocations | None = None,
        *,
        bearer: bool = False,
        clock: Callable[[], float] = time.time,
        usage: UsageCounter | None = None,
    ) -> None:
        self._audiences = frozenset(filter(None, (node, community)))
        self._community = community
        self._issuers = trust_table(issuers, "issuers")
        self._revocations = MemoryRevocations() if revocations is None else revocations
        self._bearer = bearer
        self._clock = clock
        self._usage = UsageCounter() if usage is None else usage
        # By the whole text, which Python finds by a keyed hash: how long that takes tells nothing of the tokens in the cache.
        # Nothing else that is compared here is secret: ids and scopes are in the token, and signatures are the library's work.
        self._chain = lru_cache(maxsize=_CACHED)(self._verify_chain)

    def verify(self, text: str, presenter: str) -> VerifiedToken:
        """The token, presented by the node that has signed the call ("": nobody has); a BusError says why it does not count."""
        chain = self._chain(text)
        token, root = chain[0], chain[-1]
        if token.sub == ANYBODY:
            if not self._bearer:
                raise BusError("unauthorized", "tokens for anybody are not accepted here: have one issued to your node")
        elif token.sub != presenter:
            raise BusError("invalid_signature", "the call is not signed by the node that its token is for")
        self._check_live(chain)
        if token.aud not in self._audiences:
            raise BusError("unauthorized", "the token is for another node: have one issued for this one")
        subject = root.iss if root.sub == ANYBODY else root.sub
        passed_on = (node for link in reversed(chain[:-1]) for node in (link.iss, link.sub))
        via = tuple(node for node in dict.fromkeys(passed_on) if node not in (subject, ANYBODY))
        return VerifiedToken(token, root, subject, via, self._issuers[root.iss])

    def read(self, text: str) -> Token:
        """The token, if it goes back to a trusted issuer, whether or not it still counts."""
        return self._chain(text)[0]

    def check(self, text: str, capability: str, version: Version, params: Mapping[str, Json]) -> None:
        """Count a call with a token that was verified before; a BusError if it is not allowed, or no longer."""
        chain = self._chain(text)
        self._check_live(chain)
        if not all(link.scope.covers(capability, version, params) for link in chain):
            raise BusError(
                "token_scope_insufficient", f"the token does not cover {write_reference(capability, version)} with these params"
            )
        self._usage.count(chain, self._clock())

    def _verify_chain(self, text: str) -> tuple[Token, ...]:
        """The token and those it was made from, after all checks whose outcome never changes."""
        token = read_token(text)
        chain = tuple(token.links())
        if chain[-1].iss not in self._issuers:
            raise BusError("token_invalid", "the token goes back to an issuer that this node does not trust")
        check_signatures(token)
        check_links(token, self._community)
        return chain

    def _check_live(self, chain: tuple[Token, ...]) -> None:
        now = self._clock()
        for link in chain:
            if self._revocations.is_revoked("issuer", link.iss):
                raise BusError("revoked", "an issuer of the token is revoked")
            if self._revocations.is_revoked("token", link.jti):
                raise BusError("token_revoked", "the token, or one that it was made from, is revoked")
        for link in chain:
            if now >= link.exp:
                raise BusError("token_expired", "the token, or one that it was made from, has expired")
            if now + _CLOCK_SKEW < max(link.nbf, link.iat):
                raise BusError("token_expired", "the token is not valid yet")


def trust_table(table: Mapping[str, Trust] | None, name: str) -> dict[str, Trust]:
    """The table; a UsageError if it trusts others as only this node is trusted."""
    copied: dict[str, Trust] = dict(table or {})
    if "self" in copied.values():
        raise UsageError(f'{name}: others are trusted as "unknown", "member", "trusted" or "anchor", never as "self"', field=name)
    return copied
