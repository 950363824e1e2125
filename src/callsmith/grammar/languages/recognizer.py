"""Whether a text is one of a grammar that refers to itself, by Earley's algorithm.

Each rule is followed as one automaton, in which a rule that refers to itself is a character of its own behind all others. So a
text that can be read in many ways, as `(WORD | " ")*` can, is followed once as long as the ways do not differ in such rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from callsmith.grammar.languages.productions import names_on_cycles
from callsmith.grammar.languages.regular import RULES, to_expression, unfold_tails
from callsmith.grammar.nodes import Node, references
from callsmith.grammar.patterns.automaton import Follower, States, TooLarge

_MAX_STEPS: Final = 300_000  # about a second
_Item: TypeAlias = tuple[int, States, int]  # a rule, where in it, and where in the text it was begun
_START: Final = -1


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where a text stops being one of the grammar: behind so many characters. `is_unknown`: it was too long to find out."""

    at: int
    is_unknown: bool = False


class Recognizer:
    """Recognises the texts of a grammar's rules."""

    def __init__(self, start: Node, rules: Mapping[str, Node]) -> None:
        self._rules = unfold_tails(rules)
        self._nodes = [start, *self._rules.values()]
        self._recursive = names_on_cycles({name: set(references(node)) for name, node in self._rules.items()})
        self._followers: dict[int, Follower] = {}
        self._steps = 0

    def follow(self, text: str) -> Misfit | None:
        """Where the text stops being one of the grammar; None if it is one."""
        self._steps, at = 0, 0
        waiting: dict[tuple[int, int], list[_Item]] = {}  # by place and rule: those that go on behind the rule
        try:
            items = [self._begin(_START, 0)]
            for at, char in enumerate(text):
                self._complete(items, at, waiting)
                code = ord(char)
                stepped = ((rule, self._followers[rule].step(states, code), begun) for rule, states, begun in items)
                items = list(dict.fromkeys(item for item in stepped if item[1]))
                if not items:
                    return Misfit(at)
            at = len(text)
            self._complete(items, at, waiting)
        except TooLarge:
            return Misfit(at, is_unknown=True)
        is_whole = any(rule == _START and self._followers[rule].is_end(states) for rule, states, _ in items)
        return None if is_whole else Misfit(at)

    def _begin(self, rule: int, at: int) -> _Item:
        follower = self._followers.get(rule)
        if follower is None:
            tree = to_expression(self._nodes[rule + 1], self._rules, self._recursive)
            if tree is None:
                raise TooLarge
            follower = self._followers[rule] = Follower(tree)
            self._steps += follower.size
        return rule, follower.first, at

    def _complete(self, items: list[_Item], at: int, waiting: dict[tuple[int, int], list[_Item]]) -> None:
        """Add to the items of a place what follows from them without a character."""
        seen, empty = set(items), set[int]()  # the rules that are whole without a character
        for item in items:  # grows in the loop
            rule, states, begun = item
            follower = self._followers[rule]
            following: list[_Item] = []
            if follower.is_end(states):
                if begun == at:
                    empty.add(rule)
                following += (self._behind(before, rule) for before in waiting.get((begun, rule), ()))
            for code in follower.codes_above(states, RULES):
                called = code - RULES
                waiting.setdefault((at, called), []).append(item)
                following.append(self._begin(called, at))
                if called in empty:
                    following.append(self._behind(item, called))
            self._steps += 1 + len(following)
            if self._steps > _MAX_STEPS:
                raise TooLarge
            for one in following:
                if one not in seen:
                    seen.add(one)
                    items.append(one)

    def _behind(self, item: _Item, called: int) -> _Item:
        """The item behind a rule that it waited for."""
        rule, states, begun = item
        return rule, self._followers[rule].step(states, RULES + called), begun
