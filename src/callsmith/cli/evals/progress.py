"""What is shown while cases are asked: how many are done, how fast, how long it still takes, and the scores so far."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

from callsmith.core.types.escaped_text import one_line

PAUSE = 30.0  # seconds between two lines where nothing can be painted over


class CountedAnswer(Protocol):
    """What is counted of an answer: whose it is, whether it is right, and why there is none."""

    @property
    def setup(self) -> str: ...
    @property
    def is_right(self) -> bool: ...
    @property
    def error(self) -> str: ...


class EvalProgress:
    """A line that is painted over in a terminal; elsewhere a line every half a minute."""

    def __init__(
        self, setups: Sequence[str], cases: int, known: Iterable[CountedAnswer] = (), *, with_scores: bool = True
    ) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._all = cases * len(setups)
        self._done, self._right, self._errors = Counter[str](), Counter[str](), 0
        self._setups = setups
        self._with_scores = with_scores
        for record in known:
            self._count(record)
        self._begun, self._before, self._last = time.monotonic(), self._done.total(), 0.0
        self._status: Any = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status(self.line())
            self._status.start()
        elif self._before:
            self._console.print(f"{self._before} of {self._all} were answered before", markup=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
        self._console.print(self.line(), markup=False)

    def add(self, record: CountedAnswer) -> None:
        """Count an answer, and show it."""
        self._count(record)
        now = time.monotonic()
        if self._status is not None:
            self._status.update(self.line())
        elif now - self._last > PAUSE:
            self._last = now
            self._console.print(self.line(), markup=False)

    def line(self) -> str:
        """`120/480, 2.1/s, 3 min left; m/free 71 %, m/guarded 78 %`"""
        done = self._done.total()
        rate = (done - self._before) / max(time.monotonic() - self._begun, 1e-6)
        parts = [f"{done}/{self._all}", f"{rate:.2f}/s"]
        if rate and done < self._all:
            parts.append(f"{(self._all - done) / rate / 60:.0f} min left")
        if self._errors:
            parts.append(f"{self._errors} failed")
        shares = [f"{name} {100 * self._right[name] / self._done[name]:.0f} %" for name in self._setups if self._done[name]]
        return one_line(", ".join(parts) + (f"; {', '.join(shares)}" if shares and self._with_scores else ""))

    def _count(self, record: CountedAnswer) -> None:
        self._done[record.setup] += 1
        self._right[record.setup] += record.is_right
        self._errors += bool(record.error)
