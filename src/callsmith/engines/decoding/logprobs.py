"""Log probabilities of the tokens of an answer, for requests that ask for them."""

import numpy as np

from callsmith.core.values import TokenLogprob
from callsmith.engines.decoding.vocabulary import Logits, Vocabulary
from callsmith.engines.port import SampledToken


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
        """This token was sampled; its text stands there in that of the answer."""
        logits = self._logits
        highest = logits.max()
        whole = float(highest) + float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))

        def described(one: int, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
            return TokenLogprob(self._vocabulary.says[one], float(logits[one]) - whole, top)

        likely = np.argpartition(logits, -self._top)[-self._top :] if self._top else np.zeros(0, np.intp)
        likely = likely[np.argsort(-logits[likely], kind="stable")]
        self._tokens.append(SampledToken(described(token, tuple(described(int(one)) for one in likely)), start, end))

    def take(self) -> tuple[SampledToken, ...]:
        """What was recorded since the last call."""
        tokens, self._tokens = tuple(self._tokens), []
        return tokens
