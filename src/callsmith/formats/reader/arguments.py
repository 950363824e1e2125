"""Reading arguments one by one: `<parameter=city>Paris</parameter>`, `city='Paris'`, …"""

import json
from functools import cached_property
from typing import cast

from callsmith.core.values import Json, Schema
from callsmith.formats.algebra import (
    INDEX,
    JSON,
    KEY,
    SKIP,
    TYPE,
    VALUE,
    Calls,
    Each,
    Nested,
    Nodes,
    Notation,
    OneOf,
    Opt,
    Raw,
    first_literals,
    is_strong,
    literals_of,
    space_around,
)
from callsmith.formats.reader.literals import NAME_LIKE, LiteralReader
from callsmith.formats.reader.markers import closers_of
from callsmith.formats.reader.source import Emit, Incremental, Truncated, ignore, stops
from callsmith.formats.reader.typed import (
    ARGS_KEYS,
    Bounds,
    ValueSchema,
    declared_keys,
    json_string,
    meant_key,
    parse_json,
    property_of,
    read_nested,
    read_raw,
)
from callsmith.formats.reader.values import Sink, read_notation
from callsmith.formats.reader.whole.sections import unclosed_ends


class ArgumentsReader:
    """Reads the arguments of one call of a tool with this schema, and pushes them as the JSON text of one object."""

    def __init__(self, literals: LiteralReader, part: Calls, schema: Schema, push: Emit) -> None:
        self._literals = literals
        self._source = literals.source
        self._part = part
        self._schema = schema
        self._push = push
        self._seen: set[str] = set()

    def read(self, node: Each, ends: tuple[str, ...]) -> Incremental[None]:
        """Read all arguments, up to one of `ends`, which is left unread."""
        source = self._source
        lead = first_literals(node.nodes) if isinstance(node.nodes[0], str | OneOf) else ()
        between = node.between.strip()
        if lead and (yield from self._read_json_object()):
            return
        outer = tuple(closer for closer in (*closers_of(self._part), *first_literals(self._part.item)) if is_strong(closer))
        self._push("{")
        count = 0
        while True:
            if not (yield from source.skip_space()):
                self._end_at_end_of_text(count)
                break
            hit = yield from source.at((*lead, *ends, *outer))
            if hit is not None and hit not in lead:
                if hit not in ends:
                    self._literals.repair("missing-close")
                break
            if between and count and (yield from source.at((between,))):
                source.pos += len(between)
            elif lead and hit is None:
                self._literals.repair("stray-text")
                if (yield from source.read_until(stops((*lead, *ends)), ignore)) is None:
                    raise Truncated("the text ended")
            else:
                count += yield from self._read_argument(node.nodes, count, (between, *ends) if between else ends)
        self._push("}")

    def _read_json_object(self) -> Incremental[bool]:
        """Read all arguments as one JSON object, if there is one instead; whether it did."""
        if not (yield from self._source.skip_space()) or self._source.text[self._source.pos] != "{":
            return False
        self._literals.repair("json-arguments")
        yield from read_notation(self._source, JSON, Sink(self._push, self._literals.repair))
        return True

    def _end_at_end_of_text(self, count: int) -> None:
        """Handle a text that ends between two arguments: where no required one is missing, only the closer is."""
        properties = self._schema.get("properties", ())
        if not self._schema or (properties and not count) or not self._seen.issuperset(self._schema.get("required", ())):
            raise Truncated("the text ended")
        self._literals.repair("missing-close")

    def _read_argument(self, nodes: Nodes, count: int, follow: tuple[str, ...]) -> Incremental[int]:
        """Read one argument; returns 1, or 0 for a key without a value."""
        key: str | None = None
        flag: str | None = None
        starts = () if self._literals.is_constrained else unclosed_ends(self._part, nodes, self._schema)
        for position, node in enumerate(nodes):
            ends = first_literals(nodes[position + 1 :], follow)
            if node is VALUE and key is not None:
                bounds = Bounds((*ends, *starts), *space_around(nodes, position))
                yield from self._read_named_value(key, flag, bounds, count)
                if (yield from self._source.at(starts)):
                    self._literals.repair("missing-close")
                    return 1
            elif isinstance(node, str | OneOf):
                if key is not None and key not in self._seen and (yield from self._lacks_value(nodes, node, follow)):
                    self._literals.repair("missing-value")
                    return 0
                yield from self._literals.read_literal(node)
                if nodes[position + 1 : position + 2] != (VALUE,):
                    yield from self._source.skip_space()  # before a value, white space may belong to the value
            elif isinstance(node, Opt):
                if (yield from self._literals.is_present(node, ends)):
                    yield from self._literals.read_literal(literals_of(node.nodes[0])[0])
                    flag = yield from self._literals.read_word(ends, self._part.values)
            elif node in (KEY, TYPE, SKIP, INDEX):
                is_name = node is KEY and isinstance(self._part.values, Notation) and self._has_plain_keys
                word = yield from self._literals.read_word(ends, self._part.values, is_name=is_name)
                if node is KEY and '" ' in word:
                    self._literals.repair("other-attributes")
                    word = word.split('" ')[0]
                key, flag = (key or word, flag) if node is KEY else (key, word)
        return 1

    @cached_property
    def _has_plain_keys(self) -> bool:
        """Whether the arguments are called as in code, without spaces or brackets."""
        return all(map(NAME_LIKE.fullmatch, self._schema.get("properties") or ()))

    def _lacks_value(self, nodes: Nodes, node: str | OneOf, follow: tuple[str, ...]) -> Incremental[bool]:
        """Whether the next argument, or the end, follows a key instead of its value."""
        yield from self._source.skip_space()
        other = (*first_literals(nodes), *follow) if isinstance(nodes[0], str | OneOf) else follow
        here = yield from self._source.at((*first_literals((node,)), *other))
        return here is not None and here not in first_literals((node,))

    def _read_named_value(self, key: str, flag: str | None, bounds: Bounds, count: int) -> Incremental[None]:
        key = self._meant(key)
        self._seen.add(key)
        if not count and key in ARGS_KEYS and key not in self._schema.get("properties", (key,)):
            buffered: list[str] = []
            yield from self._read_value(key, flag, bounds, buffered.append)
            self._unwrap(key, "".join(buffered))
        else:
            self._push(f"{', ' if count else ''}{json_string(key)}: ")
            yield from self._read_value(key, flag, bounds, self._push)

    def _meant(self, key: str) -> str:
        """The argument that a key means, whose case may be wrong."""
        declared = declared_keys(self._schema, self._schema) if self._literals.follows_schema else ()
        meant = meant_key(key, declared, self._seen)
        if meant != key:
            self._literals.repair("key-case")
        return meant

    def _unwrap(self, key: str, text: str) -> None:
        """Push a first argument that is not in the schema: as all arguments, if it is an object of them, else as it is."""
        inner = parse_json(text)
        if isinstance(inner, str):
            inner = parse_json(inner)
        if isinstance(inner, dict) and inner and self._schema["properties"].keys() >= set(cast(dict[str, Json], inner)):
            self._literals.repair("unwrapped")
            self._seen.update(cast(dict[str, Json], inner))
            self._push(json.dumps(inner, ensure_ascii=False)[1:-1])
        else:
            self._push(f"{json_string(key)}: {text}")

    def _read_value(self, key: str, flag: str | None, bounds: Bounds, push: Emit) -> Incremental[None]:
        schema = ValueSchema(self._schema, property_of(self._schema, self._schema, key), flag)
        match self._part.values:
            case Notation() as spelling:
                yield from read_notation(
                    self._source, spelling, Sink(push, self._literals.repair, self._literals.follows_schema), schema
                )
            case Raw() as spelling:
                yield from read_raw(self._source, spelling, bounds, schema, push, is_constrained=self._literals.is_constrained)
            case Nested() as spelling:
                yield from read_nested(self._source, spelling, schema, push)
