"""Routing: which provider answers a call. Sessions stay with a provider, bad ones are passed over, this node comes first."""

import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from callsmith.bus.descriptor import offers_params
from callsmith.bus.port import Offer, ParamsTest
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Version, satisfies, write_reference, write_version
from callsmith.wire.capability.errors import BusError

SESSION_SECONDS = 600.0  # after which an idle session may go to another provider
MOST_SESSIONS = 10_000
MOST_PROVIDERS = 10_000  # whose health is remembered
UNSHARED_SECONDS = 60.0  # in which nodes are called one by one, after a call that none of them took
LOCAL_LOAD = 0.80  # of its places, up to which this node answers itself
WINDOW = 100  # calls that are looked back on
LEAST_CALLS = 5  # before anything is judged
QUARANTINE_SECONDS = 60.0
UNKNOWN_LATENCY = 0.5  # seconds
_WEIGHT = 0.2  # of the newest call in the mean latency


class Health:
    """The health of one capability at one node. Times are those of the caller's clock, in seconds."""

    __slots__ = ("_failures", "_is_probing", "_latest", "_until", "in_flight", "latency")

    def __init__(self) -> None:
        self._latest: deque[bool] = deque(maxlen=WINDOW)
        self._failures = 0
        self._until = 0.0  # the end of the quarantine; 0: there is none
        self._is_probing = False
        self.in_flight = 0
        self.latency = UNKNOWN_LATENCY

    @property
    def success_rate(self) -> float:
        return 1.0 if not self._latest else 1 - self._failures / len(self._latest)

    @property
    def is_quarantined(self) -> bool:
        """Whether it is, or was until a call tries it again."""
        return self._until > 0

    def is_available(self, now: float) -> bool:
        """Whether it may be called: after a quarantine, by one call at a time."""
        return not self._until or (now >= self._until and not self._is_probing)

    def begin(self) -> None:
        """A call begins. The first one after a quarantine decides whether it is over."""
        self.in_flight += 1
        self._is_probing = self._until > 0

    def end(self, succeeded: bool | None, seconds: float, now: float) -> None:
        """A call has ended; None: in a way that says nothing about the provider."""
        self.in_flight -= 1
        probing = self._is_probing and now - seconds >= self._until  # else it began before the quarantine, and decides nothing
        if probing:
            self._is_probing = False
        if succeeded is None:
            return
        if succeeded:
            is_first = self.latency == UNKNOWN_LATENCY
            self.latency = seconds if is_first else self.latency + _WEIGHT * (seconds - self.latency)
        if probing:
            self._until = 0.0 if succeeded else now + QUARANTINE_SECONDS
            if succeeded:
                self._latest.clear()
                self._failures = 0
            return
        if len(self._latest) == WINDOW and not self._latest[0]:
            self._failures -= 1
        self._latest.append(succeeded)
        self._failures += not succeeded
        if len(self._latest) >= LEAST_CALLS and self._failures * 2 > len(self._latest) and not self._until:
            self._until = now + QUARANTINE_SECONDS

    def score(self, capacity: int) -> float:
        """The cost of asking this one, in milliseconds: the lower, the better."""
        load = self.in_flight / capacity
        return self.latency * 1000 * (1 + load) + (1 - self.success_rate) * 1000


