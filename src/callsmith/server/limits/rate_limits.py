"""Limits of what a caller may ask for in a minute: answers, and tokens. Both refill all the time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from callsmith.core.errors import RateLimited
from callsmith.engines.lru import LRU
from callsmith.runtime.telemetry.turns import TurnRecord
from callsmith.server.settings import CallerLimits

_MINUTE: Final = 60.0
_MOST_CALLERS: Final = 10_000  # that are remembered


class _Allowance:
    """What is left of so many a minute."""

    def __init__(self, most: int, now: float) -> None:
        self.most = most
        self._left = float(most)
        self._at = now

    def left(self, now: float) -> float:
        """How much is left; less than nothing where more was used than there was."""
        self._left = min(float(self.most), self._left + (now - self._at) * self.most / _MINUTE)
        self._at = now
        return self._left

    def use(self, amount: int) -> None:
        self._left -= amount

    def wait(self, now: float, amount: float = 1.0) -> float:
        """The seconds until so much is left."""
        return max(0.0, (amount - self.left(now)) * _MINUTE / self.most) if self.most else _MINUTE


class RateLimits:
    """What every caller has left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowances = LRU[_Allowance](_MOST_CALLERS)

    def admit(self, caller: str, limits: CallerLimits) -> dict[str, str]:
        """Count one more answer, or refuse it; the headers that say what is left."""
        now, headers = self._clock(), dict[str, str]()
        allowances = [(kind, self._of(caller, kind, most, now)) for kind, most in _per_minute(limits)]
        waits = {kind: allowance.wait(now) for kind, allowance in allowances}
        refused = max(waits, key=lambda kind: waits[kind], default="")
        if not refused or not waits[refused]:
            refused = ""
            for kind, allowance in allowances:
                allowance.use(1 if kind == "requests" else 0)
        for kind, allowance in allowances:
            headers[f"x-ratelimit-limit-{kind}"] = str(allowance.most)
            headers[f"x-ratelimit-remaining-{kind}"] = str(max(0, int(allowance.left(now))))
            headers[f"x-ratelimit-reset-{kind}"] = f"{ceil(allowance.wait(now, allowance.most))}s"
        if refused:
            most = dict(allowances)[refused].most
            raise RateLimited(refused, f"this caller has used its {most} {refused} a minute", waits[refused], headers)
        return headers

    def use_tokens(self, caller: str, limits: CallerLimits, tokens: int) -> None:
        """Count the tokens of an answer, once they are known."""
        if limits.tokens_per_minute is not None:
            self._of(caller, "tokens", limits.tokens_per_minute, self._clock()).use(tokens)

    def _of(self, caller: str, kind: str, most: int, now: float) -> _Allowance:
        key = (caller, kind, most)
        return self._allowances.get(key) or self._allowances.put(key, _Allowance(most, now))


def _per_minute(limits: CallerLimits) -> list[tuple[str, int]]:
    rates = (("requests", limits.requests_per_minute), ("tokens", limits.tokens_per_minute))
    return [(kind, most) for kind, most in rates if most is not None]


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A recorder that counts the tokens of turns as used by a caller."""

    rates: RateLimits
    client: str
    limits: CallerLimits

    def add(self, turn: TurnRecord) -> None:
        self.rates.use_tokens(self.client, self.limits, turn.usage.prompt + turn.usage.completion)
