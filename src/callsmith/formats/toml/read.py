"""Reading a `Format` from TOML."""

import re
from collections.abc import Iterator
from typing import cast

from callsmith.core.errors import UsageError
from callsmith.core.serialize import load
from callsmith.core.types.json_types import Json
from callsmith.core.types.tables import Table, as_object, error_at, parse_toml
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

HOLE_BY_NAME = {hole.value: hole for hole in Hole}
HOLE_PATTERN = re.compile(r"(\{+)(" + "|".join(HOLE_BY_NAME) + r")(\}+)")
_MANY_TIMES = re.compile(r"\{[\d,]*\d{4}")
ARGUMENT_HOLES = frozenset({Hole.KEY, Hole.TYPE, Hole.VALUE})
ENVELOPE_HOLES = frozenset({Hole.NAME, Hole.ID, Hole.ARGS})
NAMED_VALUES: dict[str, Spelling] = {"json": JSON, "python": PYTHON, "raw": RAW}
SPELLINGS: dict[str, type[Spelling]] = {"notation": Notation, "raw": Raw, "nested": Nested}
MEANINGS = ("array", "boolean", "integer", "json", "null", "number", "object", "string")  # of a flag
NODE_KINDS = {"any": (), "opt": ("write",), "each": ("between",), "object": (), "ident": ()}


def format_from_toml(text: str) -> Format:
    """Read a format from TOML text; a `UsageError` says where something is wrong, and what is allowed there."""
    try:
        return _read_format(_FormatTable(parse_toml(text), "the format"))
    except RecursionError as error:
        raise UsageError("the format is nested too deeply") from error


class _FormatTable(Table):
    """A table of the file. Its path is made for people: "part 1, item, node 2"."""

    separator = ", "

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.array(key) or []
        if not all(isinstance(value, str) and value for value in values):
            raise self.error(key, "expected an array of strings, none of them empty")
        return tuple(values)


def _read_format(table: _FormatTable) -> Format:
    table.check_keys(("name", "aliases", "ids", "drop", "parts"))
    name = table.required_text("name")
    parts = tuple(_read_part(_FormatTable.of(row, f"part {number}")) for number, row in enumerate(table.array("parts") or (), 1))
    if not any(isinstance(part, Calls) for part in parts):
        raise error_at(table.path, 'no part has kind = "calls"')
    ids = table.text("ids") or ""
    try:
        re.compile(ids)
    except (re.error, OverflowError) as error:
        raise table.error("ids", f"not a pattern: {error}") from error
    if _MANY_TIMES.search(ids):
        raise table.error("ids", "repeats something a thousand times or more")
    return Format(name, parts, table.texts("aliases"), ids, table.texts("drop"))


def _read_part(table: _FormatTable) -> Part:
    match table.get("kind"):
        case "calls":
            return _read_calls(table)
        case "thinks":
            table.check_keys(("kind", "open", "close", "ended_by_calls"))
            return Thinks(
                _read_text_marker(table, "open"), _read_text_marker(table, "close"), table.flag("ended_by_calls") or False
            )
        case "says":
            table.check_keys(("kind", "open", "close", "ended_by_calls"))
            close = _read_text_marker(table, "close") if "close" in table.data else ()
            return Says(_read_text_marker(table, "open"), close, table.flag("ended_by_calls") is not False)
        case "quotes":
            table.check_keys(("kind", "open", "close", "one_line"))
            return Quotes(_read_text_marker(table, "open"), _read_text_marker(table, "close"), table.flag("one_line") or False)
        case _:
            raise table.error("kind", 'must be "calls", "thinks", "says" or "quotes"')


