"""From tokens to text: whole characters only, and no part of a stop string."""

import codecs
from collections.abc import Iterable

from callsmith.engines.port import Piece


class StopScanner:
    """Passes text on up to the first stop string; withholds text that may become one.

    >>> scanner = StopScanner(["END"])
    >>> scanner.feed(Piece("one E")), scanner.feed(Piece("ND two")), scanner.found
    ([Piece(text='one ', special=False)], [], True)
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._withheld: list[Piece] = []
        self.matched = ""

    @property
    def found(self) -> bool:
        """Whether a stop string was found."""
        return bool(self.matched)

    def feed(self, piece: Piece) -> list[Piece]:
        """The text that can be passed on now."""
        if self.found or not piece.text:
            return []
        if not self._stops:
            return [piece]
        self._withheld.append(piece)
        text = "".join(piece.text for piece in self._withheld)
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not found:
            return self._release(len(text) - self._undecided(text))
        _, start, self.matched = min(found)  # the first to be complete, so that it does not matter how the text was cut
        said = self._release(start)
        self._withheld.clear()
        return said

    def close(self) -> list[Piece]:
        """The withheld text at the end of the answer: it is no stop string."""
        withheld, self._withheld = self._withheld, []
        return withheld

    def _undecided(self, text: str) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        begun = (size for stop in self._stops for size in range(1, len(stop)) if text.endswith(stop[:size]))
        return max(begun, default=0)

    def _release(self, size: int) -> list[Piece]:
        """Remove the first `size` characters from the withheld text. A special token is released whole or not at all."""
        said: list[Piece] = []
        while size and self._withheld:
            piece = self._withheld[0]
            if len(piece.text) <= size:
                said.append(self._withheld.pop(0))
                size -= len(piece.text)
            elif piece.special:
                break
            else:
                said.append(Piece(piece.text[:size]))
                self._withheld[0] = Piece(piece.text[size:])
                break
        return said


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
