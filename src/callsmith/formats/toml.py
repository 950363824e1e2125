"""A `Format` as a TOML file, and back: a new model family without any code.

    name = "qwen3-coder"

    [[parts]]
    kind = "thinks"
    open = "<think>\\n"
    close = "\\n</think>\\n\\n"

    [[parts]]
    kind = "calls"
    item = [
        {opt = "<tool_call>\\n"},
        "<function={name}>\\n",
        {each = "<parameter={key}>\\n{value}\\n</parameter>\\n"},
        "</function>",
        {opt = "\\n</tool_call>"},
    ]
    between = "\\n"
    values = "raw"

Nodes are a string or a list of strings and tables. In a string `{name}`, `{id}`, `{index}`, `{args}`, `{key}`, `{type}`,
`{value}` and `{skip}` are holes and all else is literal; `{{name}}` is the literal `{name}`. The tables are `{any = [...]}`,
`{opt = ..., write = false}`, `{each = ..., between = ", "}`, `{object = {name = "{name}", arguments = "{args}"}}` and
`{ident = ...}`. `values` is "json", "python" or "raw", or a table with a `kind` and the fields of that spelling.
"""

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

Dict: TypeAlias = dict[str, AnyType]

HOLES = {hole.value: hole for hole in Hole}
HOLE = re.compile(r"(\{+)(" + "|".join(HOLES) + r")(\}+)")
OF_ARGUMENT = frozenset({Hole.KEY, Hole.TYPE, Hole.VALUE})
OF_ENVELOPE = frozenset({Hole.NAME, Hole.ID, Hole.ARGS})
NAMED_VALUES: dict[str, Spelling] = {"json": JSON, "python": PYTHON, "raw": RAW}
SPELLINGS: dict[str, type[Spelling]] = {"notation": Notation, "raw": Raw, "nested": Nested}
NODE_TABLES = {"any": (), "opt": ("write",), "each": ("between",), "object": (), "ident": ()}
WIDEST = 110


