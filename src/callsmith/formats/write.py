"""Writing calls as text, as the model family itself writes them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as AnyType

from callsmith.core.errors import UsageError
from callsmith.core.values import Call, Json
from callsmith.formats.algebra import (
    JSON,
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
    Raw,
    Says,
    Spelling,
    first_literals,
    nodes_of,
)


def write(format: Format, calls: Sequence[Call] = (), *, text: str = "", thought: str = "") -> str:
    """Write a whole turn: reasoning, text and calls. A `UsageError` where the format cannot express a value."""
    out: list[str] = []
    if thought and format.thinks:
        out += [literal_text(nodes_of(format.thinks.open)), thought, literal_text(nodes_of(format.thinks.close))]
    if text:
        says = next((part for part in format.parts if isinstance(part, Says)), Says(()))
        out += [literal_text(nodes_of(says.open)), text, literal_text(nodes_of(says.close))]
    if calls:
        part = format.calls
        items = (_CallWriter(part, call, index).text(part.item) for index, call in enumerate(calls, part.index))
        out += [literal_text(part.open), part.between.join(items), literal_text(part.close)]
    return "".join(out)


def literal_text(nodes: Nodes) -> str:
    """The text of nodes without holes."""
    return _CallWriter(Calls(), Call(""), 0).text(nodes)


@dataclass(frozen=True, slots=True)
class _CallWriter:
    """Writes one call. `index` is its number in the turn."""

    part: Calls
    call: Call
    index: int

    def text(self, nodes: Nodes) -> str:
        return "".join(self._node(node) for node in nodes)

    def _node(self, node: Node) -> str:
        match node:
            case str():
                return node
            case OneOf():
                return node.texts[0]
            case Opt():
                return self.text(node.nodes) if node.write and (Hole.ID not in node.nodes or self.call.id) else ""
            case Ident():
                return self.text(node.nodes)
            case Obj():
                return self._envelope(node)
            case Each():
                return node.between.join(
                    "".join(self._argument(node.nodes, position, key, value) for position in range(len(node.nodes)))
                    for key, value in self.call.arguments.items()
                )
            case Hole.NAME:
                return escape_name(self.part.values, self.call.name)
            case Hole.ID:
                return self.call.id
            case Hole.INDEX:
                return str(self.index)
            case Hole.ARGS:
                values = self.part.values
                return spell(values if isinstance(values, Notation) else JSON, dict(self.call.arguments))
            case Hole.SKIP:
                return ""
            case Hole():
                raise UsageError(f"{node} is outside `each`")

    def _envelope(self, node: Obj) -> str:
        values = {Hole.NAME: self.call.name, Hole.ID: self.call.id, Hole.ARGS: dict(self.call.arguments)}
        fields: dict[str, AnyType] = {}
        for key, hole in node.fields:
            if hole is not Hole.ID or self.call.id:
                fields[self.call.name if isinstance(key, Hole) else key] = values[hole]
        return spell(JSON, fields)

    def _argument(self, nodes: Nodes, position: int, key: str, value: Json) -> str:
        values, node = self.part.values, nodes[position]
        if isinstance(node, Opt):
            inner = node.nodes if node.write else ()
            return "".join(self._argument(inner, at, key, value) for at in range(len(inner)))
        match node:
            case Hole.KEY:
                return escape_name(values, key)
            case Hole.TYPE:
                return flag_of(values, value)
            case Hole.VALUE:
                return spell_within(values, value, first_literals(nodes[position + 1 :]))
            case _:
                return self._node(node)


def escape_name(values: Spelling, name: str) -> str:
    """A name or key as it is written: between double quotes, only these and `&` need entities."""
    return name.replace("&", "&amp;").replace('"', "&quot;") if isinstance(values, Raw) and values.entities else name


def flag_of(values: Spelling, value: Json) -> str:
    """The flag for the type of a value."""
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}
    kind = kinds[type(value)]
    flags = {meant: flag for flag, meant in values.flags} if isinstance(values, Raw) else {}
    return flags.get(kind, flags.get("json", kind))


def spell_within(values: Spelling, value: Json, closers: tuple[str, ...]) -> str:
    """Write a value up to a closer; a `UsageError` if it contains one."""
    text = spell(values, value)
    if isinstance(values, Raw) and any(closer in text for closer in closers):
        raise UsageError(f"the value {text!r} contains {closers[0]!r}, which ends it in this format")
    return text


def spell(values: Spelling, value: Json) -> str:
    """Write a value in a spelling."""
    match values:
        case Raw():
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        case Nested():
            return _nest(values, value)
        case Notation() if values.python:
            return repr(value)
        case Notation() if values.bare_keys:
            return _bare(values, value)
        case Notation():
            return json.dumps(value, ensure_ascii=False, separators=(values.item_separator, values.key_separator))


def _bare(values: Notation, value: Json) -> str:
    match value:
        case dict():
            inner = (f"{key}{values.key_separator}{_bare(values, item)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType]
            return "{" + values.item_separator.join(inner) + "}"
        case list():
            return "[" + values.item_separator.join(_bare(values, item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType]
        case str():
            quote = values.quotes[0]
            if quote in value:
                raise UsageError(f"the value {value!r} contains {quote!r}, which ends it in this format")
            return f"{quote}{value}{quote}"
        case _:
            return json.dumps(value)


def _nest(values: Nested, value: Json) -> str:
    def element(key: str, inner: Json) -> str:
        return f"{values.prefix}<{key}>{_nest(values, inner)}{values.prefix}</{key}>"

    match value:
        case dict():
            return "".join(element(key, item) for key, item in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list():
            return "".join(element(values.item, item) for item in value)  # pyright: ignore[reportUnknownVariableType]
        case str():
            if f"{values.prefix}<" in value:
                raise UsageError(f"the value {value!r} contains a tag of this format")
            return value
        case _:
            return json.dumps(value)
