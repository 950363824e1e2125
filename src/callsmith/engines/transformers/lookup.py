"""Prompt lookup: what followed the last tokens of a text where they stood before is guessed to follow them again.

Calls copy paths, ids and text out of the conversation. On a GPU a few tokens more in a forward pass cost next to nothing.
"""

from array import array
from dataclasses import dataclass, field
from typing import Final

GUESSED: Final = 3  # tokens
_COMPARED: Final = 4  # tokens: fewer stand in many places by chance
_REACH: Final = 8192  # tokens back: looking further would take longer than is won


class Text:
    """The tokens of a sequence."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._bytes = bytearray()  # of the tokens, as far as was looked at: bytes are searched a hundred times as fast

    def put(self, position: int, token: int) -> None:
        """Put a token at its position, behind which the text ends."""
        if position < len(self._tokens):
            self.cut(position)
        self._tokens.append(token)

    def cut(self, position: int) -> None:
        del self._tokens[position:]
        del self._bytes[_SIZE * position :]

    def take(self, other: "Text") -> None:
        """Become a copy of the other one."""
        self._tokens, self._bytes = other._tokens[:], other._bytes[:]

    def guess(self) -> list[int]:
        """The tokens that followed the last ones where they stood before, `GUESSED` of them; none if there are not so many."""
        self._bytes += array("i", self._tokens[len(self._bytes) // _SIZE :]).tobytes()
        last, first = bytes(self._bytes[-_SIZE * _COMPARED :]), max(0, len(self._bytes) - _SIZE * _REACH)
        end = len(self._bytes) - _SIZE * GUESSED
        while (place := self._bytes.rfind(last, first, end)) >= 0:
            if place % _SIZE == 0:
                after = place + len(last)
                return array("i", bytes(self._bytes[after : after + _SIZE * GUESSED])).tolist()
            end = place + len(last) - 1
        return []


_SIZE: Final = array("i").itemsize


@dataclass(slots=True)
class Guesses:
    """Tokens that were decoded behind those of a sequence, from a position on."""

    slot: int = -1
    position: int = 0
    tokens: list[int] = field(default_factory=list[int])

    def hold(self, token: int, position: int, slot: int) -> bool:
        """Whether that token was guessed."""
        place = position - self.position
        return slot == self.slot and 0 <= place < len(self.tokens) and self.tokens[place] == token
