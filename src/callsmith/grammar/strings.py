"""Strings held by a grammar (`x-grammar`), in the way that a model family writes strings: in quotes and escaped, or as plain text
up to a marker."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from callsmith.formats.algebra import Notation
from callsmith.grammar.languages.text_grammar import TextGrammar
from callsmith.grammar.nodes import Closed, Grammar, Lit, Node, Pattern, Ref, Seq, map_leaves
from callsmith.grammar.patterns.character_sets import Ranges, chars, complement, intersection, union
from callsmith.grammar.patterns.regex import (
    Cat,
    CharSet,
    Or,
    Regex,
    literal,
    map_sets,
    parse,
    portable_text,
)
from callsmith.grammar.rules import Rules

_CONTROLS: Final = ((0, 0x1F),)


@dataclass(frozen=True, slots=True)
class Quoted:
    """Strings in quotes. `spell` is a character of a set as it may be written between them."""

    quote: str
    spell: Callable[[Ranges], Regex]


@dataclass(frozen=True, slots=True)
class Plain:
    """Strings as plain text: none of `excluded` occurs in it, and `close` comes behind it."""

    close: str
    excluded: tuple[str, ...]
    open: str = ""


def string_spellings(notation: Notation) -> list[Quoted | Plain]:
    """The ways in which a notation has strings."""
    if notation.python:
        return [Quoted(quote, partial(_python_characters, quote=quote)) for quote in "'\""]
    quote = notation.quotes[0]
    return [Quoted('"', _json_characters)] if notation.is_json else [Plain(quote, (quote,), quote)]


def text_nodes(grammar: TextGrammar, spelling: Quoted | Plain, rules: Rules) -> Node | None:
    """The texts of a grammar, with what is around a string; None where they would become too large, as plain text may.

    Where the grammar needs rules, they are added to `rules`.
    """
    if isinstance(spelling, Plain):
        opener = (Lit(spelling.open),) if spelling.open else ()
        if grammar.unrolled is None:
            return None
        deeper = None if grammar.regex else Grammar(grammar.start, grammar.rules)
        return Seq((*opener, Closed(portable_text(grammar.unrolled), spelling.close, spelling.excluded, deeper)))
    quote = literal(spelling.quote)
    if grammar.regex is not None:
        return Pattern(portable_text(Cat((quote, map_sets(grammar.regex, spelling.spell), quote))))
    names = {name: rules.reserve("g") for name in grammar.rules}
    for name, node in grammar.rules.items():
        rules.nodes[names[name]] = _spelled(node, names, spelling.spell)
    edge = Pattern(portable_text(quote))
    return Seq((edge, _spelled(grammar.start, names, spelling.spell), edge))


def _spelled(node: Node, names: dict[str, str], spell: Callable[[Ranges], Regex]) -> Node:
    def spelled(leaf: Node) -> Node:
        match leaf:
            case Pattern(regex):
                return Pattern(portable_text(map_sets(parse(regex), spell)))
            case Ref(name):
                return Ref(names[name])
            case _:
                raise TypeError(f"no part of a grammar that a user wrote: {leaf}")

    return map_leaves(node, spelled)


# --- characters between quotes ------------------------------------------------------------------------------------------------


_LETTERS: Final = {"\n": "n", "\r": "r", "\t": "t"}
_JSON_LETTERS: Final = {"\b": "b", "\f": "f", **_LETTERS}


@lru_cache(1024)
def _json_characters(ranges: Ranges) -> Regex:
    return _escaped(ranges, '"', _JSON_LETTERS, "u00")


@lru_cache(1024)
def _python_characters(ranges: Ranges, quote: str) -> Regex:
    return _escaped(ranges, quote, _LETTERS, "x")


def _escaped(ranges: Ranges, quote: str, short: dict[str, str], number: str) -> Regex:
    """A character of the set: raw, or behind a backslash as itself, as a letter, or by its number of two digits."""
    ways: list[Regex] = []
    if raw := intersection(ranges, complement(union(_CONTROLS, chars(f"{quote}\\")))):
        ways.append(CharSet(raw))
    letters = {quote: quote, "\\": "\\", **short}
    behind = "".join(letter for char, letter in letters.items() if intersection(ranges, chars(char)))
    escapes: list[Regex] = [CharSet(chars(behind))] if behind else []
    numbered = intersection(intersection(ranges, _CONTROLS), complement(chars("".join(short))))
    codes = [code for low, high in numbered for code in range(low, high + 1)]
    escapes += [literal(f"{number}{code:02x}") for code in codes]
    if escapes:
        ways.append(Cat((literal("\\"), Or(tuple(escapes)))))
    return ways[0] if len(ways) == 1 else Or(tuple(ways))
