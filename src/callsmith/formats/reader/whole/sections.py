"""Sections of calls that are in the buffer to their end, and in which nothing is to be repaired: read at once, by patterns."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from callsmith.core.values import Json, Schema, Tool
from callsmith.formats.algebra import KEY, Calls, Each, Nested, Nodes, Notation, Opt, Raw, literals_of
from callsmith.formats.reader.markers import SPECIAL_MARK
from callsmith.formats.reader.source import SPACE, stops
from callsmith.formats.reader.typed import (
    ARGS_KEYS,
    CDATA,
    STRING,
    STRUCTURES,
    ValueSchema,
    declared_keys,
    json_string,
    parse_json,
    property_of,
    types_of,
)
from callsmith.formats.reader.whole.values import (
    Whole,
    bare_object,
    leaf_element,
    object_of,
    plain_text,
    python_value,
    whole_json_of,
)

_MOST_NAME_CHARACTERS = 8_000  # of all properties of a tool together


class WholeCall(NamedTuple):
    """A call that was read, its arguments as JSON text and as what they are, and where it ends."""

    name: str
    id: str
    text: str
    arguments: Mapping[str, Json]
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class SectionPattern:
    """What opens a section, what its calls are, what stands between two, and where it ends."""

    open: re.Pattern[str]
    call: "CallPattern"
    between: re.Pattern[str]
    end: re.Pattern[str]

    def read(self, text: str, pos: int, tools: Mapping[str, Tool], *, is_constrained: bool) -> tuple[list[WholeCall], int] | None:
        """The calls of the section that begins here, and where it ends; None where they are not surely what they seem to be."""
        calls: list[WholeCall] = []
        following = self.open.match(text, pos)
        while following:
            call = self.call.read(text, following.end(), tools, is_constrained=is_constrained)
            if call is None:
                return None
            calls.append(call)
            if end := self.end.match(text, call.end):
                return calls, end.end()
            following = self.between.match(text, call.end)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern:
    """What stands before the arguments of a call (`name` is the group of its name), what they are, and what stands behind."""

    before: re.Pattern[str]
    name: str
    arguments: "Notation | EachPattern"
    behind: re.Pattern[str]

    def read(self, text: str, pos: int, tools: Mapping[str, Tool], *, is_constrained: bool) -> WholeCall | None:
        """The call that begins here; None where it would not surely be read as it stands."""
        before = self.before.match(text, pos)
        name = before[self.name] if before else ""
        if before is None or not name or (tools and name not in tools):
            return None
        schema: Schema = tools[name].parameters if tools else {}
        if isinstance(self.arguments, EachPattern):
            arguments = self.arguments.read(text, before.end(), schema, is_constrained=is_constrained)
        elif self.arguments.is_json:
            arguments = whole_json_of(text, before.end(), schema, {} if is_constrained else schema)
        else:
            arguments = bare_object(text, before.end(), self.arguments, schema, is_constrained=is_constrained)
        behind = self.behind.match(text, arguments.end) if arguments else None
        if arguments is None or behind is None:
            return None
        id = before["id"] if "id" in self.before.groupindex else behind["id"] if "id" in self.behind.groupindex else ""
        return WholeCall(name, id or "", arguments.text, arguments.value, behind.end())


@dataclass(frozen=True, slots=True, eq=False)
class EachPattern:
    """What stands before and behind the value of each argument, and between two arguments.

    `ends` are the markers that end a value in plain text, and `space` is what the format itself puts around it.
    """

    before: re.Pattern[str]
    behind: re.Pattern[str]
    between: re.Pattern[str] | None
    ends: tuple[str, ...]
    space: tuple[str, str]
    part: Calls
    nodes: Nodes

    def read(self, text: str, pos: int, schema: Schema, *, is_constrained: bool) -> Whole | None:
        """The arguments, one after another, as one object."""
        declared = () if is_constrained else declared_keys(schema, schema)
        value, pieces = dict[str, Json](), list[str]()
        while match := self.before.match(text, pos):
            key, flag = match["key"], match["flag"] if "flag" in match.re.groupindex else None
            if key in value or (declared and key not in declared):
                return None
            if key in ARGS_KEYS and not value and key not in schema.get("properties", (key,)):
                return None
            known = ValueSchema(schema, property_of(schema, schema, key), flag)
            whole = self._read_value(text, match.end(), known, is_constrained=is_constrained)
            behind = self.behind.match(text, whole.end) if whole else None
            if whole is None or behind is None:
                return None
            value[key] = whole.value
            pieces += (json_string(key), ": ", whole.text, ", ")
            pos = behind.end()
            if self.between:
                following = self.between.match(text, pos)
                if following is None:
                    break
                pos = following.end()
        return object_of(value, pieces, pos)

    def _read_value(self, text: str, pos: int, schema: ValueSchema, *, is_constrained: bool) -> Whole | None:
        match self.part.values:
            case Raw() as spelling:
                return self._read_plain_text(text, pos, spelling, schema, is_constrained=is_constrained)
            case Nested() as spelling:
                return leaf_element(text, pos, spelling, types_of(schema.root, schema.schema))
            case Notation():
                types = types_of(schema.root, schema.schema) if schema.schema and not is_constrained else None
                return python_value(text, pos, types)

    def _read_plain_text(self, text: str, pos: int, spelling: Raw, schema: ValueSchema, *, is_constrained: bool) -> Whole | None:
        types = schema.types(spelling)
        before, after = self.space
        closer = self._find_closer(text, pos)
        if closer < 0 or (not is_constrained and self._is_unclosed(text, pos, closer, schema.root)):
            return None
        end = closer - len(after) if after and text.endswith(after, pos, closer) else closer
        if before and text.startswith(before, pos) and end != pos:
            pos += len(before)
        skips_quoted = types != STRING and ("string" not in types or (is_constrained and not types.isdisjoint(STRUCTURES)))
        if skips_quoted and (space := SPACE.match(text, pos)):
            pos = space.end()
        written = text[pos:end]
        if SPECIAL_MARK in written or (spelling.cdata and CDATA in written):
            return None
        if skips_quoted and written[:1] in ("[", "{") and '"' in written and parse_json(written) is None:
            return None  # what ends it may stand between quotes
        return plain_text(written, types, closer)

    def _find_closer(self, text: str, pos: int) -> int:
        """Where the value ends; -1 if it does not. Of several ends no one is searched for by itself, beyond the nearest."""
        if len(self.ends) == 1:
            return text.find(self.ends[0], pos)
        closer = stops(self.ends).pattern.search(text, pos)
        return closer.start() if closer else -1

    def _is_unclosed(self, text: str, pos: int, closer: int, schema: Schema) -> bool:
        """Whether the value seems to end before its closer."""
        wanted = stops(unclosed_ends(self.part, self.nodes, schema))
        stop = wanted.pattern.search(text, pos, closer + wanted.longest)
        return stop is not None and stop.start() < closer


def unclosed_ends(part: Calls, nodes: Nodes, schema: Schema) -> tuple[str, ...]:
    """Where a value in plain text without a closer ends: where an argument of the schema begins on a line of its own, or the call
    and its section end on lines of their own. Names that are long beyond measure are not searched for.
    """
    properties = tuple(schema.get("properties", ()))
    return _unclosed_ends(part, nodes, properties if sum(map(len, properties)) <= _MOST_NAME_CHARACTERS else ())


@lru_cache(1024)
def _unclosed_ends(part: Calls, nodes: Nodes, properties: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(part.values, Raw):
        return ()
    before, after = literals_of(nodes[0])[:1], literals_of(nodes[2])[:1] if nodes[1] is KEY else ()
    starts = [f"\n{before[0].strip()}{key}{after[0].strip()}" for key in properties] if before and after else []
    behind = part.item[next(at for at, node in enumerate(part.item) if isinstance(node, Each)) + 1 :] + part.close
    flat = [inner for node in behind for inner in (node.nodes if isinstance(node, Opt) else (node,))]
    closers = [text.strip() for node in flat for text in literals_of(node)[:1] if text.strip()]
    return (*starts, *([f"\n{closers[0]}\n{closers[1]}"] if len(closers) > 1 else ()))
