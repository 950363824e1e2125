"""Reading the smallest parts of a format: literals, words, and optional nodes; and which tool a name means."""

import html
import re
from collections.abc import Collection, Mapping

from callsmith.core.values import Json, Schema, Tool
from callsmith.formats.algebra import OneOf, Opt, Raw, Spelling, first_literals, literals_of
from callsmith.formats.reader.markers import SPECIAL_MARK
from callsmith.formats.reader.source import MAX_WORD, Incremental, Mismatch, TextSource, Truncated, stops
from callsmith.formats.reader.typed import JSON_TYPES, common_types, parse_json, property_of, types_of

NAME_LIKE = re.compile(r"[\w.\-:/&;$@+#]+")
NUMBER_AS_NAME = re.compile(r"(?:functions?|call|tool)?[._:]?\d+")  # a number instead of a name
NAME_WITH_NUMBER = re.compile(r"(?:functions?[._]?)?(.+?)[:_]?\d*")  # functions_get_weather_0
MAX_REPEATED_MARKERS = 2
STRAY_CLOSERS = ("}", "]", "```")
WORD_LIKE = re.compile(r"[^<>\n]+")
ATTRIBUTE_LIKE = re.compile(r"[^\n]+")  # between double quotes


def word_like(values: Spelling, *, is_name: bool) -> re.Pattern[str]:
    """The pattern of a word inside a call: a name, a key, a type, an id."""
    if isinstance(values, Raw) and values.entities:
        return ATTRIBUTE_LIKE
    return NAME_LIKE if is_name else WORD_LIKE


def tool_by_name(name: str, tools: Collection[str]) -> str | None:
    """The tool meant by a name with a namespace, or by an id instead of a name; for a mere number, the only tool there is."""
    meant = [name.rpartition(".")[2]]
    if numbered := NAME_WITH_NUMBER.fullmatch(name):
        meant.append(numbered[1])
    if NUMBER_AS_NAME.fullmatch(name) and len(tools) == 1:
        meant.extend(tools)
    return next((item for item in meant if item in tools), None)


