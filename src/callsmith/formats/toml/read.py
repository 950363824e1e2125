"""Reading a `Format` from TOML."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any as AnyType
from typing import TypeAlias, cast

from callsmith.core.errors import UsageError
from callsmith.formats.algebra import (
    JSON,
    PYTHON,
    RAW,
    Calls,
    Each,
    Format,
    Hole,
    Ident,
    Nested,
    Node,
    Nodes,
    Notation,
    Obj,
    OneOf,
    Opt,
    Part,
    Quotes,
    Raw,
    Says,
    Spelling,
    Thinks,
)

Table: TypeAlias = dict[str, AnyType]

HOLE_BY_NAME = {hole.value: hole for hole in Hole}
HOLE_PATTERN = re.compile(r"(\{+)(" + "|".join(HOLE_BY_NAME) + r")(\}+)")
_MANY_TIMES = re.compile(r"\{[\d,]*\d{4}")
ARGUMENT_HOLES = frozenset({Hole.KEY, Hole.TYPE, Hole.VALUE})
ENVELOPE_HOLES = frozenset({Hole.NAME, Hole.ID, Hole.ARGS})
NAMED_VALUES: dict[str, Spelling] = {"json": JSON, "python": PYTHON, "raw": RAW}
SPELLINGS: dict[str, type[Spelling]] = {"notation": Notation, "raw": Raw, "nested": Nested}
NODE_KINDS = {"any": (), "opt": ("write",), "each": ("between",), "object": (), "ident": ()}


def format_from_toml(text: str) -> Format:
    """Read a format from TOML text; a `UsageError` says where something is wrong, and what is allowed there."""
    try:
        return _read_format(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the format is not valid TOML: {error}") from error
    except RecursionError as error:
        raise UsageError("the format is nested too deeply") from error


def _read_format(table: Table) -> Format:
    top = _Location("the format")
    top.check_keys(table, "name", "aliases", "ids", "drop", "parts")
    name = top.get(table, "name", str)
    if not name:
        raise top.error("`name` is missing")
    rows = top.get(table, "parts", list, [])
    parts = tuple(_read_part(row, _Location(f"part {number}")) for number, row in enumerate(rows, 1))
    if not any(isinstance(part, Calls) for part in parts):
        raise top.error('no part has kind = "calls"')
    ids = top.get(table, "ids", str, "")
    try:
        re.compile(ids)
    except (re.error, OverflowError) as error:
        raise top.error(f"`ids` is not a pattern: {error}") from error
    if _MANY_TIMES.search(ids):
        raise top.error("`ids` repeats something a thousand times or more")
    return Format(name, parts, top.get_strings(table, "aliases"), ids, top.get_strings(table, "drop"))


@dataclass(frozen=True, slots=True)
class _Location:
    """A place in the file, for error messages, and checks that report errors there."""

    path: str

    def error(self, what: str) -> UsageError:
        return UsageError(f"{self.path}: {what}", field=self.path)

    def inner(self, step: str) -> "_Location":
        return _Location(f"{self.path}, {step}")

    def check_keys(self, table: Mapping[str, AnyType], *allowed: str) -> None:
        for key in table:
            if key not in allowed:
                raise self.error(f"unknown key `{key}`; allowed: {', '.join(allowed)}")

    def get(self, table: Mapping[str, AnyType], key: str, kind: type, default: AnyType = None) -> AnyType:
        value = table.get(key, default)
        if value is not default and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            names = {str: "a string", list: "a list", bool: "true or false", int: "a whole number", dict: "a table"}
            raise self.error(f"`{key}` must be {names[kind]}")
        return value

    def get_strings(self, table: Mapping[str, AnyType], key: str) -> tuple[str, ...]:
        values = table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(one, str) and one for one in cast("list[AnyType]", values)):
            raise self.error(f"`{key}` must be a list of strings")
        return tuple(cast("list[str]", values))


def _read_part(row: AnyType, location: _Location) -> Part:
    if not isinstance(row, dict):
        raise location.error("a part must be a table")
    table = cast(Table, row)
    match table.get("kind"):
        case "calls":
            return _read_calls(table, location)
        case "thinks":
            location.check_keys(table, "kind", "open", "close", "ended_by_calls")
            ended = location.get(table, "ended_by_calls", bool, False)
            return Thinks(_read_text_marker(table, "open", location), _read_text_marker(table, "close", location), ended)
        case "says":
            location.check_keys(table, "kind", "open", "close", "ended_by_calls")
            ended = location.get(table, "ended_by_calls", bool, True)
            return Says(
                _read_text_marker(table, "open", location),
                _read_text_marker(table, "close", location) if "close" in table else (),
                ended,
            )
        case "quotes":
            location.check_keys(table, "kind", "open", "close", "one_line")
            return Quotes(
                _read_text_marker(table, "open", location),
                _read_text_marker(table, "close", location),
                location.get(table, "one_line", bool, False),
            )
        case _:
            raise location.error('`kind` must be "calls", "thinks", "says" or "quotes"')


def _read_calls(table: Table, location: _Location) -> Calls:
    location.check_keys(table, "kind", "item", "open", "between", "close", "values", "index", "most", "exact")
    item = _read_nodes(table.get("item"), location.inner("item"))
    holes = set(_holes_of(item))
    if Hole.NAME not in holes:
        raise location.error("`item` has no {name}")
    if Hole.ARGS not in holes and not any(isinstance(node, Each) for node in item):
        raise location.error("`item` has neither {args} nor `each`")
    if holes & ARGUMENT_HOLES:
        raise location.error("{key}, {type} and {value} stand only inside `each`")
    return Calls(
        *item,
        open=_read_marker(table["open"], location.inner("open")) if table.get("open") else (),
        between=location.get(table, "between", str, ""),
        close=_read_marker(table["close"], location.inner("close")) if table.get("close") else (),
        values=_read_values(table.get("values", "json"), location.inner("values")),
        index=location.get(table, "index", int, 0),
        most=location.get(table, "most", int),
        exact=location.get(table, "exact", bool, False),
    )


def _holes_of(nodes: Nodes) -> Iterator[Hole]:
    """The holes of a call, with those of its envelope and id, but without those inside `each`."""
    for node in nodes:
        match node:
            case Hole():
                yield node
            case Opt() | Ident():
                yield from _holes_of(node.nodes)
            case Obj():
                yield from (one for field in node.fields for one in field if isinstance(one, Hole))
            case _:
                pass


def _read_text_marker(table: Table, key: str, location: _Location) -> Nodes | str:
    """Read the marker of text or reasoning; a plain string stays one, instead of a tuple of nodes."""
    nodes = _read_marker(table.get(key), location.inner(key))
    only = nodes[0]
    return only if isinstance(table[key], str) and len(nodes) == 1 and isinstance(only, str) else nodes


def _read_marker(value: AnyType, location: _Location) -> Nodes:
    """Read nodes without holes, apart from {skip}."""
    nodes = _read_nodes(value, location)
    if found := set(_holes_of(nodes)) - {Hole.SKIP}:
        raise location.error(f"{{{min(hole.value for hole in found)}}} stands outside the calls")
    return nodes


def _read_nodes(value: AnyType, location: _Location) -> Nodes:
    rows = cast("list[AnyType]", value if isinstance(value, list) else [value])
    if not rows or rows == [None]:
        raise location.error("nodes are missing: a string, or a list of strings and tables")
    return tuple(node for number, row in enumerate(rows, 1) for node in _read_node(row, location.inner(f"node {number}")))


def _read_node(row: AnyType, location: _Location) -> Iterator[Node]:
    if isinstance(row, str):
        yield from split_holes(row)
        return
    table = cast(Table, row) if isinstance(row, dict) else {}
    kind = next((kind for kind in NODE_KINDS if kind in table), None)
    if kind is None:
        raise location.error(f"a node is a string or a table with one of {', '.join(NODE_KINDS)}")
    location.check_keys(table, kind, *NODE_KINDS[kind])
    inner = location.inner(kind)
    match kind:
        case "any":
            texts = location.get_strings(table, "any")
            if not texts:
                raise inner.error("at least one spelling is needed")
            yield OneOf(texts)
        case "opt":
            yield Opt(_read_nodes(table["opt"], inner), location.get(table, "write", bool, True))
        case "each":
            yield _read_each(table, inner)
        case "object":
            yield _read_object(location.get(table, "object", dict), inner)
        case _:
            yield Ident(_read_nodes(table["ident"], inner))


def _read_each(table: Table, location: _Location) -> Each:
    nodes = _read_nodes(table["each"], location)
    holes = set(_holes_of(nodes))
    if not holes >= {Hole.KEY, Hole.VALUE} or holes & ENVELOPE_HOLES:
        raise location.error("an argument is made of {key} and {value}, perhaps {type}, and literals")
    return Each(nodes, location.get(table, "between", str, ""))


def _read_object(table: Table, location: _Location) -> Obj:
    fields: list[tuple[str | Hole, Hole]] = []
    for label, value in table.items():
        key, hole = next(split_holes(label)), HOLE_BY_NAME.get(value[1:-1]) if isinstance(value, str) else None
        if hole not in ENVELOPE_HOLES or value != f"{{{hole.value}}}" or not (key is Hole.NAME or isinstance(key, str)):
            raise location.error(f'`{label}` must hold "{{name}}", "{{id}}" or "{{args}}"')
        fields.append((key, hole))
    if not fields:
        raise location.error("an object needs fields")
    return Obj(tuple(fields))


def split_holes(text: str) -> Iterator[str | Hole]:
    """The literals and holes of a string, in order."""
    literal, end = "", 0
    for found in HOLE_PATTERN.finditer(text):
        literal, end = literal + text[end : found.start()], found.end()
        if found[1] == "{" and found[3] == "}":
            if literal:
                yield literal
            yield HOLE_BY_NAME[found[2]]
            literal = ""
        else:
            literal += found[0][1:-1]
    if literal + text[end:] or not text:
        yield literal + text[end:]


def _read_values(value: AnyType, location: _Location) -> Spelling:
    if isinstance(value, str) and value in NAMED_VALUES:
        return NAMED_VALUES[value]
    table = cast(Table, value) if isinstance(value, dict) else {}
    kind = SPELLINGS.get(str(table.get("kind")))
    if kind is None:
        allowed = ", ".join(f'"{name}"' for name in NAMED_VALUES)
        raise location.error(f"must be {allowed}, or a table whose kind is one of {', '.join(SPELLINGS)}")
    location.check_keys(table, "kind", *(field.name for field in fields(kind)))
    made: Table = {}
    for field in fields(kind):
        if field.name in table:
            made[field.name] = _read_option(table, field.name, field.default, location)
    return kind(**made)


def _read_option(table: Table, key: str, default: object, location: _Location) -> AnyType:
    if key == "flags":
        flags = cast("dict[str, AnyType]", location.get(table, key, dict))
        meanings = {"string", "number", "integer", "boolean", "null", "array", "object", "json"}
        for flag, meant in flags.items():
            if meant not in meanings:
                raise location.error(f"the flag `{flag}` must mean one of {', '.join(sorted(meanings))}")
        return tuple(flags.items())
    return location.get_strings(table, key) if key == "quotes" else location.get(table, key, type(default))
