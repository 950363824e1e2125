"""The small things a format is made of, read one at a time: literals, words, and whether something optional is there."""

import html
import re

from callsmith.formats.layout import Any, Opt, Raw, Spelling, first, texts
from callsmith.formats.source import Asking, Cut, Mismatch, Source, stops
from callsmith.formats.turn import SPECIAL

NAME_LIKE = re.compile(r"[\w.\-:/&;$@+#]+")
WORD_LIKE = re.compile(r"[^<>\n]+")


class Words:
    """Reads them from a source. Each leniency that was needed is in `repairs`; `strict` allows none."""

    def __init__(self, source: Source, *, strict: bool = False) -> None:
        self.source = source
        self.strict = strict
        self.repairs: set[str] = set()

    def repair(self, name: str) -> None:
        """Allow a leniency, and remember it."""
        if self.strict:
            raise Mismatch(name)
        self.repairs.add(name)

    def literal(self, node: str | Any, *, soft: bool = False) -> Asking[str | None]:
        """A literal and the white space before it; None if it is only white space, or missing where that is allowed."""
        cores = tuple(text.strip() for text in texts(node))
        more = yield from self.source.space()
        if not all(cores):
            return None
        hit = yield from self.source.at(cores)
        if hit is not None:
            self.source.pos += len(hit)
        elif soft:
            self._drop_piece(cores)
            self.repair("missing-close")
        elif not more:
            raise Cut("the text ended")
        else:
            raise Mismatch(f"expected {cores[0]!r}")
        return hit

    def _drop_piece(self, cores: tuple[str, ...]) -> None:
        """The piece of a closer with which the text ends is no text."""
        rest = self.source.text[self.source.pos :]
        if self.source.ended and rest and any(core.startswith(rest) for core in cores):
            self.source.pos = len(self.source.text)

    def word(self, ends: tuple[str, ...], values: Spelling, *, name: bool = False) -> Asking[str]:
        """A word up to what follows it."""
        yield from self.source.space()
        word = (yield from self.source.word(stops(ends), NAME_LIKE if name else WORD_LIKE)).replace(SPECIAL, "")
        return html.unescape(word) if isinstance(values, Raw) and values.entities else word

    def present(self, node: Opt, follow: tuple[str, ...]) -> Asking[bool]:
        """Whether something optional stands here: its own beginning does, or else not what follows it."""
        yield from self.source.space()
        if isinstance(node.nodes[0], str | Any):
            return (yield from self.source.at(first(node.nodes))) is not None
        return (yield from self.source.at(follow)) is None