def tool_by_arguments(arguments: str, tools: Mapping[str, Tool]) -> str | None:
    """The only tool whose schema allows these arguments (JSON text); None if there are none or several."""
    value = parse_json(arguments)
    if value is None:
        return None
    fitting = [name for name, tool in tools.items() if _fits(tool.parameters, value)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(schema: Schema, arguments: Mapping[str, Json]) -> bool:
    """Whether a schema declares these arguments with the types they have, and none that it requires is missing."""
    declared = set(schema.get("properties", ()))
    return set(arguments).issuperset(schema.get("required", ())) and all(
        (key in declared or property_of(schema, schema, key))
        and common_types({JSON_TYPES[type(value)]}, types_of(schema, property_of(schema, schema, key)))
        for key, value in arguments.items()
    )


class LiteralReader:
    """Reads literals and words from a source. `repairs` names the repairs that were needed; `strict` allows none.

    `ignored` are control tokens that may stand anywhere. `is_constrained`: every value has its closer.
    """

    __slots__ = ("ignored", "is_constrained", "repairs", "source", "strict")

    def __init__(
        self, source: TextSource, ignored: tuple[str, ...] = (), *, strict: bool = False, is_constrained: bool = False
    ) -> None:
        self.source = source
        self.strict = strict
        self.is_constrained = is_constrained or strict
        self.ignored = () if strict else ignored
        self.repairs: set[str] = set()

    @property
    def follows_schema(self) -> bool:
        """Whether keys and values that can mean only one thing are corrected to fit the schema."""
        return not self.is_constrained

    def repair(self, name: str) -> None:
        """Record a repair by name; a `Mismatch` where none is allowed."""
        if self.strict:
            raise Mismatch(name)
        self.repairs.add(name)

    def skip_ignored(self) -> Incremental[bool]:
        """Skip white space and ignored control tokens; False: the text has ended."""
        source = self.source
        while (yield from source.skip_space()):
            is_likely = stops(self.ignored).first_chars.match(source.text, source.pos)
            hit = (yield from source.at(self.ignored)) if is_likely else None
            if hit is None:
                return True
            self.repair("control-token")
            source.pos += len(hit)
        return False

    def read_literal(self, node: str | OneOf, *, optional: bool = False) -> Incremental[str | None]:
        """Read a literal and the white space before it; None if it is only white space, or `optional` and missing."""
        cores = tuple(text.strip() for text in literals_of(node))
        if optional and all(cores) and not (yield from self.source.at_after_space((*cores, *STRAY_CLOSERS, *self.ignored))):
            self._drop_partial_closer(cores)
            self.repair("missing-close")
            return None
        more = yield from self.source.skip_space()
        if not all(cores):
            return None
        hit = yield from self.source.at(cores)
        if hit is None and optional:
            yield from self.skip_stray_closers(cores)
            hit = yield from self.source.at(cores)
        if hit is None and more:
            more = yield from self.skip_ignored()
            hit = yield from self.source.at(cores)
        if hit is not None:
            self.source.pos += len(hit)
        elif optional:
            self._drop_partial_closer(cores)
            self.repair("missing-close")
        elif not more:
            raise Truncated("the text ended")
        else:
            raise Mismatch(f"expected {cores[0]!r}")
        return hit

    def read_exactly(self, node: str | OneOf) -> Incremental[str]:
        """Read a literal with its own white space, and nothing else before it."""
        hit = yield from self.source.at(literals_of(node))
        if hit is None:
            raise Mismatch(f"expected {literals_of(node)[0]!r}")
        self.source.pos += len(hit)
        return hit

    def skip_stray_closers(self, closers: tuple[str, ...]) -> Incremental[bool]:
        """Skip extra brackets, or the end of a fence, right before a closer or the end of the text; whether there were any."""
        source, offset = self.source, 0
        while not self.strict and offset < MAX_WORD and (stray := (yield from source.at(STRAY_CLOSERS, offset))):
            _, offset = yield from source.peek_after(offset + len(stray))
            if (yield from source.at(closers, offset)) or self._ends_in_partial_closer(closers, offset):
                self.repair("stray-close")
                source.pos += offset
                return True
        return False

    def skip_markers(self, marks: tuple[str, ...], repair: str) -> Incremental[None]:
        """Skip markers without meaning here, such as a doubled opener or a fence around a value, but only the first few."""
        yield from self.skip_ignored()
        for _ in range(MAX_REPEATED_MARKERS):
            hit = yield from self.source.at(marks)
            if hit is None:
                break
            self.repair(repair)
            self.source.pos += len(hit)
            yield from self.source.skip_space()

    def _drop_partial_closer(self, cores: tuple[str, ...]) -> None:
        """Skip the first part of a closer, if the text ends with it."""
        if self._ends_in_partial_closer(cores, 0):
            self.source.pos = len(self.source.text)

    def _ends_in_partial_closer(self, cores: tuple[str, ...], offset: int) -> bool:
        """Whether the rest of the text, from `offset` on, is the start of a closer or empty, and the text has ended."""
        rest = self.source.text[self.source.pos + offset :].lstrip(" \t\r\n")
        return self.source.ended and any(core.startswith(rest) for core in cores)

    def read_word(self, ends: tuple[str, ...], values: Spelling, *, is_name: bool = False) -> Incremental[str]:
        """Read a word up to one of `ends`."""
        yield from self.skip_ignored()
        word = (yield from self.source.read_word(stops(ends), word_like(values, is_name=is_name))).replace(SPECIAL_MARK, "")
        return html.unescape(word) if isinstance(values, Raw) and values.entities else word

    def is_present(self, node: Opt, follow: tuple[str, ...]) -> Incremental[bool]:
        """Whether an optional node is here: its first literal is, or, if it has none, nothing of `follow`."""
        if isinstance(node.nodes[0], str | OneOf):
            wanted = first_literals(node.nodes)
            if (yield from self.source.at_after_space(wanted)) is None and (yield from self.source.at_after_space(self.ignored)):
                yield from self.skip_ignored()
            return (yield from self.source.at_after_space(wanted)) is not None
        yield from self.source.skip_space()
        return (yield from self.source.at(follow)) is None