def _read_calls(table: _FormatTable) -> Calls:
    table.check_keys(("kind", "item", "open", "between", "close", "values", "index", "most", "exact"))
    item = _read_nodes(table.get("item"), table.at("item"))
    holes = set(_holes_of(item))
    if Hole.NAME not in holes:
        raise table.error("item", "has no {name}")
    if Hole.ARGS not in holes and not any(isinstance(node, Each) for node in item):
        raise table.error("item", "has neither {args} nor `each`")
    if holes & ARGUMENT_HOLES:
        raise table.error("item", "{key}, {type} and {value} stand only inside `each`")
    return Calls(
        *item,
        open=_read_marker(table, "open") if table.get("open") else (),
        between=table.text("between") or "",
        close=_read_marker(table, "close") if table.get("close") else (),
        values=_read_values(table.data.get("values", "json"), table.at("values")),
        index=table.integer("index") or 0,
        most=table.integer("most"),
        exact=table.flag("exact") or False,
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
                yield from (hole for field in node.fields for hole in field if isinstance(hole, Hole))
            case _:
                pass


def _read_text_marker(table: _FormatTable, key: str) -> Nodes | str:
    """Read the marker of text or reasoning; a plain string stays one, instead of a tuple of nodes."""
    nodes = _read_marker(table, key)
    only = nodes[0]
    return only if isinstance(table.get(key), str) and len(nodes) == 1 and isinstance(only, str) else nodes


def _read_marker(table: _FormatTable, key: str) -> Nodes:
    """Read nodes without holes, apart from {skip}."""
    nodes = _read_nodes(table.get(key), table.at(key))
    if holes := set(_holes_of(nodes)) - {Hole.SKIP}:
        raise table.error(key, f"{{{min(hole.value for hole in holes)}}} is outside the calls")
    return nodes


def _read_nodes(value: Json, path: str) -> Nodes:
    rows = cast("list[Json]", value if isinstance(value, list) else [value])
    if not rows or rows == [None]:
        raise error_at(path, "nodes are missing: a string, or a list of strings and tables")
    return tuple(node for number, row in enumerate(rows, 1) for node in _read_node(row, f"{path}, node {number}"))


def _read_node(row: Json, path: str) -> Iterator[Node]:
    if isinstance(row, str):
        yield from split_holes(row)
        return
    table = _FormatTable(as_object(row), path)
    kind = next((kind for kind in NODE_KINDS if kind in table.data), None)
    if kind is None:
        raise error_at(path, f"a node is a string or a table with one of {', '.join(NODE_KINDS)}")
    table.check_keys((kind, *NODE_KINDS[kind]))
    match kind:
        case "any":
            texts = table.texts("any")
            if not texts:
                raise table.error("any", "at least one spelling is needed")
            yield OneOf(texts)
        case "opt":
            yield Opt(_read_nodes(table.get("opt"), table.at("opt")), table.flag("write") is not False)
        case "each":
            nodes = _read_nodes(table.get("each"), table.at("each"))
            holes = set(_holes_of(nodes))
            if not holes >= {Hole.KEY, Hole.VALUE} or holes & ENVELOPE_HOLES:
                raise table.error("each", "an argument is made of {key} and {value}, perhaps {type}, and literals")
            yield Each(nodes, table.text("between") or "")
        case "object":
            yield _read_object(table.required_object("object"))
        case _:
            yield Ident(_read_nodes(table.get("ident"), table.at("ident")))


def _read_object(table: _FormatTable) -> Obj:
    fields: list[tuple[str | Hole, Hole]] = []
    for label, value in table.data.items():
        key, hole = next(split_holes(label)), HOLE_BY_NAME.get(value[1:-1]) if isinstance(value, str) else None
        if hole not in ENVELOPE_HOLES or value != f"{{{hole.value}}}" or not (key is Hole.NAME or isinstance(key, str)):
            raise error_at(table.path, f'`{label}` must hold "{{name}}", "{{id}}" or "{{args}}"')
        fields.append((key, hole))
    if not fields:
        raise error_at(table.path, "an object needs fields")
    return Obj(tuple(fields))


def split_holes(text: str) -> Iterator[str | Hole]:
    """The literals and holes of a string, in order."""
    literal, end = "", 0
    for match in HOLE_PATTERN.finditer(text):
        literal, end = literal + text[end : match.start()], match.end()
        if match[1] == "{" and match[3] == "}":
            if literal:
                yield literal
            yield HOLE_BY_NAME[match[2]]
            literal = ""
        else:
            literal += match[0][1:-1]
    if literal + text[end:] or not text:
        yield literal + text[end:]


def _read_values(value: Json, path: str) -> Spelling:
    if isinstance(value, str) and value in NAMED_VALUES:
        return NAMED_VALUES[value]
    table = dict(as_object(value))
    spelling = SPELLINGS.get(str(table.pop("kind", None)))
    if spelling is None:
        allowed = ", ".join(f'"{name}"' for name in NAMED_VALUES)
        raise error_at(path, f"must be {allowed}, or a table whose kind is one of {', '.join(SPELLINGS)}")
    if "quotes" in table:
        table["quotes"] = _FormatTable(table, path).texts("quotes")
    if "flags" in table:
        flags = Table.of(table["flags"], path).data
        for flag, meaning in flags.items():
            if meaning not in MEANINGS:
                raise error_at(path, f"the flag `{flag}` must mean one of {', '.join(MEANINGS)}")
        table["flags"] = [*flags.items()]
    return load(spelling, table, path)
