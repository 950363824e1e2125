"""Masks of grammars: found in threads, and applied on the device for all rows in one pass."""

import time
from collections.abc import Iterable
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, TypeAlias

import llguidance
import numpy as np

from callsmith.engines.decoding.compiler import ActiveConstraint
from callsmith.engines.transformers.libraries import Tensor, torch

UNMASKED, MASKED, FIRST_QUOTE = -1, 0, 1  # what is done to a row; from FIRST_QUOTE on, tokens that close get a bonus besides

_has_kernel = torch.cuda.is_available() and find_spec("triton") is not None
_SAMPLED_WORDS: Final = 512  # one of so many words of a mask is looked at
_MOST_BEGUN: Final = 2  # threads, each of which waits for the grammar engine
MaskRow: TypeAlias = tuple[ActiveConstraint, int]  # a constraint, and the row of its mask
_Matchers: TypeAlias = list[tuple[llguidance.LLMatcher, int]]


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
    tokens of the step before are accepted, while others are, pieces are delivered, and the forward pass runs.
    A matcher is used by one thread at a time: between `begin` and `wait` those that were given belong to another one.
    """

    def __init__(self, bits: Tensor, threads: int, *, ahead: bool) -> None:
        self.seconds = 0.0  # spent so far
        self._bits = bits
        self._some_words = bits.numpy()[:, ::_SAMPLED_WORDS]
        self._executor = llguidance.LLExecutor(num_threads=threads)
        # Plain queues and a lock: a pool of futures would take longer to hand the work over than some masks take.
        self._asked: SimpleQueue[_Matchers | None] = SimpleQueue()
        self._results: SimpleQueue[float | BaseException] = SimpleQueue()
        self._running = Lock()
        self._running.acquire()
        self._threads = [
            Thread(target=self._serve, name=f"callsmith-masks-{number}", daemon=True)
            for number in range(_MOST_BEGUN if ahead else 0)
        ]
        for thread in self._threads:
            thread.start()
        self._begun = 0
        self._began = 0.0  # when the first of them was
        self._ready: dict[int, llguidance.LLMatcher] = {}  # by row: whose mask is there, or will be

    def begin(self, rows: list[MaskRow]) -> None:
        """Begin to find masks that the next step will probably need, beside those that are begun: at most twice."""
        if not self._threads or not rows:
            return
        if not self._begun:
            self._began = time.perf_counter()
        matchers = [(active.matcher, row) for active, row in rows]
        self._ready.update((row, matcher) for matcher, row in matchers)
        self._begun += 1
        self._asked.put(matchers)
        self._running.acquire()  # a thread has the interpreter now, and gives it back when the grammar engine is at work

    def wait(self) -> None:
        """Wait until no matcher is in use any more."""
        if not self._begun:
            return
        results = [self._results.get() for _ in range(self._begun)]
        self._begun = 0
        for result in results:
            if isinstance(result, BaseException):
                raise result
            self.seconds += max(0.0, result - self._began)
            self._began = max(self._began, result)

    def find(self, rows: Iterable[MaskRow]) -> None:
        """Find the masks of these that are not there yet."""
        self.wait()
        ready, self._ready = self._ready, {}
        if matchers := self._spread([(active, row) for active, row in rows if ready.get(row) is not active.matcher]):
            began = time.perf_counter()
            self.seconds += self._find(matchers) - began

    def close(self) -> None:
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (matchers := self._asked.get()) is not None:
            self._running.release()
            try:
                self._results.put(self._find(matchers))
            except BaseException as error:  # it is raised where it is waited for
                self._results.put(error)

    def _find(self, matchers: _Matchers) -> float:
        """Find masks; gives the time when they are found."""
        self._executor.unsafe_compute_mask_ptr(matchers, self._bits.data_ptr(), self._bits.shape[1] * 4, self._bits.shape[0])
        return time.perf_counter()

    def _spread(self, rows: list[MaskRow]) -> _Matchers:
        """The matchers and their rows, in an order in which what is likely to take long is shared out evenly.

        Neighbours are left to one thread.
        """
        matchers = [(active.matcher, row) for active, row in rows]
        wide = self.wide([row for _, row in rows])
        long, short = ([pair for pair in matchers if (pair[1] in wide) is is_wide] for is_wide in (True, False))
        if not long:
            return short
        return [pair for place, first in enumerate(long) for pair in (first, *short[place :: len(long)])]

    def wide(self, rows: list[int]) -> set[int]:
        """Those rows whose next mask will probably take long.

        A mask takes long where many tokens are possible but not just any, as in a string of limited length. So it probably does
        where many were possible in the step before.
        """
        if not rows:
            return set()
        some = self._some_words[rows]
        are_wide = (2 * np.count_nonzero(some, axis=1) > some.shape[1]).tolist()
        return {row for row, is_wide in zip(rows, are_wide, strict=True) if is_wide}
