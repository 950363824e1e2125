"""Where a text can be cut so that the tokens of the pieces are the tokens of the whole: before special tokens.

Tokens of long pieces are cached (`Vocabulary.tokenize`), for most of a prompt was in the one before.

A tokenizer first looks for its special tokens, the longest first, and goes on with each text between them by itself. Some put a
space before a text at the beginning or behind a special token: a piece that begins with a special token gets the same there.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

LONG: Final = 512  # bytes: tokenizing a shorter piece is faster than a lookup


class SafeCuts:
    """Finds safe cuts. `texts` are all special tokens; no cut is made before one in `eaters`, which strip white space."""

    def __init__(self, texts: Iterable[bytes], eaters: Iterable[bytes] = ()) -> None:
        self._found = _always_found(list(texts)).difference(eaters)
        self._lengths = sorted({len(text) for text in self._found})
        first = b"".join(sorted({re.escape(text[:1]) for text in self._found}))
        self._starts = re.compile(b"[" + first + b"]") if first else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Cut the text into long pieces, where possible; texts with the same prefix get the same pieces."""
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
    """Those that are found wherever they stand: no other special token overlaps them."""
    every = b"\0".join(texts)
    starts = {text[:size] for text in texts for size in range(1, len(text))}
    ends = {text[size:] for text in texts for size in range(1, len(text))}

    def alone(text: bytes) -> bool:
        overlaps = any(text[size:] in starts or text[:size] in ends for size in range(1, len(text)))
        # White space at its ends could be stripped by a neighbour.
        return text == text.strip() != b"" and every.count(text) == 1 and not overlaps

    return frozenset(filter(alone, texts))
