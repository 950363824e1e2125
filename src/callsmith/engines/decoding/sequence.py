"""One sequence being generated: sampling, grammar, stop strings and length, apart from the engine that decodes it."""

import math
from collections import Counter, deque
from collections.abc import Sequence as Tokens
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError, UsageError
from callsmith.core.values import Sampling, TokenLogprob
from callsmith.engines.decoding.compiler import ActiveConstraint, TriggeredConstraint
from callsmith.engines.decoding.vocabulary import Logits, Vocabulary
from callsmith.engines.port import Piece, SampledToken, with_defaults
from callsmith.engines.text import Writer

DEFAULTS: Final = Sampling(temperature=0.7, top_p=0.95, top_k=40, min_p=0.05)
_CLOSING_TOKENS: Final = 64  # so many tokens before the limit a constrained answer is steered to its end, to be complete
CLOSING_BONUS: Final = np.float32(1000)  # larger than any difference between logits
_BLOCK: Final = 4096  # logits of which the highest is found at once
_NEGLIGIBLE: Final = 1e-12  # a token this much less likely than the likeliest is never drawn


class Adjustment:
    """Changes the logits of an answer as its sampling settings ask for.

    Presence and frequency penalties count the tokens of the answer, sampled or forced by a grammar; the repetition penalty counts
    the prompt's too. With a `penalty_window`, only the last so many tokens count.
    """

    def __init__(self, sampling: Sampling, prompt: Tokens[int]) -> None:
        self._presence = sampling.presence_penalty or 0.0
        self._frequency = sampling.frequency_penalty or 0.0
        self._repetition = sampling.repetition_penalty or 1.0
        self._window = sampling.penalty_window
        self._biased = np.array([entry.token for entry in sampling.logit_bias], np.intp)
        self._bias = np.array([entry.bias for entry in sampling.logit_bias], np.float32)
        self._answer: Counter[int] = Counter()
        self._all: Counter[int] = Counter()
        self._recent: deque[tuple[int, bool]] = deque()  # the tokens in the window, each with whether the answer has written it
        if self._repetition != 1.0:
            for token in prompt if self._window is None else prompt[len(prompt) - min(self._window, len(prompt)) :]:
                if token >= 0:  # not a picture's
                    self.count(token, answered=False)

    def apply(self, logits: Logits) -> None:
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

    def count(self, token: int, *, answered: bool = True) -> None:
        """Count a token: one that the answer goes on with, or one of the prompt."""
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
            for counts in (self._all, self._answer) if was_answered else (self._all,):
                counts[gone] -= 1
                if not counts[gone]:
                    del counts[gone]


def check_bias(sampling: Sampling, size: int) -> None:
    """Complain about a bias on a token that a vocabulary of this size does not have."""
    for entry in sampling.logit_bias:
        if not 0 <= entry.token < size:
            raise UsageError(
                f"logit_bias: there is no token {entry.token}: they are numbered from 0 to {size - 1}", field="logit_bias"
            )


