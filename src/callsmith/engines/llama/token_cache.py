"""Where a text can be cut up so that the tokens of the pieces are the tokens of the whole: before a special token.

A tokenizer first looks for its special tokens, the longest first, and goes on with each text between them by itself. Some put a
space before a text at the beginning or behind a special token: a piece that begins with its special token is told the same there.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

LONG: Final = 512  # bytes: what is shorter is tokenised sooner than looked up


class Seams:
    """`texts` are those of all special tokens; no cut is made before one in `eaters`, for it eats white space before it."""

    def __init__(self, texts: Iterable[bytes], eaters: Iterable[bytes] = ()) -> None:
        self._found = _always_found(list(texts)).difference(eaters)
        self._lengths = sorted({len(text) for text in self._found})
        first = b"".join(sorted({re.escape(text[:1]) for text in self._found}))
        self._starts = re.compile(b"[" + first + b"]") if first else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The text in pieces that are long, where it can be; the same beginning gives the same pieces."""
        begun = 0
        for start, end in pairwise((*self._cuts(data), len(data))):
            if begun < start and max(start - begun, end - start) >= LONG:
                yield data[begun:start]
                begun = start
        yield data[begun:]

    def _cuts(self, data: bytes) -> Iterator[int]:
        for hit in self._starts.finditer(data) if self._starts and len(data) >= LONG else ():
            at = hit.start()
            if any(data[at : at + length] in self._found for length in self._lengths):
                yield at


def _always_found(texts: list[bytes]) -> frozenset[bytes]:
    """Those that are special tokens wherever they stand: no other can take a part of them first."""
    every = b"\0".join(texts)
    starts = {text[:size] for text in texts for size in range(1, len(text))}
    ends = {text[size:] for text in texts for size in range(1, len(text))}

    def alone(text: bytes) -> bool:
        overlaps = any(text[size:] in starts or text[:size] in ends for size in range(1, len(text)))
        # White space at its ends could be eaten by a neighbour.
        return text == text.strip() != b"" and every.count(text) == 1 and not overlaps

    return frozenset(filter(alone, texts))
