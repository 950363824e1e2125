"""Intervals and tests for shares of right answers."""

from dataclasses import dataclass
from math import comb, sqrt
from typing import Final

Z: Final = 1.959964  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with Wilson's 95 % interval."""

    right: int
    n: int

    @property
    def value(self) -> float:
        return self.right / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share is, with 95 % confidence; sensible also for few cases and for shares near 0 and 1.

        >>> [round(end, 3) for end in Share(9, 10).interval]
        [0.596, 0.982]
        """
        if not self.n:
            return 0.0, 1.0
        spread = Z * Z / self.n
        middle = (self.value + spread / 2) / (1 + spread)
        half = Z / (1 + spread) * sqrt(self.value * (1 - self.value) / self.n + spread / (4 * self.n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __add__(self, other: "Share") -> "Share":
        return Share(self.right + other.right, self.n + other.n)


@dataclass(frozen=True, slots=True)
class Paired:
    """Two setups on the same cases: how many both, only the first, only the second, or neither got right."""

    both: int
    first: int
    second: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.first + self.second + self.neither

    @property
    def difference(self) -> float:
        """How much larger the share of the second is."""
        return (self.second - self.first) / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference: Newcombe's score interval for paired shares (1998, method 10)."""
        if not self.n:
            return -1.0, 1.0
        one, other = Share(self.both + self.second, self.n), Share(self.both + self.first, self.n)
        (low, high), (other_low, other_high) = one.interval, other.interval
        correlation = self._correlation()

        def distance(a: float, b: float) -> float:
            return sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

        below = distance(one.value - low, other_high - other.value)
        above = distance(high - one.value, other.value - other_low)
        return self.difference - below, self.difference + above

    def _correlation(self) -> float:
        """The correlation of the two, with Newcombe's correction for small samples."""
        margins = (
            (self.both + self.first) * (self.second + self.neither) * (self.both + self.second) * (self.first + self.neither)
        )
        if not margins:
            return 0.0
        product = self.both * self.neither - self.first * self.second
        return (max(0.0, product - self.n / 2) if product > 0 else product) / sqrt(margins)

    @property
    def p(self) -> float:
        """McNemar's exact test: how likely so uneven a split of the differing cases is if the two are equally good.

        >>> Paired(0, 1, 5, 0).p
        0.21875
        """
        differing = self.first + self.second
        tail = sum(comb(differing, nth) for nth in range(min(self.first, self.second) + 1))
        return min(1.0, 2 * tail / 2**differing)
