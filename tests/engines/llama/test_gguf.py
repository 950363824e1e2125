"""The caching tokenizer gives what the one behind it gives, which is asked once."""

import ctypes as C
import re

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("xllamacpp")

from callsmith.engines.llama.gguf import _TOKENIZE, CachedTokenize


def asking(function: CachedTokenize, text: bytes, room: int = 16, *, reads: bool = False) -> tuple[int, list[int]]:
    tokens = (C.c_int32 * 16)()
    count = C.cast(function.address, _TOKENIZE)(None, text, len(text), C.addressof(tokens), room, False, reads)
    return count, tokens[: max(0, count)]


def test_a_text_is_tokenized_once_and_apart_from_other_texts_and_other_ways() -> None:
    tokenized: list[bytes] = []

    @_TOKENIZE
    def letters(_: int, text: int, size: int, tokens: int, room: int, adds: bool, reads: bool) -> int:
        content = C.string_at(text, size)
        tokenized.append(content)
        if size > room:
            return -size
        C.memmove(tokens, (C.c_int32 * size)(*(letter + 1000 * reads for letter in content)), 4 * size)
        return size

    cached = CachedTokenize(letters)
    for _ in range(2):
        assert asking(cached, b"ab\0c") == (4, [97, 98, 0, 99])
        assert asking(cached, b"ab", reads=True) == (2, [1097, 1098])
        assert asking(cached, b"ab") == (2, [97, 98])
        assert asking(cached, b"") == (0, [])
    assert tokenized == [b"ab\0c", b"ab", b"ab", b""]
    assert asking(cached, b"ab", room=1) == (-2, [])
    assert asking(cached, b"xyz", room=2) == (-3, [])
    assert asking(cached, b"xyz") == (3, [120, 121, 122])


def test_no_token_is_found_in_a_text_that_only_spells_it() -> None:
    @_TOKENIZE
    def marks(_: int, text: int, size: int, tokens: int, room: int, adds: bool, reads: bool) -> int:
        ids = [1 if piece else letter for piece, letter in _split(C.string_at(text, size))]
        C.memmove(tokens, (C.c_int32 * len(ids))(*ids), 4 * len(ids))
        return len(ids)

    cached = CachedTokenize(marks, [b"<call>", b"</call>"])
    assert asking(cached, b"a<call>", reads=True) == (2, [97, 1])
    assert asking(cached, b"a<call>") == (7, list(b"a<call>"))
    assert asking(cached, b"<</call>") == (8, list(b"<</call>"))


def _split(text: bytes) -> list[tuple[bytes, int]]:
    """Marks and letters, as a tokenizer finds them."""
    return [(mark, letter[0] if letter else 0) for mark, letter in re.findall(rb"(</?call>)|(.)", text)]