class Logprobs:
    """Records each token with its log probability and those of the `top` likeliest ones in its place.

    They are those of the model's own distribution: before temperature, penalties, biases and grammar.
    """

    def __init__(self, vocabulary: Vocabulary, top: int) -> None:
        self._vocabulary = vocabulary
        self._top = min(top, vocabulary.size)
        self._logits: Logits = np.zeros(0, np.float32)
        self._tokens: list[SampledToken] = []

    def see(self, logits: Logits) -> None:
        """The logits of the next token, which are changed afterwards."""
        self._logits = logits.copy()

    def add(self, token: int, start: int, end: int) -> None:
        """This token was sampled; `start` and `end` are the place of its text in the answer."""
        logits = self._logits
        highest = logits.max()
        whole = float(highest) + float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))

        def describe(id: int, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
            return TokenLogprob(self._vocabulary.says[id], float(logits[id]) - whole, top)

        likely = np.argpartition(logits, -self._top)[-self._top :] if self._top else np.zeros(0, np.intp)
        likely = likely[np.argsort(-logits[likely], kind="stable")]
        self._tokens.append(SampledToken(describe(token, tuple(describe(int(item)) for item in likely)), start, end))

    def take(self) -> tuple[SampledToken, ...]:
        tokens, self._tokens = tuple(self._tokens), []
        return tokens


class Sampler:
    """Samples tokens from logits: temperature, top-k, typical-p, top-p, min-p. The same seed samples the same."""

    def __init__(self, sampling: Sampling) -> None:
        self.temperature = sampling.temperature or 0.0
        self.top_k = sampling.top_k or 0
        self.top_p = 1.0 if sampling.top_p is None else sampling.top_p
        self.min_p = max(sampling.min_p or 0.0, _NEGLIGIBLE)
        self._log_min_p = math.log(self.min_p)
        self.typical_p = 1.0 if sampling.typical_p is None else sampling.typical_p
        self._random = np.random.default_rng(None if sampling.seed is None else sampling.seed % 2**64)

    def draw(self) -> float:
        """A random number from 0 to 1, the next one of the seed."""
        return self._random.random()

    def draw_settings(self) -> tuple[float, int, float, float, float]:
        """What a draw elsewhere goes by: temperature, top_k, top_p, the logarithm of min_p, and if need be a random number."""
        number = self.draw() if self.temperature > 0 else 0.0
        return self.temperature, self.top_k, self.top_p, self._log_min_p, number

    def choose(self, logits: Logits, active: ActiveConstraint | None = None) -> int:
        """The next token, of those the constraint allows: the result is as if all others had been masked first."""
        likely, best = self._find_likely(logits)
        if active is None:
            return self._drawn(logits, likely, best)
        if active.allows(best):
            return self._drawn(logits, likely[active.among(likely)] if len(likely) > 1 else likely, best)
        allowed = active.tokens()
        if not len(allowed):
            raise ModelError("the grammar leaves no token to choose from")
        candidates = logits[allowed]
        return int(allowed[self._drawn(candidates, *self._find_likely(candidates))])

    def _find_likely(self, logits: Logits) -> tuple[NDArray[np.intp], int]:
        """The tokens within reach of the best one, which are few, and the best. A whole vocabulary is gone through just once, for
        the highest of each block: that is most of what choosing takes."""
        highest: list[float] = np.maximum.reduceat(logits, _block_starts(len(logits))).tolist()
        top = max(highest)
        least = top + self.temperature * self._log_min_p if self.temperature > 0 else top
        starts = [place * _BLOCK for place, value in enumerate(highest) if value >= least]
        near = [(logits[start : start + _BLOCK] >= least).nonzero()[0] + start for start in starts]
        if top == -math.inf or not near:
            raise ModelError("the grammar leaves no token to choose from")
        likely = near[0] if len(near) == 1 else np.concatenate(near)
        return likely, int(likely[logits[likely].argmax()] if len(likely) > 1 else likely[0])

    def _drawn(self, logits: Logits, likely: NDArray[np.intp], best: int) -> int:
        if self.temperature <= 0:
            return best
        number = self.draw()
        if len(likely) == 1:
            return best
        top = float(logits[best])
        if 0 < self.top_k < len(likely):
            likely = likely[np.argpartition(-logits[likely], self.top_k - 1)[: self.top_k]]
        likely = likely[np.argsort(-logits[likely], kind="stable")]
        if self.typical_p < 1:
            likely = self._most_typical(likely, logits)
        weights: NDArray[np.float64] = np.exp((logits[likely].astype(np.float64) - top) / self.temperature).cumsum()
        enough = int(np.searchsorted(weights, self.top_p * float(weights[-1]))) + 1
        weights = weights[:enough]
        drawn = int(np.searchsorted(weights, number * float(weights[-1]), side="right"))
        return int(likely[min(drawn, len(weights) - 1)])

    def _most_typical(self, likely: NDArray[np.intp], logits: Logits) -> NDArray[np.intp]:
        """Those tokens whose surprise is closest to the expected one, as many as have `typical_p` of the probability."""
        scaled = logits[likely].astype(np.float64) / self.temperature
        surprise = np.log(np.exp(scaled - scaled[0]).sum()) - (scaled - scaled[0])
        shares = np.exp(-surprise)
        nearest = np.argsort(np.abs(surprise - (shares * surprise).sum()), kind="stable")
        enough = int(np.searchsorted(shares[nearest].cumsum(), self.typical_p)) + 1
        return likely[np.sort(nearest[:enough])]


@lru_cache(64)
def _block_starts(size: int) -> NDArray[np.intp]:
    return np.arange(0, size, _BLOCK)


class Sequence:
    """Generates one answer token by token under its grammar; the model, the grammar, a stop string or the length ends it.

    `pending` are the tokens to decode before the next one is sampled. `finished` is why it ended, once it has.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        sampling: Sampling,
        *,
        room: int,
        prompt: Tokens[int] = (),
        constraint: ActiveConstraint | TriggeredConstraint | None = None,
        fast_forward: bool = True,
    ) -> None:
        self._vocabulary = vocabulary
        self.sampler = Sampler(sampling)
        penalties = sampling.presence_penalty, sampling.frequency_penalty, (sampling.repetition_penalty or 1.0) - 1.0
        self._adjustment = Adjustment(sampling, prompt) if sampling.logit_bias or any(penalties) else None
        self._constraint = constraint
        self._logprobs = None if sampling.logprobs is None else Logprobs(vocabulary, sampling.logprobs)
        self._fast_forward = fast_forward and not self._logprobs  # tokens that are not sampled have no probabilities
        # Whether tokens can only be chosen with the logits at hand: penalties, log probabilities, typical-p.
        self.needs_logits = bool(self._logprobs or self._adjustment or self.sampler.typical_p < 1)
        self._most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        self._closing = self._most - min(_CLOSING_TOKENS, self._most // 2)
        self._writer = Writer(sampling.stop)
        self.pending: list[int] = []
        self.finished: Literal["stop", "length"] | None = None
        self.sampled = 0
        self.forced = 0

    @property
    def matched(self) -> str:
        """The stop string that ended the answer, if one did."""
        return self._writer.stopped

    @property
    def size(self) -> int:
        """How many tokens the answer has so far."""
        return self.sampled + self.forced

    def begin(self) -> list[Piece]:
        """The text that the grammar forces at the start."""
        self._check_end()
        return self._merge(self._force())

    @property
    def active(self) -> ActiveConstraint | None:
        """The constraint in force; None while every token is allowed."""
        return self._constraint.active if self._constraint else None

    @property
    def closing_quote(self) -> int | None:
        """Near its length limit an answer is steered to its end: the kind of quotes that does it now; None before.

        One kind of quote, then the other.
        """
        return self.size % 2 if self._is_closing else None

    def end_early(self) -> list[Piece] | None:
        """Near the length limit, end an answer that is complete as it is: another call might not fit. None if it goes on."""
        if not self._is_closing or (active := self.active) is None or not active.may_end:
            return None
        self.pending.clear()
        self.finished = "stop"
        return self._merge([])

    def advance(self, logits: Logits) -> list[Piece]:
        """Sample the next token; the tokens that the grammar forces after it follow without sampling."""
        # Nothing is computed ahead while a step decodes: looking up a few tokens takes microseconds, a step milliseconds.
        if self._logprobs:
            self._logprobs.see(logits)
        if self._adjustment:
            self._adjustment.apply(logits)
        if (ended := self.end_early()) is not None:
            return ended
        if (quote := self.closing_quote) is not None:
            logits += CLOSING_BONUS * self._vocabulary.closing[quote]
        active = self.active
        while (pieces := self.accept(token := self.sampler.choose(logits, active))) is None:
            logits[token] = -math.inf
        return pieces

    @property
    def may_refuse(self) -> bool:
        """Whether `accept` may refuse the next token, so that another one is to be sampled."""
        return isinstance(self._constraint, TriggeredConstraint) and self._constraint.active is None

    @property
    def may_skip(self) -> bool:
        """Whether tokens that the grammar forces after the next one are not sampled."""
        return self._fast_forward and self.active is not None

    def accept(self, token: int, *, skips: bool = True) -> list[Piece] | None:
        """Go on with this token, and if it `skips` with those that the grammar forces after it; None if it may not come here.

        That is found out only now where it completes a trigger and writes too much; then another one is to be sampled.
        """
        if isinstance(self._constraint, TriggeredConstraint) and not self._constraint.admits(token):
            return None
        self.pending.clear()
        if self._is_end(token):
            self.finished = "stop"
            return self._merge([])
        self.sampled += 1
        return self._merge([*self._take(token), *self._force()] if skips else self._take(token))

    @property
    def _is_closing(self) -> bool:
        return self.size >= self._closing and self.active is not None

    def _force(self) -> list[Piece]:
        pieces: list[Piece] = []
        if self.finished or not self._constraint or not self._fast_forward:
            return pieces
        while not self.finished and (
            tokens := self._constraint.find_forced()
        ):  # again: a relay may have changed to another grammar
            for token in tokens:
                if self._is_end(token):
                    self.finished = "stop"
                if self.finished:
                    break
                self.forced += 1
                pieces += self._take(token)
        return pieces

    def _take(self, token: int) -> list[Piece]:
        if self._constraint:
            self._constraint.consume(token)
        if self._adjustment:
            self._adjustment.count(token)
        self.pending.append(token)
        before, special = self._writer.size, self._vocabulary.special.get(token)
        pieces = self._writer.write(self._vocabulary.says[token]) if special is None else self._writer.write_special(special)
        if self._logprobs:
            self._logprobs.add(token, before, self._writer.size)
        self._check_end()
        return pieces

    def _is_end(self, token: int) -> bool:
        """Whether this token ends the answer."""
        if token not in self._vocabulary.ends:
            return False
        # One that is spelled in letters, and not special, is just text within a string of the grammar.
        return self._constraint is None or token in self._vocabulary.special or self._constraint.may_end

    def _check_end(self) -> None:
        if self._writer.stopped or (self._constraint and self._constraint.ended):
            self.finished = "stop"
        elif self.size >= self._most:
            self.finished = "length"

    def _merge(self, pieces: list[Piece]) -> list[Piece]:
        """Merge neighbouring pieces; at the end, with the text that was withheld for a stop string."""
        if self.finished:
            pieces = [*pieces, *self._writer.close()]
        elif len(pieces) < 2 and not self._logprobs:
            return pieces
        joined: list[Piece] = []
        for piece in pieces:
            if joined and not piece.special and not joined[-1].special:
                joined[-1] = Piece(joined[-1].text + piece.text)
            else:
                joined.append(piece)
        if self._logprobs and joined:
            joined[-1] = replace(joined[-1], tokens=self._logprobs.take())
        return joined


def with_standards(temperature: float | None, top_p: float | None, top_k: float | None, min_p: float | None) -> Sampling:
    """The sampling settings that weights recommend, with standard ones for those that they leave open."""
    own = Sampling(temperature, top_p=top_p, top_k=None if top_k is None else int(top_k), min_p=min_p)
    return with_defaults(own, DEFAULTS)
