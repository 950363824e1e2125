"""llama.cpp's tokenizer as a C function that caches: for the grammar engine, which tokenizes what must come next.

The text between two choices is the same in every answer, and llama.cpp takes up to 0.1 ms for a line of it.
"""

import ctypes as C
import re
from collections.abc import Iterable
from typing import Any, Final

from callsmith.engines.lru import LRU

_CACHED_BYTES: Final = 1 << 20  # of text, and of its tokens
_LONGEST: Final = 4096  # bytes of a text that is cached

# vocabulary, text and its size, where the tokens go and how many fit, whether special ones are added, and whether they are read
_TOKENIZE = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool)


class CachedTokenize:
    """A function of the same signature and meaning as `tokenize`, at `address`. It must live as long as somebody may call it.

    `apart` are texts of tokens that llama.cpp finds in every text, even where no special ones are to be read. A grammar that
    has these letters means the letters.
    """

    def __init__(self, tokenize: Any, apart: Iterable[bytes] = ()) -> None:
        self._tokenize = C.cast(tokenize, _TOKENIZE)
        edges = [rb"(?<=%b)(?=%b)" % (re.escape(text[:1]), re.escape(text[1:])) for text in apart]
        self._cuts = re.compile(b"|".join(edges)) if edges else None  # behind the first letter: no piece has all of such a text
        self._cache: LRU[bytes] = LRU(_CACHED_BYTES)
        self._callback = _TOKENIZE(self._find)
        self.address = C.cast(self._callback, C.c_void_p).value or 0

    def _find(self, vocabulary: int, text: int, size: int, tokens: int, room: int, adds: bool, reads: bool) -> int:
        said = C.string_at(text, size)
        key = vocabulary, said, adds, reads
        known = self._cache.get(key)
        if known is None:
            pieces = [said] if reads or self._cuts is None else self._cuts.split(said)
            known = b"".join(self._tokens(vocabulary, piece, adds, reads) for piece in pieces)
            if size <= _LONGEST:
                self._cache.put(key, known, size + len(known))
        count = len(known) // 4
        if count > room:
            return -count
        C.memmove(tokens, known, len(known))
        return count

    def _tokens(self, vocabulary: int, piece: bytes, adds: bool, reads: bool) -> bytes:
        room = len(piece) + 8  # no token has less than a byte, but for those that are added
        tokens = (C.c_int32 * room)()
        count = self._tokenize(vocabulary, piece, len(piece), C.addressof(tokens), room, adds, reads)
        return C.string_at(tokens, 4 * max(0, count))
