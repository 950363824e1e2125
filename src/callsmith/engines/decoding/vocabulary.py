"""The tokens of a model: the text of each, which are special, which end an answer. Engines say how a text is tokenized."""

import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

import llguidance
import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import PromptTooLong, UsageError
from callsmith.engines.lru import LRU
from callsmith.formats.prompt.prompt import Prompt, split_at_images

LONG: Final = 512  # bytes: tokenizing a shorter piece is faster than a lookup
Logits: TypeAlias = NDArray[np.float32]
_SAMPLED_CHARACTERS: Final = 8  # for each token of the context: a longer prompt is tokenized in part first; real text has fewer
_CACHED_BYTES: Final = 32 << 20  # of text, and of its tokens: a few dozen prompts with hundreds of tools
# Brackets and tags, then separators, then a digit.
_CLOSING = [(re.compile(rb"[\]})]+|</?|/?>"), 3), (re.compile(rb"""[,:]\s?["']?"""), 2), (re.compile(rb"\s?[0-9]"), 1)]


class SafeCuts:
    """Where a text can be cut so that the tokens of the pieces are the tokens of the whole: before special tokens.

    A tokenizer first looks for those, the longest first, and goes on with each text between them by itself. Some put a space
    before a text at the beginning or behind a special token: a piece that begins with one gets the same there. `texts` are all
    special tokens; no cut is made before one in `eaters`, which strip white space.
    """

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


class Vocabulary(ABC):
    """The tokens: the text of each, which are special, which end an answer. `bos` and `eos` are -1 where there is none."""

    size: int
    bos: int
    eos: int
    adds_bos: bool
    says: list[bytes]
    ends: frozenset[int]
    special: Mapping[int, str]
    specials: Mapping[str, int]

    @cached_property
    def _token_cache(self) -> "LRU[array[int]]":
        return LRU(_CACHED_BYTES)

    def tokenize(self, text: str, *, specials: bool = True) -> list[int]:
        """The tokens of the text, special ones where their text occurs, unless `specials` is off; no BOS is added.

        Most of a prompt was in the one before: the tokens of long pieces are cached.
        """
        if not specials:
            return self._tokens(_encode(text), specials=False).tolist()
        tokens: list[int] = []
        for piece in self._safe_cuts.pieces(_encode(text)):
            known = self._token_cache.get(piece)
            if known is None:
                known = self._tokens(piece)
                if len(piece) >= LONG:
                    self._token_cache.put(piece, known, len(piece) + len(known) * known.itemsize)
            tokens += known
        return tokens

    def prompt(
        self,
        prompt: Prompt,
        most: int | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        images: Iterable[Sequence[int]] = (),
    ) -> list[int]:
        """The tokens of a prompt: with BOS if the model wants it and the text does not begin with it. `images` are those of each
        image of it.

        A prompt that has certainly more than `most` tokens is refused before all of it is tokenized.
        """
        if prompt.tokens is not None:
            self.decode(prompt.tokens)
            return [*prompt.tokens]
        pieces = [piece for piece in prompt.pieces if piece]
        if most is not None:
            self._refuse_too_long(pieces, most)
        tokens: list[int] = []
        left = [*images][::-1]
        for piece in pieces:
            if is_cancelled():
                return []
            for place, text in enumerate(split_at_images(piece, len(left)) if left else [piece]):
                tokens += left.pop() if place else ()
                tokens += self.tokenize(text)
        if self.adds_bos and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def _refuse_too_long(self, pieces: list[str], most: int) -> None:
        """Raise PromptTooLong if that is certain: no token spans two pieces, and a part of one has fewer than the whole."""
        if len(pieces) > most:
            raise PromptTooLong(len(pieces), most, is_least=True)
        for piece in pieces:
            if len(piece) > (enough := _SAMPLED_CHARACTERS * (most + 64)):
                count = len(self._tokens(_encode(piece[:enough]))) - 64  # around the cut there may be more than in the whole
                if count > most:
                    raise PromptTooLong(count, most, is_least=True)

    def decode(self, tokens: Iterable[int]) -> list[bytes]:
        tokens = [*tokens]
        for token in tokens:
            if not 0 <= token < self.size:
                raise UsageError(f"there is no token {token}: they are numbered from 0 to {self.size - 1}")
        return [self.says[token] for token in tokens]

    def text(self, token: int) -> str:
        """The text of one token; empty for a token the model does not have."""
        return self.says[token].decode("utf-8", "replace") if token >= 0 else ""

    @cached_property
    def closing(self) -> tuple[Logits, Logits]:
        """How much nearer each token brings a structure to its end: where strings end in `"`, and where they end in `'`.

        Quotes count most, for between them brackets are only text; and so is the other quote.
        """
        double, single = ([(ends, 4), *_CLOSING] for ends in (re.compile(rb'"[\]})]*'), re.compile(rb"'[\]})]*")))
        return self._rank(double), self._rank(single)

    def _rank(self, steps: list[tuple[re.Pattern[bytes], int]]) -> Logits:
        ranks = (next((rank for pattern, rank in steps if pattern.fullmatch(token_bytes)), 0) for token_bytes in self.says)
        return np.fromiter(ranks, np.float32, self.size)

    def mark_special(self, token: int) -> bytes:
        """The bytes of a token; those of a special one, and of a picture's, are marked by a leading byte that no text has."""
        if token < 0:
            return b"\xff%d" % token
        return b"\xff" + self.says[token] if token in self.special else self.says[token]

    def marked_text(self, text: str) -> bytes:
        """The bytes of a text as its tokens give them, special tokens marked."""
        pieces = self._split_specials.split(text) if self._split_specials else [text]
        return b"".join(b"\xff" * (piece in self.specials) + piece.encode() for piece in pieces)

    @cached_property
    def _split_specials(self) -> re.Pattern[str] | None:
        longest_first = sorted(self.specials, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None

    @abstractmethod
    def guidance_tokenizer(self, slices: list[str]) -> llguidance.LLTokenizer:
        """The same tokens for llguidance, the special ones marked as such."""

    @abstractmethod
    def _tokens(self, data: bytes, *, specials: bool = True) -> "array[int]":
        """The tokens of a text, in UTF-8."""

    @cached_property
    @abstractmethod
    def _safe_cuts(self) -> SafeCuts: ...


def _encode(text: str) -> bytes:
    """The text in UTF-8, with a question mark for half of a surrogate pair: in the arguments of a call there may be one."""
    return text.encode("utf-8", "replace")


class ByteVocabulary(Vocabulary):
    """A token for each byte: for grammars that are held against texts, without a model."""

    def __init__(self) -> None:
        self.size, self.bos, self.eos, self.adds_bos = 262, -1, 261, False
        self.says = [bytes([byte]) for byte in range(256)] + [b""] * 6
        self.ends, self.special, self.specials = frozenset({self.eos}), {}, {}

    def guidance_tokenizer(self, slices: list[str]) -> llguidance.LLTokenizer:
        return llguidance.LLTokenizer("byte", slices=slices)

    def _tokens(self, data: bytes, *, specials: bool = True) -> "array[int]":
        return array("i", list(data))

    @cached_property
    def _safe_cuts(self) -> SafeCuts:
        return SafeCuts(())
