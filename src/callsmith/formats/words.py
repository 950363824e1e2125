"""The small things a format is made of, read one at a time: literals, words, and whether something optional is there."""

import html
import re
from collections.abc import Collection

from callsmith.formats.layout import Any, Opt, Raw, Spelling, first, texts
from callsmith.formats.source import Asking, Cut, Mismatch, Source, stops
from callsmith.formats.turn import SPECIAL

NAME_LIKE = re.compile(r"[\w.\-:/&;$@+#]+")
NUMBERED = re.compile(r"(?:functions?[._]?)?(.+?)[:_]?\d*")  # functions_get_weather_0
MOST_MARKS = 2
STRAYS = ("}", "]", "```")
WORD_LIKE = re.compile(r"[^<>\n]+")


def tool_meant(name: str, tools: Collection[str]) -> str | None:
    """The tool of a name in a namespace, or of an id in place of a name; for a bare number, the only tool there is."""
    meant = [name.rpartition(".")[2]]
    if numbered := NUMBERED.fullmatch(name):
        meant.append(numbered[1])
    if name.isdigit() and len(tools) == 1:
        meant.extend(tools)
    return next((one for one in meant if one in tools), None)


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
        if hit is None and soft:
            yield from self.skip_strays(cores)
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

    def skip_strays(self, closers: tuple[str, ...]) -> Asking[bool]:
        """Skip brackets too many, or the end of a fence, right before a closer; whether there were any."""
        after = "".join(closer[0] for closer in closers) + "".join(STRAYS)
        marks = () if self.strict else STRAYS
        found = False
        while (stray := (yield from self.source.at(marks))) and (yield from self.source.followed(stray, after)):
            self.repair("stray-close")
            self.source.pos += len(stray)
            yield from self.source.space()
            found = True
        return found

    def skip_marks(self, marks: tuple[str, ...], repair: str) -> Asking[None]:
        """Marks that say nothing here: a doubled opener, a fence around a value. A flood of them is none: it is read again."""
        yield from self.source.space()
        for _ in range(MOST_MARKS):
            hit = yield from self.source.at(marks)
            if hit is None:
                break
            self.repair(repair)
            self.source.pos += len(hit)
            yield from self.source.space()

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
