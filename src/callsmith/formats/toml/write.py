"""Writing a `Format` as TOML."""

import re
from dataclasses import fields
from typing import Any as AnyType
from typing import TypeAlias, cast

from callsmith.core.errors import UsageError
from callsmith.formats.algebra import (
    JSON,
    Calls,
    Each,
    Format,
    Hole,
    Ident,
    Node,
    Nodes,
    Obj,
    OneOf,
    Opt,
    Part,
    Quotes,
    Says,
    Spelling,
    Thinks,
)
from callsmith.formats.toml.read import HOLE_PATTERN, NAMED_VALUES, SPELLINGS, split_holes

Table: TypeAlias = dict[str, AnyType]
MAX_WIDTH = 110


def format_to_toml(format: Format) -> str:
    """Write a format as TOML text that reads back as the same value."""
    if format.detectors:
        raise UsageError(f"the format {format.name} is read by code, {format.detectors[0].__name__}, which TOML cannot tell")
    head: Table = {"name": format.name}
    head |= {"aliases": list(format.aliases)} if format.aliases else {}
    head |= {"ids": format.ids} if format.ids else {}
    head |= {"drop": list(format.drop)} if format.drop else {}
    tables = [_table_lines(head), *(["[[parts]]", *_table_lines(_part_table(part))] for part in format.parts)]
    return "\n\n".join("\n".join(lines) for lines in tables) + "\n"


def _part_table(part: Part) -> Table:
    if not isinstance(part, Calls):
        frame: Table = {"kind": type(part).__name__.lower(), "open": _node_rows(part.open)}
        frame |= {"close": _node_rows(part.close)} if part.close else {}
        if isinstance(part, Thinks | Says) and part.ended_by_calls != isinstance(part, Says):  # not the default
            frame |= {"ended_by_calls": part.ended_by_calls}
        return frame | ({"one_line": True} if isinstance(part, Quotes) and part.one_line else {})
    table: Table = {"kind": "calls", "item": _compact(part.item)}
    table |= {"open": _compact(part.open)} if part.open else {}
    table |= {"between": part.between} if part.between else {}
    table |= {"close": _compact(part.close)} if part.close else {}
    table |= {"values": _spelling_row(part.values)} if part.values != JSON else {}
    table |= {"index": part.index} if part.index else {}
    table |= {} if part.most is None else {"most": part.most}
    return table | ({"exact": True} if part.exact else {})


def _node_rows(nodes: Nodes | str) -> AnyType:
    """Nodes as strings and tables. Literals and holes side by side are joined in one string, if that reads back the same."""
    if isinstance(nodes, str):
        return _escape_holes(nodes)
    rows: list[AnyType] = []
    joinable = False  # the last row is a string that ends in a hole, or that a hole may follow
    for node in nodes:
        piece = f"{{{node.value}}}" if isinstance(node, Hole) else _escape_holes(node) if isinstance(node, str) else None
        if piece is None:
            rows.append(_node_row(node))
        elif (
            joinable
            and (isinstance(node, Hole) or rows[-1].endswith("}"))
            and [*split_holes(rows[-1] + piece)] == [*split_holes(rows[-1]), node]
        ):
            rows[-1] += piece
        else:
            rows.append(piece)
        joinable = piece is not None
    return rows


def _escape_holes(text: str) -> str:
    """A literal, with braces doubled where it would be read as a hole."""
    return HOLE_PATTERN.sub(lambda match: f"{{{match[0]}}}", text)


def _node_row(node: Node) -> Table:
    match node:
        case OneOf():
            return {"any": list(node.texts)}
        case Opt():
            return {"opt": _compact(node.nodes)} | ({} if node.write else {"write": False})
        case Each():
            return {"each": _compact(node.nodes)} | ({"between": node.between} if node.between else {})
        case Obj():
            label = {key: f"{{{key.value}}}" if isinstance(key, Hole) else _escape_holes(key) for key, _ in node.fields}
            return {"object": {label[key]: f"{{{hole.value}}}" for key, hole in node.fields}}
        case Ident():
            return {"ident": _compact(node.nodes)}
        case _:
            raise AssertionError(node)


def _compact(nodes: Nodes) -> AnyType:
    rows = _node_rows(nodes)
    return rows[0] if len(rows) == 1 and isinstance(rows[0], str) else rows


def _spelling_row(values: Spelling) -> AnyType:
    if name := next((name for name, spelling in NAMED_VALUES.items() if spelling == values), None):
        return name
    kind = next(name for name, kind in SPELLINGS.items() if isinstance(values, kind))
    changed = {field.name: getattr(values, field.name) for field in fields(values)}
    changed = {key: value for key, value in changed.items() if value != getattr(type(values)(), key)}
    return {"kind": kind} | {key: dict(value) if key == "flags" else value for key, value in changed.items()}


def _table_lines(table: Table) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        line = f"{key} = {_value_text(value)}"
        if isinstance(value, list) and len(line) > MAX_WIDTH:
            rows = [f"    {_value_text(item)}," for item in cast("list[AnyType]", value)]
            lines += [f"{key} = [", *rows, "]"]
        else:
            lines.append(line)
    return lines


def _value_text(value: AnyType) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _string_text(value)
        case dict():
            pairs = cast(Table, value).items()
            return "{" + ", ".join(f"{_key_text(key)} = {_value_text(item)}" for key, item in pairs) + "}"
        case _:
            return "[" + ", ".join(_value_text(item) for item in value) + "]"


def _key_text(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string_text(key)


def _string_text(text: str) -> str:
    """A TOML string: between single quotes if that avoids escapes, else with escapes."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    escaped = (escapes.get(item) or (item if item.isprintable() else f"\\U{ord(item):08X}") for item in text)
    return '"' + "".join(escaped) + '"'
