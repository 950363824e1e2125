"""From tokens to text: whole characters only, and no part of a stop string."""

import codecs
from collections import deque
from collections.abc import Iterable

from callsmith.engines.port import Piece


class _StopString:
    """How much of a stop string the end of a text is: the search of Knuth, Morris and Pratt, a character at a time.

    `_borders` has, for each beginning of the stop string so far, the size of the longest shorter one that it ends with.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._borders: list[int] = []

    def feed(self, character: str) -> bool:
        """Go on by a character; whether the stop string is complete now."""
        text, borders = self.text, self._borders
        self.matched = self._longest(self.matched, character)
        if self.matched > len(borders):
            last = text[self.matched - 1]
            borders.append(self._longest(borders[-1], last) if borders else 0)
        return self.matched == len(text)

    def _longest(self, size: int, character: str) -> int:
        """The longest beginning with which a text ends that ended with one of this size, and got this character."""
        while size and self.text[size] != character:
            size = self._borders[size - 1]
        return size + (self.text[size] == character)


class StopScanner:
    """Passes text on up to the first stop string; withholds text that may become one.

    >>> scanner = StopScanner(["END"])
    >>> scanner.feed(Piece("one E")), scanner.feed(Piece("ND two")), scanner.found
    ([Piece(text='one ', special=False)], [], True)
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(_StopString(stop) for stop in stops if stop)
        self._first = frozenset(stop.text[0] for stop in self._stops)
        self._withheld: deque[Piece] = deque()
        self._size = 0  # characters withheld
        self.matched = ""

    @property
    def found(self) -> bool:
        return bool(self.matched)

    def feed(self, piece: Piece) -> list[Piece]:
        """The text that can be passed on now."""
        if self.found or not piece.text:
            return []
        if not self._withheld and self._first.isdisjoint(piece.text):
            return [piece]
        self._withheld.append(piece)
        before, self._size = self._size, self._size + len(piece.text)
        for size, character in enumerate(piece.text, before + 1):
            # The first to be complete, so that it does not matter how the text was cut; of those, the one that began first.
            complete = [stop.text for stop in self._stops if stop.feed(character)]
            if complete:
                self.matched = max(complete, key=len)
                pieces = self._release(size - len(self.matched))
                self._withheld.clear()
                return pieces
        return self._release(self._size - max(stop.matched for stop in self._stops))

    def close(self) -> list[Piece]:
        """The withheld text at the end of the answer: it is no stop string."""
        withheld, self._withheld = self._withheld, deque[Piece]()
        return list(withheld)

    def _release(self, size: int) -> list[Piece]:
        """Remove the first `size` characters from the withheld text. A special token is released whole or not at all."""
        pieces: list[Piece] = []
        while size and self._withheld:
            piece = self._withheld[0]
            if len(piece.text) <= size:
                pieces.append(self._withheld.popleft())
                size -= len(piece.text)
                self._size -= len(piece.text)
            elif piece.special:
                break
            else:
                pieces.append(Piece(piece.text[:size]))
                self._withheld[0] = Piece(piece.text[size:])
                self._size -= size
                break
        return pieces


class Writer:
    """Decodes the bytes of tokens as UTF-8: a character may span tokens, and a token may hold several."""

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._scanner = StopScanner(stops)
        self.size = 0  # characters decoded so far

    @property
    def stopped(self) -> str:
        """The stop string that was found, after which nothing more is passed on; empty before."""
        return self._scanner.matched

    def write(self, data: bytes) -> list[Piece]:
        """An ordinary token."""
        text = self._decoder.decode(data)
        self.size += len(text)
        return self._scanner.feed(Piece(text))

    def write_special(self, text: str) -> list[Piece]:
        """A special token: a character left half-written before it stays broken."""
        before = self._cut()
        self.size += len(text)
        return [*before, *self._scanner.feed(Piece(text, special=True))]

    def close(self) -> list[Piece]:
        """The text that was still withheld."""
        return [*self._cut(), *self._scanner.close()]

    def _cut(self) -> list[Piece]:
        broken = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self.size += len(broken)
        return self._scanner.feed(Piece(broken))
