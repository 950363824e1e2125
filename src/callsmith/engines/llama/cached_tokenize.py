"""llama.cpp's tokenizer as a C function that caches: for the grammar engine, which tokenizes what must come next.

The text between two choices is the same in every answer, and llama.cpp takes up to 0.1 ms for a line of it.
"""

import ctypes as C
from typing import Any, Final

from callsmith.engines.lru import LRU

_CACHED_BYTES: Final = 1 << 20  # of text, and of its tokens
_LONGEST: Final = 4096  # bytes of a text that is cached

# vocabulary, text and its size, where the tokens go and how many fit, whether special ones are added, and whether they are read
_TOKENIZE = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool)


class CachedTokenize:
    """A function of the same signature and meaning as `tokenize`, at `address`. It must live as long as somebody may call it."""

    def __init__(self, tokenize: Any) -> None:
        self._tokenize = C.cast(tokenize, _TOKENIZE)
        self._cache: LRU[bytes] = LRU(_CACHED_BYTES)
        self._callback = _TOKENIZE(self._find)
        self.address = C.cast(self._callback, C.c_void_p).value or 0

    def _find(self, vocabulary: int, text: int, size: int, tokens: int, room: int, adds: bool, reads: bool) -> int:
        if size > _LONGEST:
            return self._tokenize(vocabulary, text, size, tokens, room, adds, reads)
        key = vocabulary, C.string_at(text, size), adds, reads
        known = self._cache.get(key)
        if known is None:
            count = self._tokenize(vocabulary, text, size, tokens, room, adds, reads)
            if count >= 0:
                self._cache.put(key, C.string_at(tokens, 4 * count), size + 4 * count)
            return count
        count = len(known) // 4
        if count > room:
            return -count
        C.memmove(tokens, known, len(known))
        return count
