"""How often tokens have been used: rate limits and budgets of calls, counted for every token of a chain."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeAlias

from callsmith.bus.trust.tokens import Token
from callsmith.wire.capability.errors import BusError

_Key: TypeAlias = tuple[str, str]  # issuer and jti: an issuer who gives one id twice has both counted together
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
