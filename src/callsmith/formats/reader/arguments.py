"""Reading arguments one by one: `<parameter=city>Paris</parameter>`, `city='Paris'`, …"""

import json
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
)
from callsmith.formats.reader.literals import LiteralReader
from callsmith.formats.reader.markers import closers_of
from callsmith.formats.reader.source import Emit, Incremental, Truncated, stops
from callsmith.formats.reader.typed import json_string, parse_json, property_of
from callsmith.formats.reader.values import Sink, ValueSchema, read_nested, read_notation, read_raw

ARGS_KEYS = ("arguments", "parameters", "args", "input")


class ArgumentsReader:
    """The arguments of one call. What is known of the tool is its schema; the object is pushed as JSON text."""

    def __init__(self, words: LiteralReader, part: Calls, schema: Schema, push: Emit) -> None:
        self._words = words
        self._source = words.source
        self._part = part
        self._schema = schema
        self._push = push
        self._seen: set[str] = set()

    def read(self, node: Each, ends: tuple[str, ...]) -> Incremental[None]:
        """All of them, up to one of `ends`, which is left unread."""
        source = self._source
        lead = first_literals(node.nodes) if isinstance(node.nodes[0], str | OneOf) else ()
        between = node.between.strip()
        if lead and (yield from self._whole()):
            return
        beyond = tuple(closer for closer in (*closers_of(self._part), *first_literals(self._part.item)) if is_strong(closer))
        self._push("{")
        count = 0
        while True:
            if not (yield from source.skip_space()):
                self._end_early(count)
                break
            hit = yield from source.at((*lead, *ends, *beyond))
            if hit is not None and hit not in lead:
                if hit not in ends:
                    self._words.repair("missing-close")
                break
            if between and count and (yield from source.at((between,))):
                source.pos += len(between)
            elif lead and hit is None:
                self._words.repair("stray-text")
                if (yield from source.read_until(stops((*lead, *ends)), _ignore)) is None:
                    raise Truncated("the text ended")
            else:
                count += yield from self._argument(node.nodes, count, (between, *ends) if between else ends)
        self._push("}")

    def _whole(self) -> Incremental[bool]:
        """Whether all arguments stood here as one JSON object."""
        if not (yield from self._source.skip_space()) or self._source.text[self._source.pos] != "{":
            return False
        self._words.repair("json-arguments")
        yield from read_notation(self._source, JSON, Sink(self._push, self._words.repair))
        return True

    def _end_early(self, count: int) -> None:
        """The text ended between two arguments. If the tool needs no more than there is, only the closer is missing."""
        properties = self._schema.get("properties", ())
        if not self._schema or (properties and not count) or not self._seen.issuperset(self._schema.get("required", ())):
            raise Truncated("the text ended")
        self._words.repair("missing-close")

    def _argument(self, nodes: Nodes, count: int, follow: tuple[str, ...]) -> Incremental[int]:
        """One argument; how many were read (a name without a value is none)."""
        key: str | None = None
        flag: str | None = None
        siblings = (*self._siblings(nodes), *self._enclosing())
        for position, node in enumerate(nodes):
            ends = first_literals(nodes[position + 1 :], follow)
            if node is VALUE and key is not None:
                yield from self._named_value(key, flag, (*ends, *siblings), count)
                if (yield from self._source.at(siblings)):
                    self._words.repair("missing-close")
                    return 1
            elif isinstance(node, str | OneOf):
                if key is not None and key not in self._seen and (yield from self._is_orphan(nodes, node, follow)):
                    self._words.repair("missing-value")
                    return 0
                yield from self._words.read_literal(node)
                if nodes[position + 1 : position + 2] != (VALUE,):
                    yield from self._source.skip_space()  # before a value, white space is the value's business
            elif isinstance(node, Opt):
                if (yield from self._words.is_present(node, ends)):
                    yield from self._words.read_literal(literals_of(node.nodes[0])[0])
                    flag = yield from self._words.read_word(ends, self._part.values)
            elif node in (KEY, TYPE, SKIP, INDEX):
                name = node is KEY and isinstance(self._part.values, Notation)
                word = yield from self._words.read_word(ends, self._part.values, is_name=name)
                if node is KEY and '" ' in word:
                    self._words.repair("other-attributes")
                    word = word.split('" ')[0]
                key, flag = (key or word, flag) if node is KEY else (key, word)
        return 1

    def _is_orphan(self, nodes: Nodes, node: str | OneOf, follow: tuple[str, ...]) -> Incremental[bool]:
        """Whether a name is followed by the next one, or by the end, instead of its value."""
        yield from self._source.skip_space()
        other = (*first_literals(nodes), *follow) if isinstance(nodes[0], str | OneOf) else follow
        here = yield from self._source.at((*first_literals((node,)), *other))
        return here is not None and here not in first_literals((node,))

    def _siblings(self, nodes: Nodes) -> tuple[str, ...]:
        """How the tool's own arguments begin, on a line of their own: there a raw value ends, closed or not."""
        values = self._part.values
        if not isinstance(values, Raw) or not values.trim or self._words.is_constrained or nodes[1] is not KEY:
            return ()
        before, after = literals_of(nodes[0])[:1], literals_of(nodes[2])[:1]
        keys = self._schema.get("properties", ()) if before and after else ()
        return tuple(f"\n{before[0].strip()}{key}{after[0].strip()}" for key in keys)

    def _enclosing(self) -> tuple[str, ...]:
        """How the call and what is around it end, on lines of their own: there a raw value ends too, closed or not."""
        if not isinstance(self._part.values, Raw) or self._words.is_constrained:
            return ()
        item = self._part.item
        after = item[next(at for at, node in enumerate(item) if isinstance(node, Each)) + 1 :] + self._part.close
        flat = [inner for node in after for inner in (node.nodes if isinstance(node, Opt) else (node,))]
        closers = [text.strip() for node in flat for text in literals_of(node)[:1] if text.strip()]
        return (f"\n{closers[0]}\n{closers[1]}",) if len(closers) > 1 else ()

    def _named_value(self, key: str, flag: str | None, ends: tuple[str, ...], count: int) -> Incremental[None]:
        self._seen.add(key)
        if not count and key in ARGS_KEYS and key not in self._schema.get("properties", (key,)):
            held: list[str] = []
            yield from self._value(key, flag, ends, held.append)
            self._unwrap(key, "".join(held))
        else:
            self._push(f"{', ' if count else ''}{json_string(key)}: ")
            yield from self._value(key, flag, ends, self._push)

    def _unwrap(self, key: str, text: str) -> None:
        """A first argument that the tool does not know may be all of them in one."""
        inner = parse_json(text)
        if isinstance(inner, str):
            inner = parse_json(inner)
        if isinstance(inner, dict) and inner and self._schema["properties"].keys() >= set(cast(dict[str, Json], inner)):
            self._words.repair("unwrapped")
            self._seen.update(cast(dict[str, Json], inner))
            self._push(json.dumps(inner, ensure_ascii=False)[1:-1])
        else:
            self._push(f"{json_string(key)}: {text}")

    def _value(self, key: str, flag: str | None, ends: tuple[str, ...], push: Emit) -> Incremental[None]:
        typing = ValueSchema(self._schema, property_of(self._schema, self._schema, key), flag)
        match self._part.values:
            case Notation() as spelling:
                yield from read_notation(self._source, spelling, Sink(push, self._words.repair))
            case Raw() as spelling:
                yield from read_raw(self._source, spelling, ends, typing, push)
            case Nested() as spelling:
                yield from read_nested(self._source, spelling, typing, push)


def _ignore(text: str) -> None:
    """Text that means nothing here; it is kept under the mark."""
