"""Pictures among the tokens of a prompt: a run of negative numbers that the KV cache knows again, for rows that are decoded.

A number says which picture it is (a fingerprint of its content), how many tokens that has, and which of them it is. So the same
picture is the same run, a prefix that two prompts share never ends inside one, and nothing else has to know of pictures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import UsageError
from callsmith.core.values import Image

MOST_TOKENS: Final = (1 << 16) - 1  # of one picture, or one part of it


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Picture:
    """A picture, or one part of it, as the model reads it: a row of numbers instead of each token.

    `span` is how many positions it takes in the sequence. `positions` are those of its rows, in as many lines as the model has
    kinds of positions, for a picture at position 0 and for one at position 1: some count from the picture's own beginning.
    `is_whole`: its rows see each other, so that they are decoded together.
    """

    tokens: tuple[int, ...]
    rows: NDArray[np.float32]
    span: int
    positions: tuple[NDArray[np.int32], NDArray[np.int32]]
    is_whole: bool = False

    def positions_at(self, begin: int) -> NDArray[np.int32]:
        """The positions of its rows where its first position is this one."""
        at_zero, at_one = self.positions
        return at_zero + (at_one - at_zero) * np.int32(begin)


@dataclass(frozen=True, slots=True)
class ShownImage:
    """What an image becomes in a prompt: ordinary tokens around pictures."""

    parts: tuple[tuple[int, ...] | Picture, ...]

    @property
    def tokens(self) -> list[int]:
        return [*chain.from_iterable(part.tokens if isinstance(part, Picture) else part for part in self.parts)]

    @property
    def pictures(self) -> list[Picture]:
        return [part for part in self.parts if isinstance(part, Picture)]

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(picture.rows.nbytes for picture in self.pictures) + 1


# Shows an image to a model, for prompts of this cache salt. What is no image that it can read is a UsageError.
ShowImage: TypeAlias = Callable[[Image, str], ShownImage]


def number_tokens(fingerprint: int, count: int) -> tuple[int, ...]:
    """The numbers that stand for the tokens of the picture with this fingerprint."""
    if not 0 < count <= MOST_TOKENS:
        raise UsageError(f"messages: an image takes {count} tokens; at most {MOST_TOKENS} can be read", field="messages")
    first = fingerprint << 32 | count << 16
    return tuple(~(first | place) for place in range(count))


def count_rest(token: int) -> int:
    """How many tokens of its picture there are from this one on."""
    return (~token >> 16 & MOST_TOKENS) - (~token & MOST_TOKENS)


def count_text(tokens: Sequence[int], most: int) -> int:
    """How many of these tokens, at most so many, come before the first picture."""
    head = tokens[:most]
    return next((place for place, token in enumerate(head) if token < 0), len(head))
