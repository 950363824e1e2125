"""The small things a format is made of, read one at a time: literals, words, and whether something optional is there."""

import html
import re
from collections.abc import Collection, Mapping

from callsmith.core.values import Tool
from callsmith.formats.algebra import OneOf, Opt, Raw, Spelling, first, texts
from callsmith.formats.reader.source import LONGEST_WORD, Asking, Cut, Mismatch, Source, stops
from callsmith.formats.reader.turn import SPECIAL
from callsmith.formats.reader.typed import loaded

NAME_LIKE = re.compile(r"[\w.\-:/&;$@+#]+")
COUNTER = re.compile(r"(?:functions?|call|tool)?[._:]?\d+")  # a number, in place of a name
NUMBERED = re.compile(r"(?:functions?[._]?)?(.+?)[:_]?\d*")  # functions_get_weather_0
MOST_MARKS = 2
STRAYS = ("}", "]", "```")
WORD_LIKE = re.compile(r"[^<>\n]+")


def tool_meant(name: str, tools: Collection[str]) -> str | None:
    """The tool of a name in a namespace, or of an id in place of a name; for a mere number, the only tool there is."""
    meant = [name.rpartition(".")[2]]
    if numbered := NUMBERED.fullmatch(name):
        meant.append(numbered[1])
    if COUNTER.fullmatch(name) and len(tools) == 1:
        meant.extend(tools)
    return next((one for one in meant if one in tools), None)


def tool_fitting(arguments: str, tools: Mapping[str, Tool]) -> str | None:
    """The only tool that takes just these arguments (JSON text)."""
    found = loaded(arguments)
    if found is None:
        return None
    keys: set[str] = set(found)
    schemas = {name: tool.parameters for name, tool in tools.items()}
    fitting = [
        name
        for name, schema in schemas.items()
        if keys.issuperset(schema.get("required", ())) and keys.issubset(schema.get("properties", keys))
    ]
    return fitting[0] if len(fitting) == 1 else None


class Words:
    """Reads them from a source. Each leniency that was needed is in `repairs`; `strict` allows none.

    `held`: whatever is open gets closed.
    """

    def __init__(self, source: Source, noise: frozenset[str] = frozenset(), *, strict: bool = False, held: bool = False) -> None:
        self.source = source
        self.strict = strict
        self.held = held or strict
        self._noise = () if strict else tuple(noise)
        self._noisy = {text[0] for text in self._noise}
        self.repairs: set[str] = set()

    def repair(self, name: str) -> None:
        """Allow a leniency, and remember it."""
        if self.strict:
            raise Mismatch(name)
        self.repairs.add(name)

    def gap(self) -> Asking[bool]:
        """Skip white space, and control tokens, which mean nothing anywhere; False: the text has ended."""
        source = self.source
        while (yield from source.space()):
            hit = (yield from source.at(self._noise)) if source.text[source.pos] in self._noisy else None
            if hit is None:
                return True
            self.repair("control-token")
            source.pos += len(hit)
        return False

    def literal(self, node: str | OneOf, *, soft: bool = False) -> Asking[str | None]:
        """A literal and the white space before it; None if it is only white space, or missing where that is allowed."""
        cores = tuple(text.strip() for text in texts(node))
        if soft and all(cores) and not (yield from self.source.beyond((*cores, *STRAYS, *self._noise))):
            self._drop_piece(cores)
            self.repair("missing-close")
            return None
        more = yield from self.source.space()
        if not all(cores):
            return None
        hit = yield from self.source.at(cores)
        if hit is None and soft:
            yield from self.skip_strays(cores)
            hit = yield from self.source.at(cores)
        if hit is None and more:
            more = yield from self.gap()
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
        """Skip brackets too many, or the end of a fence, right before a closer or the end of the text; whether there were any."""
        source, offset = self.source, 0
        while not self.strict and offset < LONGEST_WORD and (stray := (yield from source.at(STRAYS, offset))):
            _, offset = yield from source.glance(offset + len(stray))
            if (yield from source.at(closers, offset)) or self._ends_in(closers, offset):
                self.repair("stray-close")
                source.pos += offset
                return True
        return False

    def skip_marks(self, marks: tuple[str, ...], repair: str) -> Asking[None]:
        """Marks that say nothing here: a doubled opener, a fence around a value. A flood of them is none: it is read again."""
        yield from self.gap()
        for _ in range(MOST_MARKS):
            hit = yield from self.source.at(marks)
            if hit is None:
                break
            self.repair(repair)
            self.source.pos += len(hit)
            yield from self.source.space()

    def _drop_piece(self, cores: tuple[str, ...]) -> None:
        """The piece of a closer with which the text ends is no text."""
        if self._ends_in(cores, 0):
            self.source.pos = len(self.source.text)

    def _ends_in(self, cores: tuple[str, ...], offset: int) -> bool:
        """Whether the text ends with what is there, and that is a piece of a closer, or nothing."""
        rest = self.source.text[self.source.pos + offset :].lstrip()
        return self.source.ended and any(core.startswith(rest) for core in cores)

    def word(self, ends: tuple[str, ...], values: Spelling, *, name: bool = False) -> Asking[str]:
        """A word up to what follows it."""
        yield from self.gap()
        word = (yield from self.source.word(stops(ends), NAME_LIKE if name else WORD_LIKE)).replace(SPECIAL, "")
        return html.unescape(word) if isinstance(values, Raw) and values.entities else word

    def present(self, node: Opt, follow: tuple[str, ...]) -> Asking[bool]:
        """Whether something optional stands here: its own beginning does, or else not what follows it."""
        if isinstance(node.nodes[0], str | OneOf):
            wanted = first(node.nodes)
            if (yield from self.source.beyond(wanted)) is None and (yield from self.source.beyond(self._noise)):
                yield from self.gap()
            return (yield from self.source.beyond(wanted)) is not None
        yield from self.source.space()
        return (yield from self.source.at(follow)) is None
