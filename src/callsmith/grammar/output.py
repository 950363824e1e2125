"""The grammar of structured output, inside the format's markers for text; and the format to read such an answer with."""

import re
from dataclasses import dataclass, replace

from callsmith.core.schema import GRAMMAR, check_schema
from callsmith.core.values import Output
from callsmith.formats.algebra import Format, Quotes, Says, nodes_of
from callsmith.formats.write import literal_text
from callsmith.grammar.languages.gbnf import gbnf_to_lark, is_gbnf
from callsmith.grammar.limits import check_lark, check_pattern
from callsmith.grammar.nodes import JsonValue, Lit, Node, Pattern, Seq, UserGrammar
from callsmith.grammar.patterns.portable import to_portable
from callsmith.grammar.schema.normal_form import UnenforcedKeywords, reachable
from callsmith.grammar.schema.normalize import normalize_standalone

NEVER_CLOSES = "\ufdd1"  # a closing marker that never comes, so that only the end of the answer closes: a Unicode noncharacter


@dataclass(frozen=True, slots=True)
class OutputGrammar:
    """The grammar of an output, the literal it begins with, and (path, keyword) of what it does not enforce."""

    node: Node
    head: str
    unenforced: tuple[tuple[str, str], ...]


def output_grammar(format: Format, output: Output) -> OutputGrammar:
    """The grammar of an output, between the markers that the format has around text."""
    unenforced: UnenforcedKeywords = []
    body = _body(output, unenforced)
    says = text_part(format)
    if says is None:
        return OutputGrammar(body, "", tuple(unenforced))
    head, close = literal_text(nodes_of(says.open)), literal_text(nodes_of(says.close))
    if close.strip():  # white space inside a frame would be read as part of the answer
        head, close = head.rstrip(), close.strip()
    return OutputGrammar(Seq((Lit(head), body, Lit(close))), head, tuple(unenforced))


def format_for_output(format: Format, output: Output) -> Format:
    """The format to read a structured answer with: once JSON has begun it is plain text, even where its strings spell markers.

    Where the format has markers around text, only the closing one counts, and the tokenizer tells it from the same letters.
    """
    if text_part(format):
        parts = (replace(part, ended_by_calls=False) if isinstance(part, Says) else part for part in format.parts)
        return replace(format, parts=tuple(parts))
    if output.schema is None:
        return format
    return replace(format, parts=(*format.parts, Quotes("[" if output.schema.get("type") == "array" else "{", NEVER_CLOSES)))


def text_part(format: Format) -> Says | None:
    """The part of the format that describes its markers around text, if it has one."""
    return next((part for part in format.parts if isinstance(part, Says)), None)


def _body(output: Output, unenforced: UnenforcedKeywords) -> Node:
    if output.schema is not None:
        check_schema(output.schema, "output.schema")
        normal = normalize_standalone(output.schema, unenforced, with_implied=not output.as_written)
        unenforced += [(item.path, GRAMMAR) for item in reachable(normal, normal) if GRAMMAR in item]
        return JsonValue(normal, as_written=output.as_written)
    if output.choices:
        return Pattern("|".join(map(_literal_pattern, output.choices)))
    if output.pattern:
        check_pattern(output.pattern, "pattern")
        return Pattern(to_portable(output.pattern) or output.pattern.replace("\n", r"\n"))
    if is_gbnf(output.grammar):
        return UserGrammar(gbnf_to_lark(output.grammar))
    check_lark(output.grammar)
    return UserGrammar(output.grammar)


def _literal_pattern(text: str) -> str:
    """A pattern that matches exactly this text. In a `Lit`, the text of a special token would mean that token."""
    return re.sub(r"\W", lambda hit: f"\\x{{{ord(hit[0]):x}}}", text)
