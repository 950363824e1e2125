"""What an answer in text must be, as a grammar, in the format's own frame for text; and how such an answer is read back."""

import re
from dataclasses import dataclass, replace

from callsmith.core.schema import check_schema
from callsmith.core.values import Output
from callsmith.formats.algebra import Format, Quotes, Says, nodes_of
from callsmith.formats.write import literal_text
from callsmith.grammar.nodes import JsonValue, Lit, Node, Own, Pattern, Seq
from callsmith.grammar.patterns.portable import portable
from callsmith.grammar.schema.normal_form import Left
from callsmith.grammar.schema.normalize import json_schema

NEVER = "\ufdd1"  # closes what only the end of the answer closes; a noncharacter, never real text


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its grammar, the literal it begins with, and (path, keyword) of what of its schema is not enforced."""

    node: Node
    head: str
    unenforced: tuple[tuple[str, str], ...]


def said_as(format: Format, output: Output) -> Said:
    """The output where the format has its text."""
    left: Left = []
    body = _body(output, left)
    says = _says(format)
    if says is None:
        return Said(body, "", tuple(left))
    head, close = literal_text(nodes_of(says.open)), literal_text(nodes_of(says.close))
    if close.strip():  # white space inside a frame would be read as part of the answer
        head, close = head.rstrip(), close.strip()
    return Said(Seq((Lit(head), body, Lit(close))), head, tuple(left))


def read_as(format: Format, output: Output) -> Format:
    """The format to read such an answer in: once JSON has begun it is text as it stands, whatever markers its strings spell.

    In a frame of the format's own only the frame's end is a marker, and a tokenizer made for the format tells it from letters.
    """
    if _says(format):
        parts = (replace(part, ended_by_calls=False) if isinstance(part, Says) else part for part in format.parts)
        return replace(format, parts=tuple(parts))
    if output.schema is None:
        return format
    return replace(format, parts=(*format.parts, Quotes("[" if output.schema.get("type") == "array" else "{", NEVER)))


def _says(format: Format) -> Says | None:
    return next((part for part in format.parts if isinstance(part, Says)), None)


def _body(output: Output, left: Left) -> Node:
    if output.schema is not None:
        check_schema(output.schema, "output.schema")
        return JsonValue(json_schema(output.schema, left))
    if output.choices:
        return Pattern("|".join(map(_exactly, output.choices)))
    if output.pattern:
        return Pattern(portable(output.pattern) or output.pattern.replace("\n", r"\n"))
    return Own(output.grammar)


def _exactly(text: str) -> str:
    """A pattern of this text alone. A literal would take what spells a special token for that token."""
    return re.sub(r"\W", lambda hit: f"\\x{{{ord(hit[0]):x}}}", text)