class Router:
    """Chooses among offers, and remembers how the providers do."""

    def __init__(self) -> None:
        self._health: dict[tuple[str, str, Version], Health] = {}
        self._unshared: dict[str, float] = {}
        self._sessions: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def health(self, offer: Offer) -> Health:
        key = offer.node, offer.descriptor.name, offer.descriptor.version
        known = self._health.get(key)
        if known is None:
            if len(self._health) >= MOST_PROVIDERS:  # nodes come and go
                self._health = {key: health for key, health in self._health.items() if health.in_flight}
            known = self._health[key] = Health()
        return known

    def begin(self, offer: Offer) -> Health:
        """A call is sent to an offer; its health is that to which its end is told."""
        health = self.health(offer)
        health.begin()
        return health

    def record_end(self, health: Health, offer: Offer, node: str, succeeded: bool | None, seconds: float) -> None:
        """A call that was sent to an offer has ended; `node` has answered it: empty if that is not known."""
        now = time.monotonic()
        if node == offer.node:
            health.end(succeeded, seconds, now)
            return
        health.end(None, seconds, now)
        if node:
            actual = self.health(replace(offer, node=node))
            actual.begin()
            actual.end(succeeded, seconds, now)
        elif succeeded is False:  # one of those that share the calls does not answer: find out which
            self._unshared[offer.descriptor.reference] = now + UNSHARED_SECONDS

    def may_share(self, offer: Offer, offers: Sequence[Offer]) -> bool:
        """Whether any node with the same offer may answer, because none of them is known to be bad."""
        if self._unshared.get(offer.descriptor.reference, 0.0) > time.monotonic():
            return False
        alike = [item for item in offers if item.descriptor == offer.descriptor]
        return len(alike) > 1 and not any(self.health(item).is_quarantined for item in alike)

    def candidates(
        self, offers: Sequence[Offer], name: str, version: Version, params: Mapping[str, Json], tests: Mapping[str, ParamsTest]
    ) -> list[Offer]:
        """The offers that can answer a call, the best first. A BusError says why there is none."""
        if len(offers) == 1:  # most calls
            offer = offers[0]
            fits = not (params or tests) or _fits(offer, params, tests)
            if fits and satisfies(offer.descriptor.version, version) and self.health(offer).is_available(time.monotonic()):
                return [offer]
        if not offers:
            raise BusError("not_found", f"nobody offers {name}")
        fitting = [offer for offer in offers if satisfies(offer.descriptor.version, version)]
        if not fitting:
            known = ", ".join(sorted({write_version(offer.descriptor.version) for offer in offers}))
            raise BusError("schema_mismatch", f"{write_reference(name, version)} is not offered, but {known}")
        able = [item for item in fitting if _fits(item, params, tests)]
        if not able:
            wanted = ", ".join(f"{key}={str(value)[:60]!r}" for key, value in list(params.items())[:5])
            raise BusError("not_found", f"nobody offers {name} with {wanted}; there is {_values(fitting, params)}")
        now = time.monotonic()
        available = [item for item in able if self.health(item).is_available(now)]
        if not available:
            raise BusError(
                "partition", f"all providers of {name} have failed too often and are left alone for a while", seconds=30
            )
        return available if len(available) == 1 else sorted(available, key=self._cost)

    def _cost(self, offer: Offer) -> float:
        health, capacity = self.health(offer), offer.descriptor.max_concurrent
        if offer.is_local:
            return -1.0 if health.in_flight / capacity < LOCAL_LOAD else health.score(capacity) - 50
        return health.score(capacity)

    def sticky(self, session_id: str, name: str) -> str:
        """The node that has answered this session so far; empty if there is none."""
        session = self._sessions.get((session_id, name))
        return session[0] if session and time.monotonic() - session[1] < SESSION_SECONDS else ""

    def stick(self, session_id: str, name: str, node: str) -> None:
        self._sessions[session_id, name] = node, time.monotonic()
        self._sessions.move_to_end((session_id, name))
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)


def _fits(offer: Offer, params: Mapping[str, Json], tests: Mapping[str, ParamsTest]) -> bool:
    test = tests.get(offer.descriptor.reference, offers_params) if tests and offer.is_local else offers_params
    return test(offer.descriptor.params, params)


def _values(offers: Sequence[Offer], params: Mapping[str, Json]) -> str:
    return "; ".join(
        dict.fromkeys(
            ", ".join(f"{name}: {str(offer.descriptor.params[name])[:200]}" for name in params if name in offer.descriptor.params)
            for offer in offers[:5]
        )
    )
