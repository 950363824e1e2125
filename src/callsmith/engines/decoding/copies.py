"""Constraints of one grammar, each with a matcher of its own.

A matcher is copied in microseconds, and the copy shares its lexer: what one has learned all know. But there is a lock on the
lexer, so that masks of such copies are found one after another, in however many threads. Where masks are found in several
threads, the grammar is compiled again for answers that are written at the same time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from weakref import WeakSet

import llguidance

from callsmith.engines.decoding.matcher import Constraint

_SLOW: Final = 0.25  # seconds: a grammar that takes longer is not compiled again


@dataclass(frozen=True, slots=True)
class _Origin:
    """A matcher that is copied and never used itself, and the constraints that have its copies."""

    matcher: llguidance.LLMatcher
    users: WeakSet[Constraint] = field(default_factory=WeakSet[Constraint])


class MatcherCopies:
    """Makes constraints from a compiled grammar. `compile_again` gives another matcher of it. Safe for threads.

    `most` is how many matchers are compiled at most; `lock` is held while one is copied.
    """

    def __init__(
        self, first: llguidance.LLMatcher, compile_again: Callable[[], llguidance.LLMatcher], *, most: int, width: int, lock: Lock
    ) -> None:
        self._origins = [_Origin(first)]
        self._compile_again = compile_again
        self._left = most - 1  # how many may still be compiled
        self._width = width
        self._lock = lock

    def new_constraint(self) -> Constraint:
        """A constraint that shares its lexer with as few others as can be."""
        with self._lock:
            origin = min(self._origins, key=lambda one: len(one.users))
            if not origin.users or self._left < 1:
                return self._copy(origin)
            self._left -= 1
        began = time.perf_counter()
        origin = _Origin(self._compile_again())
        with self._lock:
            if time.perf_counter() - began > _SLOW:
                self._left = 0
            self._origins.append(origin)
            return self._copy(origin)

    def _copy(self, origin: _Origin) -> Constraint:
        constraint = Constraint(origin.matcher.deep_copy(), self._width)
        origin.users.add(constraint)
        return constraint
