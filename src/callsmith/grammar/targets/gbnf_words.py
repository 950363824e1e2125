"""The texts of a grammar in which none of some words occurs, as rules: for engines that go by the character."""

from collections.abc import Iterator
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.grammar.languages.productions import ROOT, Symbol, Way, shorten_ways, to_productions
from callsmith.grammar.nodes import Alt, Grammar, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.automaton import excluding
from callsmith.grammar.patterns.character_sets import Ranges, intersection
from callsmith.grammar.patterns.regex import CharSet, portable_text
from callsmith.grammar.rules import Rules

_MAX_RULES: Final = 5_000


class NotInGbnf(UsageError):
    """What cannot be written as GBNF, or would become too large: looser schemas can."""


class TextsWithoutWords:
    """The texts of productions in which none of some words occurs.

    An automaton says after each character how much of a word there is. For a rule and the automaton's states before and after it
    there is a rule of its own, as far as they can be reached.
    """

    def __init__(self, grammar: Grammar, words: tuple[str, ...], rules: Rules) -> None:
        self._productions = shorten_ways(to_productions(grammar.start, grammar.rules, by_character=True))
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
            raise NotInGbnf("no text of the grammar can be written here: each would contain what ends it", field="grammar")
        while todo:
            self._fill(*todo.pop(), todo)
        return Alt(ways)

    def _find_exits(self) -> None:
        users: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._exits[ROOT, 0] = set()
        todo = [(ROOT, 0)]
        while todo:
            if len(self._exits) > 2 * _MAX_RULES:  # most of them become rules
                raise _too_large()
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
            raise _too_large()
        return self._rules.reserve("g")


def _too_large() -> NotInGbnf:
    return NotInGbnf("the grammar becomes too large where its text ends at a marker", field="grammar")
