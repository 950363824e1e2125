"""Changes to logits before a token is sampled: penalties on tokens that were written before, biases on tokens by their ids."""

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from callsmith.core.errors import UsageError
from callsmith.core.values import Sampling
from callsmith.engines.decoding.vocabulary import Logits


class Adjustment:
    """Changes the logits of an answer as its sampling settings ask for.

    Presence and frequency penalties count the tokens of the answer, sampled or forced by a grammar; the repetition penalty counts
    the prompt's too. With a `penalty_window`, only the last so many tokens count.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._presence = sampling.presence_penalty or 0.0
        self._frequency = sampling.frequency_penalty or 0.0
        self._repetition = sampling.repetition_penalty or 1.0
        self._window = sampling.penalty_window
        self._biased = np.array([one.token for one in sampling.logit_bias], np.intp)
        self._bias = np.array([one.bias for one in sampling.logit_bias], np.float32)
        self._answer: Counter[int] = Counter()
        self._all: Counter[int] = Counter()
        self._recent: deque[tuple[int, bool]] = deque()  # the tokens in the window, each with whether the answer has written it
        if self._repetition != 1.0:
            for token in prompt if self._window is None else prompt[len(prompt) - min(self._window, len(prompt)) :]:
                self._count(token, answered=False)

    def add(self, token: int) -> None:
        """The answer goes on with this token."""
        self._count(token, answered=True)

    def apply(self, logits: Logits) -> None:
        """Change the logits in place."""
        if self._repetition != 1.0 and self._all:
            seen = np.fromiter(self._all, np.intp, len(self._all))
            before = logits[seen]
            logits[seen] = np.where(before > 0, before / np.float32(self._repetition), before * np.float32(self._repetition))
        if (self._presence or self._frequency) and self._answer:
            seen = np.fromiter(self._answer, np.intp, len(self._answer))
            times = np.fromiter(self._answer.values(), np.float32, len(self._answer))
            logits[seen] -= np.float32(self._presence) + np.float32(self._frequency) * times
        if len(self._biased):
            logits[self._biased] += self._bias

    def _count(self, token: int, *, answered: bool) -> None:
        if self._window == 0:
            return
        self._all[token] += 1
        if answered:
            self._answer[token] += 1
        if self._window is None:
            return
        self._recent.append((token, answered))
        if len(self._recent) > self._window:
            gone, was_answered = self._recent.popleft()
            _discount(self._all, gone)
            if was_answered:
                _discount(self._answer, gone)


def _discount(counts: Counter[int], token: int) -> None:
    counts[token] -= 1
    if not counts[token]:
        del counts[token]


def adjustment_for(sampling: Sampling, prompt: Sequence[int]) -> Adjustment | None:
    """What the sampling settings ask for; None where nothing is to be changed."""
    penalties = sampling.presence_penalty, sampling.frequency_penalty, (sampling.repetition_penalty or 1.0) - 1.0
    return Adjustment(sampling, prompt) if sampling.logit_bias or any(penalties) else None


def check_bias(sampling: Sampling, size: int) -> None:
    """Complain about a bias on a token that a vocabulary of this size does not have."""
    for one in sampling.logit_bias:
        if not 0 <= one.token < size:
            raise UsageError(
                f"logit_bias: there is no token {one.token}: they are numbered from 0 to {size - 1}", field="logit_bias"
            )