def format_from_toml(text: str) -> Format:
    """The format a TOML text describes; a `UsageError` says where in it something is wrong, and what is allowed there."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the format is not valid TOML: {error}") from error
    top = _Place("the format")
    top.only(table, "name", "aliases", "ids", "drop", "parts")
    name = top.typed(table, "name", str)
    if not name:
        raise top.error("`name` is missing")
    rows = top.typed(table, "parts", list, [])
    parts = tuple(_part(row, _Place(f"part {number}")) for number, row in enumerate(rows, 1))
    if not any(isinstance(part, Calls) for part in parts):
        raise top.error('no part has kind = "calls"')
    ids = top.typed(table, "ids", str, "")
    try:
        re.compile(ids)
    except re.error as error:
        raise top.error(f"`ids` is not a pattern: {error}") from error
    return Format(name, parts, top.strings(table, "aliases"), ids, top.strings(table, "drop"))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the file we are, for what is to be said about it."""

    path: str

    def error(self, what: str) -> UsageError:
        return UsageError(f"{self.path}: {what}", field=self.path)

    def inner(self, step: str) -> "_Place":
        return _Place(f"{self.path}, {step}")

    def only(self, table: Mapping[str, AnyType], *allowed: str) -> None:
        for key in table:
            if key not in allowed:
                raise self.error(f"unknown key `{key}`; allowed: {', '.join(allowed)}")

    def typed(self, table: Mapping[str, AnyType], key: str, kind: type, default: AnyType = None) -> AnyType:
        value = table.get(key, default)
        if value is not default and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            names = {str: "a string", list: "a list", bool: "true or false", int: "a whole number", dict: "a table"}
            raise self.error(f"`{key}` must be {names[kind]}")
        return value

    def strings(self, table: Mapping[str, AnyType], key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        values = table.get(key, list(default))
        if not isinstance(values, list) or not all(isinstance(one, str) and one for one in cast("list[AnyType]", values)):
            raise self.error(f"`{key}` must be a list of strings")
        return tuple(cast("list[str]", values))


# --- reading ------------------------------------------------------------------------------------------------------------------


def _part(row: AnyType, place: _Place) -> Part:
    if not isinstance(row, dict):
        raise place.error("a part must be a table")
    table = cast(Dict, row)
    match table.get("kind"):
        case "calls":
            return _calls(table, place)
        case "thinks":
            place.only(table, "kind", "open", "close", "ended_by_calls")
            ended = place.typed(table, "ended_by_calls", bool, False)
            return Thinks(_frame(table, "open", place), _frame(table, "close", place), ended)
        case "says":
            place.only(table, "kind", "open", "close", "ended_by_calls")
            ended = place.typed(table, "ended_by_calls", bool, True)
            return Says(_frame(table, "open", place), _frame(table, "close", place) if "close" in table else (), ended)
        case "quotes":
            place.only(table, "kind", "open", "close")
            return Quotes(_frame(table, "open", place), _frame(table, "close", place))
        case _:
            raise place.error('`kind` must be "calls", "thinks", "says" or "quotes"')


def _calls(table: Dict, place: _Place) -> Calls:
    place.only(table, "kind", "item", "open", "between", "close", "values", "index", "most")
    item = _nodes(table.get("item"), place.inner("item"))
    held = set(_holes(item))
    if Hole.NAME not in held:
        raise place.error("`item` has no {name}")
    if Hole.ARGS not in held and not any(isinstance(node, Each) for node in item):
        raise place.error("`item` has neither {args} nor `each`")
    if held & OF_ARGUMENT:
        raise place.error("{key}, {type} and {value} stand only inside `each`")
    return Calls(
        *item,
        open=_marker(table["open"], place.inner("open")) if table.get("open") else (),
        between=place.typed(table, "between", str, ""),
        close=_marker(table["close"], place.inner("close")) if table.get("close") else (),
        values=_values(table.get("values", "json"), place.inner("values")),
        index=place.typed(table, "index", int, 0),
        most=place.typed(table, "most", int),
    )


def _holes(nodes: Nodes) -> Iterator[Hole]:
    """The holes of a call, those of its envelope and id included, those of its single arguments not."""
    for node in nodes:
        match node:
            case Hole():
                yield node
            case Opt() | Ident():
                yield from _holes(node.nodes)
            case Obj():
                yield from (one for field in node.fields for one in field if isinstance(one, Hole))
            case _:
                pass


def _frame(table: Dict, key: str, place: _Place) -> Nodes | str:
    """The marker of text or thought: one literal where it is given as such."""
    nodes = _marker(table.get(key), place.inner(key))
    only = nodes[0]
    return only if isinstance(table[key], str) and len(nodes) == 1 and isinstance(only, str) else nodes


def _marker(value: AnyType, place: _Place) -> Nodes:
    """Nodes that hold nothing of a call."""
    nodes = _nodes(value, place)
    if found := set(_holes(nodes)) - {Hole.SKIP}:
        raise place.error(f"{{{min(hole.value for hole in found)}}} stands outside the calls")
    return nodes


def _nodes(value: AnyType, place: _Place) -> Nodes:
    rows = cast("list[AnyType]", value if isinstance(value, list) else [value])
    if not rows or rows == [None]:
        raise place.error("nodes are missing: a string, or a list of strings and tables")
    return tuple(node for number, row in enumerate(rows, 1) for node in _node(row, place.inner(f"node {number}")))


def _node(row: AnyType, place: _Place) -> Iterator[Node]:
    if isinstance(row, str):
        yield from _text(row)
        return
    table = cast(Dict, row) if isinstance(row, dict) else {}
    kind = next((kind for kind in NODE_TABLES if kind in table), None)
    if kind is None:
        raise place.error(f"a node is a string or a table with one of {', '.join(NODE_TABLES)}")
    place.only(table, kind, *NODE_TABLES[kind])
    inner = place.inner(kind)
    match kind:
        case "any":
            texts = place.strings(table, "any")
            if not texts:
                raise inner.error("at least one spelling is needed")
            yield OneOf(texts)
        case "opt":
            yield Opt(_nodes(table["opt"], inner), place.typed(table, "write", bool, True))
        case "each":
            yield _each(table, inner)
        case "object":
            yield _object(place.typed(table, "object", dict), inner)
        case _:
            yield Ident(_nodes(table["ident"], inner))


def _each(table: Dict, place: _Place) -> Each:
    nodes = _nodes(table["each"], place)
    held = set(_holes(nodes))
    if not held >= {Hole.KEY, Hole.VALUE} or held & OF_ENVELOPE:
        raise place.error("an argument is made of {key} and {value}, perhaps {type}, and literals")
    return Each(nodes, place.typed(table, "between", str, ""))


def _object(table: Dict, place: _Place) -> Obj:
    fields: list[tuple[str | Hole, Hole]] = []
    for label, value in table.items():
        key, hole = next(_text(label)), HOLES.get(value[1:-1]) if isinstance(value, str) else None
        if hole not in OF_ENVELOPE or value != f"{{{hole.value}}}" or not (key is Hole.NAME or isinstance(key, str)):
            raise place.error(f'`{label}` must hold "{{name}}", "{{id}}" or "{{args}}"')
        fields.append((key, hole))
    if not fields:
        raise place.error("an object needs fields")
    return Obj(tuple(fields))


def _text(text: str) -> Iterator[str | Hole]:
    """The literals and holes of a string."""
    literal, end = "", 0
    for found in HOLE.finditer(text):
        literal, end = literal + text[end : found.start()], found.end()
        if found[1] == "{" and found[3] == "}":
            if literal:
                yield literal
            yield HOLES[found[2]]
            literal = ""
        else:
            literal += found[0][1:-1]
    if literal + text[end:] or not text:
        yield literal + text[end:]


def _values(value: AnyType, place: _Place) -> Spelling:
    if isinstance(value, str) and value in NAMED_VALUES:
        return NAMED_VALUES[value]
    table = cast(Dict, value) if isinstance(value, dict) else {}
    kind = SPELLINGS.get(table.get("kind", ""))
    if kind is None:
        allowed = ", ".join(f'"{name}"' for name in NAMED_VALUES)
        raise place.error(f"must be {allowed}, or a table whose kind is one of {', '.join(SPELLINGS)}")
    place.only(table, "kind", *(field.name for field in fields(kind)))
    made: Dict = {}
    for field in fields(kind):
        if field.name in table:
            made[field.name] = _setting(table, field.name, field.default, place)
    return kind(**made)


def _setting(table: Dict, key: str, default: object, place: _Place) -> AnyType:
    if key == "flags":
        flags = cast("dict[str, AnyType]", place.typed(table, key, dict))
        meanings = {"string", "number", "integer", "boolean", "null", "array", "object", "json"}
        for flag, meant in flags.items():
            if meant not in meanings:
                raise place.error(f"the flag `{flag}` must mean one of {', '.join(sorted(meanings))}")
        return tuple(flags.items())
    return place.strings(table, key) if key == "quotes" else place.typed(table, key, type(default))


# --- writing ------------------------------------------------------------------------------------------------------------------


def format_to_toml(format: Format) -> str:
    """A format as a TOML text that reads back to the same value."""
    head: Dict = {"name": format.name}
    head |= {"aliases": list(format.aliases)} if format.aliases else {}
    head |= {"ids": format.ids} if format.ids else {}
    head |= {"drop": list(format.drop)} if format.drop else {}
    tables = [_lines(head), *(["[[parts]]", *_lines(_part_table(part))] for part in format.parts)]
    return "\n\n".join("\n".join(lines) for lines in tables) + "\n"


def _part_table(part: Part) -> Dict:
    if not isinstance(part, Calls):
        frame: Dict = {"kind": type(part).__name__.lower(), "open": _rows(part.open)}
        frame |= {"close": _rows(part.close)} if part.close else {}
        if isinstance(part, Thinks | Says) and part.ended_by_calls != isinstance(part, Says):  # not what is taken for granted
            frame |= {"ended_by_calls": part.ended_by_calls}
        return frame
    table: Dict = {"kind": "calls", "item": _compact(part.item)}
    table |= {"open": _compact(part.open)} if part.open else {}
    table |= {"between": part.between} if part.between else {}
    table |= {"close": _compact(part.close)} if part.close else {}
    table |= {"values": _values_row(part.values)} if part.values != JSON else {}
    table |= {"index": part.index} if part.index else {}
    return table | ({} if part.most is None else {"most": part.most})


def _rows(nodes: Nodes | str) -> AnyType:
    """Nodes as strings and tables; a literal goes into one string with the holes beside it, where that reads back the same."""
    if isinstance(nodes, str):
        return _quoted_holes(nodes)
    rows: list[AnyType] = []
    joinable = False  # the last row is a string that ends in a hole, or that a hole may follow
    for node in nodes:
        piece = f"{{{node.value}}}" if isinstance(node, Hole) else _quoted_holes(node) if isinstance(node, str) else None
        if piece is None:
            rows.append(_node_row(node))
        elif (
            joinable
            and (isinstance(node, Hole) or rows[-1].endswith("}"))
            and [*_text(rows[-1] + piece)] == [*_text(rows[-1]), node]
        ):
            rows[-1] += piece
        else:
            rows.append(piece)
        joinable = piece is not None
    return rows


def _quoted_holes(text: str) -> str:
    """A literal, with braces doubled where it would read as a hole."""
    return HOLE.sub(lambda found: f"{{{found[0]}}}", text)


def _node_row(node: Node) -> Dict:
    match node:
        case OneOf():
            return {"any": list(node.texts)}
        case Opt():
            return {"opt": _compact(node.nodes)} | ({} if node.write else {"write": False})
        case Each():
            return {"each": _compact(node.nodes)} | ({"between": node.between} if node.between else {})
        case Obj():
            label = {key: f"{{{key.value}}}" if isinstance(key, Hole) else _quoted_holes(key) for key, _ in node.fields}
            return {"object": {label[key]: f"{{{hole.value}}}" for key, hole in node.fields}}
        case Ident():
            return {"ident": _compact(node.nodes)}
        case _:
            raise AssertionError(node)


def _compact(nodes: Nodes) -> AnyType:
    rows = _rows(nodes)
    return rows[0] if len(rows) == 1 and isinstance(rows[0], str) else rows


def _values_row(values: Spelling) -> AnyType:
    if name := next((name for name, named in NAMED_VALUES.items() if named == values), None):
        return name
    kind = next(name for name, kind in SPELLINGS.items() if isinstance(values, kind))
    changed = {field.name: getattr(values, field.name) for field in fields(values)}
    changed = {key: value for key, value in changed.items() if value != getattr(type(values)(), key)}
    return {"kind": kind} | {key: dict(value) if key == "flags" else value for key, value in changed.items()}


def _lines(table: Dict) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        line = f"{key} = {_toml(value)}"
        if isinstance(value, list) and len(line) > WIDEST:
            rows = [f"    {_toml(one)}," for one in cast("list[AnyType]", value)]
            lines += [f"{key} = [", *rows, "]"]
        else:
            lines.append(line)
    return lines


def _toml(value: AnyType) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _string(value)
        case dict():
            pairs = cast(Dict, value).items()
            return "{" + ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in pairs) + "}"
        case _:
            return "[" + ", ".join(_toml(one) for one in value) + "]"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _string(text: str) -> str:
    """A TOML string: as it is between single quotes where that spares escapes, else escaped."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    escaped = (named.get(one) or (one if one.isprintable() else f"\\U{ord(one):08X}") for one in text)
    return '"' + "".join(escaped) + '"'
