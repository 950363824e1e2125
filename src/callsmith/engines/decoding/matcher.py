"""The state of one answer in its grammar: which tokens may come next, by llguidance."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from weakref import WeakSet

import llguidance
import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import GrammarFailed
from callsmith.engines.decoding.vocabulary import Logits

_FEW_TOKENS: Final = 24  # up to so many tokens are tested one by one; for more, computing the mask is cheaper
_SLOW: Final = 0.25  # seconds: a grammar that takes longer is not compiled again


class Constraint:
    """The state of one answer in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, width: int, forced: list[int] | None = None) -> None:
        self.matcher = matcher  # whoever asks it directly, for many answers at once, looks at its errors with `check`
        self._width = width
        self._mask = np.zeros(-(-width // 32), np.uint32)
        self._place = self._mask.ctypes.data, self._mask.nbytes  # asking for them takes longer than some masks
        self._masked = False  # the mask is that of the present state
        # The tokens that must come next; None: not known. Where there are some the mask allows the first of them alone, not
        # even shorter ones. They are found once for all of them: llguidance would tokenize the rest again at each one.
        self._forced = forced

    @property
    def active(self) -> "Constraint":
        """The constraint in force, which is this one."""
        return self

    @property
    def ended(self) -> bool:
        """The grammar is complete: nothing can follow."""
        return self.matcher.is_stopped()

    @property
    def may_end(self) -> bool:
        """The text so far is a complete answer, though more may follow."""
        return self.matcher.is_accepting()

    def restrict(self, logits: Logits) -> None:
        """Mask, in place, the logits of every token that the grammar does not allow here."""
        np.copyto(logits, np.float32(-np.inf), where=~self._unpack_mask())

    def tokens(self) -> NDArray[np.intp]:
        """All tokens the grammar allows here."""
        return np.flatnonzero(self._unpack_mask())

    def allows(self, token: int) -> bool:
        """Whether the grammar allows this token here."""
        if forced := self._find_forced():
            return token == forced[0]
        if self._masked:
            return bool(int(self._mask[token >> 5]) >> (token & 31) & 1)
        if self.matcher.validate_tokens([token]) == 1:
            return True
        self.check()
        return False

    def among(self, tokens: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these tokens the grammar allows here. A few are tested one by one, which is cheaper than a mask."""
        if forced := self._find_forced():
            return tokens == forced[0]
        if not self._masked and len(tokens) <= _FEW_TOKENS:
            return np.array([self.allows(token) for token in tokens.tolist()], np.bool_)
        self._fill()
        return (self._mask[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1 == 1

    def _unpack_mask(self) -> NDArray[np.bool_]:
        self._fill()
        return np.unpackbits(self._mask.view(np.uint8), count=self._width, bitorder="little").view(np.bool_)

    def _fill(self) -> None:
        if self._masked:
            return
        forced = self._find_forced() if self._forced is None else self._forced
        if forced:
            self._mask.fill(0)
            self._mask[forced[0] >> 5] = 1 << (forced[0] & 31)
        else:
            self.matcher.unsafe_compute_mask_ptr(*self._place)
            self.check()
        self._masked = True

    def admits(self, token: int) -> bool:
        """Consume a token that was sampled without a mask, if the grammar allows it here."""
        accepted = self.matcher.try_consume_tokens([token]) == 1
        if accepted:
            self._advance(token)
        return accepted

    def consume(self, token: int) -> None:
        """Advance by this token."""
        is_taken = self.matcher.consume_token(token)
        self._advance(token)
        if not is_taken:
            self.check()

    def _advance(self, token: int) -> None:
        self._masked = False
        forced = self._forced
        self._forced = forced[1:] or None if forced and forced[0] == token else None

    def find_forced(self) -> list[int]:
        """The tokens that must come next, as far as there is no choice. They are not consumed yet."""
        return [*self._find_forced()]

    def _find_forced(self) -> list[int]:
        if self._forced is None:
            self._forced = self.matcher.compute_ff_tokens()
            self.check()
        return self._forced

    def check(self) -> None:
        """Raise the error of the matcher, if it has failed."""
        if self.matcher.is_error():
            raise GrammarFailed(f"the grammar engine gave up: {self.matcher.get_error()}", hint="simplify the tools' schemas")


@dataclass(frozen=True, slots=True)
class _Origin:
    """A matcher that is copied and never used itself, and the constraints that have its copies."""

    matcher: llguidance.LLMatcher
    users: WeakSet[Constraint] = field(default_factory=WeakSet[Constraint])


class MatcherCopies:
    """Makes constraints from a compiled grammar, each with a matcher of its own. Safe for threads.

    A matcher is copied in microseconds, and the copy shares its lexer: what one has learned all know. But there is a lock on the
    lexer, so that masks of such copies are found one after another, in however many threads. Where masks are found in several
    threads, the grammar is compiled again for answers that are written at the same time: `compile_again` does it.
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
        with lock:
            copy = first.deep_copy()
        forced = copy.compute_ff_tokens()
        copy.consume_tokens(forced[:1])  # what was too much for it is told only now
        # How every answer begins, found once: tokenizing it takes longer than a mask. Each answer meets an error by itself.
        self._forced = None if copy.is_error() else forced

    def new_constraint(self) -> Constraint:
        """A constraint that shares its lexer with as few others as can be."""
        with self._lock:
            origin = min(self._origins, key=lambda candidate: len(candidate.users))
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
        constraint = Constraint(origin.matcher.deep_copy(), self._width, self._forced)
        origin.users.add(constraint)
        return constraint
