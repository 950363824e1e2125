"""Masks of grammars: found in threads, and applied on the device for all rows in one pass."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from threading import Event
from typing import Final, TypeAlias

import llguidance
import numpy as np

from callsmith.engines.decoding.compiler import ActiveConstraint
from callsmith.engines.transformers.libraries import Tensor, torch

UNMASKED, MASKED, FIRST_QUOTE = -1, 0, 1  # what is done to a row; from FIRST_QUOTE on, tokens that close get a bonus besides

_has_kernel = torch.cuda.is_available() and find_spec("triton") is not None
_SAMPLED_WORDS: Final = 128  # one of so many words of a mask is looked at
MaskRow: TypeAlias = tuple[ActiveConstraint, int]  # a constraint, and the row of its mask


def apply_masks(logits: Tensor, bits: Tensor, kinds: Tensor, bonus: Tensor) -> None:
    """Change the logits in place: a row for each answer, with a bit for each token in `bits` and what is done in `kinds`.

    `bonus` has a row for each kind of quotes.
    """
    if _has_kernel and logits.is_cuda:
        from callsmith.engines.transformers import kernel

        kernel.apply_masks(logits, bits, kinds, bonus)
        return
    places = torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = ((bits[:, :, None] >> places) & 1).bool().reshape(len(bits), -1)[:, : logits.shape[1]] | (kinds < MASKED)[:, None]
    added = torch.where((kinds >= FIRST_QUOTE)[:, None], bonus[(kinds - FIRST_QUOTE).clamp(min=0)], 0.0)
    logits.copy_(torch.where(allowed, logits + added, float("-inf")))


class MaskFinder:
    """Writes masks for many answers at once, in threads of the grammar engine, into the rows of `bits`.

    What an answer may go on with depends on its tokens alone. So on a GPU (`ahead`) the masks of a step are begun as soon as the
    tokens of the step before are accepted, while pieces are delivered and the forward pass is prepared and runs.
    A matcher is used by one thread at a time: between `begin` and `wait` those that were given belong to another one.
    """

    def __init__(self, bits: Tensor, threads: int, *, ahead: bool) -> None:
        self.seconds = 0.0  # spent so far
        self._bits = bits
        self._executor = llguidance.LLExecutor(num_threads=threads)
        self._thread = ThreadPoolExecutor(1, "callsmith-masks") if ahead else None
        self._running = Event()
        self._begun: Future[None] | None = None
        self._ready: dict[int, llguidance.LLMatcher] = {}  # by row: whose mask is there, or will be

    def begin(self, rows: Iterable[MaskRow]) -> None:
        """Begin to find the masks that the next step will probably need."""
        if self._thread is None or not (matchers := self._spread(rows)):
            return
        self._ready = {row: matcher for matcher, row in matchers}
        self._running.clear()
        self._begun = self._thread.submit(self._find, matchers)
        self._running.wait()  # it has the interpreter now, and gives it back when the grammar engine is at work

    def wait(self) -> None:
        """Wait until no matcher is in use any more."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            begun.result()

    def find(self, rows: Iterable[MaskRow]) -> None:
        """Find the masks of these that are not there yet."""
        self.wait()
        ready, self._ready = self._ready, {}
        if matchers := self._spread((active, row) for active, row in rows if ready.get(row) is not active.matcher):
            self._find(matchers)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def _find(self, matchers: list[tuple[llguidance.LLMatcher, int]]) -> None:
        self._running.set()  # before anything that may fail: `begin` waits for it
        began = time.perf_counter()
        self._executor.unsafe_compute_mask_ptr(matchers, self._bits.data_ptr(), self._bits.shape[1] * 4, self._bits.shape[0])
        self.seconds += time.perf_counter() - began

    def _spread(self, rows: Iterable[MaskRow]) -> list[tuple[llguidance.LLMatcher, int]]:
        """The matchers and their rows, in an order in which what is likely to take long is shared out evenly.

        Neighbours are left to one thread.
        A mask takes long where many tokens are possible but not just any, as in a string of limited length. So it probably does
        where many were possible in the step before.
        """
        some = self._bits.numpy()[:, ::_SAMPLED_WORDS]
        wide = (2 * np.count_nonzero(some, axis=1) > some.shape[1]).tolist()
        matchers = [(active.matcher, row) for active, row in rows]
        long, short = ([matcher for matcher in matchers if wide[matcher[1]] is is_wide] for is_wide in (True, False))
        if not long:
            return short
        return [item for place, first in enumerate(long) for item in (first, *short[place :: len(long)])]
