"""One answer's place in one grammar, by llguidance."""

from typing import Final

import llguidance
import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError
from callsmith.engines.llama.gguf import Logits

_SINGLY: Final = 24  # so many tokens are asked for one by one; for more the mask is cheaper


class Constraint:
    """One answer's place in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, width: int) -> None:
        self._matcher = matcher
        self._width = width
        self._mask = np.zeros(-(-width // 32), np.uint32)
        self._masked = False  # it is the mask of this very place
        self._unforced = False  # nothing is forced here. Where it is, a mask has only the forced token, and not its halves

    @property
    def held(self) -> "Constraint":
        """What holds the answer here: this, always."""
        return self

    @property
    def ended(self) -> bool:
        """The grammar is complete: nothing can follow."""
        return self._matcher.is_stopped()

    @property
    def may_end(self) -> bool:
        """What has been said is a whole answer, though more may follow."""
        return self._matcher.is_accepting()

    def restrict(self, logits: Logits) -> None:
        """Rule out, in place, every token the grammar does not allow here."""
        np.copyto(logits, np.float32(-np.inf), where=~self._allowed())

    def tokens(self) -> NDArray[np.intp]:
        """All tokens the grammar allows here."""
        return np.flatnonzero(self._allowed())

    def among(self, tokens: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these tokens the grammar allows here. A few of them are cheaper to try than a whole mask is to make."""
        if not self._masked and self._unforced and len(tokens) <= _SINGLY:
            found = [self._matcher.validate_tokens([token]) == 1 for token in tokens.tolist()]
            self._check()
            return np.array(found, np.bool_)
        self._fill()
        return (self._mask[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1 == 1

    def _allowed(self) -> NDArray[np.bool_]:
        self._fill()
        return np.unpackbits(self._mask.view(np.uint8), count=self._width, bitorder="little").view(np.bool_)

    def _fill(self) -> None:
        if not self._masked:
            self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
            self._check()
            self._masked = True

    def admits(self, token: int) -> bool:
        """Take in a token that nobody has masked, if the grammar has it here."""
        taken = self._matcher.try_consume_tokens([token]) == 1
        if taken:
            self._masked = self._unforced = False
        return taken

    def consume(self, token: int) -> None:
        """The answer goes on with this token."""
        self._matcher.consume_token(token)
        self._masked = self._unforced = False
        self._check()

    def forced(self) -> list[int]:
        """The tokens that must come next, as far as there is no choice. They are not consumed yet."""
        tokens = self._matcher.compute_ff_tokens()
        self._check()
        self._unforced = not tokens
        return tokens

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ModelError(f"the grammar engine gave up: {self._matcher.get_error()}", hint="simplify the tools' schemas")
