"""Health of providers: what fails more often than not is quarantined, and one call tries it again later."""

from collections import deque

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
        probing, self._is_probing = self._is_probing, False
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
