"""Strings held by a grammar (`x-grammar`), in the way that a model family writes strings: in quotes and escaped, or as plain text
up to a marker."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.formats.algebra import Notation
from callsmith.grammar.languages.productions import ROOT, Productions, Symbol, Way, shorten_ways, to_productions
from callsmith.grammar.languages.text_grammar import TextGrammar
from callsmith.grammar.nodes import Alt, Closed, Lit, Many, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.automaton import excluding
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

_MAX_RULES: Final = 5_000  # of texts without certain words
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
        return [_python_spelling(quote) for quote in "'\""]
    quote = notation.quotes[0]
    return [_json_spelling()] if notation.is_json else [Plain(quote, (quote,), quote)]


def text_nodes(grammar: TextGrammar, spelling: Quoted | Plain, rules: Rules) -> Node:
    """The texts of a grammar, with what is around a string. Where the grammar needs rules, they are added to `rules`."""
    if isinstance(spelling, Plain):
        opener = (Lit(spelling.open),) if spelling.open else ()
        if grammar.regex is not None:
            return Seq((*opener, Closed(portable_text(grammar.regex), spelling.close, spelling.excluded)))
        text = _ExcludingWords(to_productions(grammar.start, grammar.rules, by_character=True), spelling.excluded, rules)
        return Seq((*opener, text.node(), Lit(spelling.close)))
    quote = literal(spelling.quote)
    if grammar.regex is not None:
        return Pattern(portable_text(Cat((quote, map_sets(grammar.regex, spelling.spell), quote))))
    names = {name: rules.reserve("g") for name in grammar.rules}
    for name, node in grammar.rules.items():
        rules.nodes[names[name]] = _spelled(node, names, spelling.spell)
    edge = Pattern(portable_text(quote))
    return Seq((edge, _spelled(grammar.start, names, spelling.spell), edge))


def _spelled(node: Node, names: dict[str, str], spell: Callable[[Ranges], Regex]) -> Node:
    match node:
        case Pattern(regex):
            return Pattern(portable_text(map_sets(parse(regex), spell)))
        case Ref(name):
            return Ref(names[name])
        case Many(item, least, most):
            return Many(_spelled(item, names, spell), least, most)
        case Seq(items):
            return Seq(tuple(_spelled(item, names, spell) for item in items))
        case Alt(items):
            return Alt(tuple(_spelled(item, names, spell) for item in items))
        case _:
            raise TypeError(f"no part of a grammar that a user wrote: {node}")


# --- characters between quotes ------------------------------------------------------------------------------------------------


@cache
def _json_spelling() -> Quoted:
    """Strings as JSON has them: escaped is what has to be."""
    return Quoted('"', cache(lambda ranges: _escaped(ranges, '"', {"\b": "b", "\f": "f"} | _SHORT, "u00")))


@cache
def _python_spelling(quote: str) -> Quoted:
    """Strings as Python has them, in these quotes."""
    return Quoted(quote, cache(lambda ranges: _escaped(ranges, quote, _SHORT, "x")))


_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t"}


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


# --- plain text of a grammar that refers to itself ----------------------------------------------------------------------------


class _ExcludingWords:
    """The texts of productions in which none of some words occurs.

    An automaton says after each character how much of a word there is. For a rule and the automaton's states before and after it
    there is a rule of its own, as far as they can be reached.
    """

    def __init__(self, productions: Productions, words: tuple[str, ...], rules: Rules) -> None:
        self._productions = shorten_ways(productions)
        self._words = excluding(words)
        self._rules = rules
        self._exits: dict[tuple[str, int], set[int]] = {}  # a rule and the state before it → the states that may be behind it
        self._made: dict[tuple[Way, int, int], Ref | None] = {}
        self._names: dict[tuple[str, int, int], str] = {}

    def node(self) -> Node:
        self._find_exits()
        todo: list[tuple[str, int, int]] = []
        ways = tuple(self._later(ROOT, 0, after, todo) for after in sorted(self._exits[ROOT, 0]))
        if not ways:
            raise UsageError("no text of the grammar can be written here: each would contain what ends it", field="grammar")
        while todo:
            self._fill(*todo.pop(), todo)
        return Alt(ways)

    def _find_exits(self) -> None:
        users: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._exits[ROOT, 0] = set()
        todo = [(ROOT, 0)]
        while todo:
            name, before = key = todo.pop()
            reached: set[int] = set()
            for way in self._productions[name]:
                states = {before}
                for symbol in way:
                    following: set[int] = set()
                    for state in states:
                        if isinstance(symbol, str):
                            users.setdefault((symbol, state), set()).add(key)
                            if (symbol, state) not in self._exits:
                                self._exits[symbol, state] = set()
                                todo.append((symbol, state))
                        following |= {after for after, _ in self._steps(symbol, state)}
                    states = following
                reached |= states
            if not reached <= self._exits[key]:
                self._exits[key] |= reached
                todo += users.get(key, ())

    def _steps(self, symbol: Symbol, state: int) -> Iterator[tuple[int, Pattern | None]]:
        """The states behind a symbol, each with the characters that lead there; None where it is a rule."""
        if isinstance(symbol, str):
            for after in sorted(self._exits[symbol, state]):
                yield after, None
            return
        assert not isinstance(symbol, Pattern)
        by_state: dict[int, Ranges] = {}
        for low, high, after in self._words.edges[state]:
            if common := intersection(symbol, ((low, high),)):
                by_state[after] = tuple(sorted((*by_state.get(after, ()), *common)))
        for after, ranges in by_state.items():
            yield after, Pattern(portable_text(CharSet(ranges)))

    def _later(self, name: str, before: int, after: int, todo: list[tuple[str, int, int]]) -> Ref:
        """The rule of the texts of a rule between two states; what is in it is added by whoever works off `todo`."""
        key = (name, before, after)
        if key not in self._names:
            self._names[key] = self._reserve()
            todo.append(key)
        return Ref(self._names[key])

    def _fill(self, name: str, before: int, after: int, todo: list[tuple[str, int, int]]) -> None:
        ways = [node for way in self._productions[name] if (node := self._sequence(way, before, after, todo)) is not None]
        self._rules.nodes[self._names[name, before, after]] = Alt(tuple(ways))

    def _sequence(self, way: Way, before: int, after: int, todo: list[tuple[str, int, int]]) -> Node | None:
        """The texts of a sequence between two states; None if there are none."""
        if not way:
            return Seq(()) if before == after else None
        key = (way, before, after)
        if key not in self._made:
            self._made[key] = None
            ways: list[Node] = []
            for middle, characters in self._steps(way[0], before):
                rest = self._sequence(way[1:], middle, after, todo)
                if rest is not None:
                    ways.append(Seq((characters or self._later(str(way[0]), before, middle, todo), rest)))
            if ways:
                name = self._reserve()
                self._rules.nodes[name] = Alt(tuple(ways))
                self._made[key] = Ref(name)
        return self._made[key]

    def _reserve(self) -> str:
        if len(self._made) + len(self._names) > _MAX_RULES:
            raise UsageError("the grammar becomes too large where its text ends at a marker", field="grammar")
        return self._rules.reserve("g")
