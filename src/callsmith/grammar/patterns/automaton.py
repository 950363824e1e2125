"""Finite automata over characters: what regular expressions have in common, and what texts without certain words look like.

    >>> without = compiled(ANYTHING) - compiled(parse("[^]*</a>[^]*"))

Deterministic, so that the rules made of one never leave a grammar engine two ways to go.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, assert_never

from callsmith.grammar.patterns.regex import Anchor, Cat, Or, Regex, Repeat, Set

Edges: TypeAlias = tuple[tuple[int, int, int], ...]  # from this code point to that one: the state it leads to
STATES = 1500  # more than that is not worth a grammar
_PIECES = 60_000
_MOST = 20_000  # in the course of making one
_SMALL = 80  # states; more are not made fewer, for that takes time


class TooLarge(ValueError):
    """An automaton with more states than a grammar should have rules."""


@dataclass(frozen=True, slots=True)
class Automaton:
    """States from 0, where it begins. A character without an edge leads nowhere."""

    edges: tuple[Edges, ...]
    final: frozenset[int]

    def __and__(self, other: "Automaton") -> "Automaton":
        """What both accept."""
        return _product(self, other, keep=lambda one, two: one and two, both=True)

    def __sub__(self, other: "Automaton") -> "Automaton":
        """What the other does not accept."""
        return _product(self, other, keep=lambda one, two: one and not two, both=False)

    @property
    def empty(self) -> bool:
        """Whether it accepts nothing at all."""
        return not self.final

    def shortest(self) -> "Automaton":
        """Only texts none of whose beginnings is accepted: it stops at the first chance."""
        return _trimmed([() if at in self.final else edges for at, edges in enumerate(self.edges)], self.final)

    def accepts(self, text: str) -> bool:
        """Whether it accepts the text as a whole."""
        state: int | None = 0
        for char in text:
            code = ord(char)
            state = next((to for low, high, to in self.edges[state] if low <= code <= high), None)
            if state is None:
                return False
        return state in self.final


def compiled(tree: Regex, most: int = STATES) -> Automaton:
    """The automaton of an expression that must match the whole text."""
    builder = _Builder()
    start, end = builder.state(), builder.state()
    builder.add(tree, start, end)
    first = builder.closure([start])
    numbers: dict[frozenset[int], int] = {first: 0}
    todo, edges = [first], list[Edges]()
    for current in todo:
        if len(numbers) > most:
            raise TooLarge
        out: list[tuple[int, int, int]] = []
        for low, high, targets in _split([edge for state in current for edge in builder.edges[state]]):
            reached = builder.closure(targets)
            if reached not in numbers:
                numbers[reached] = len(numbers)
                todo.append(reached)
            out.append((low, high, numbers[reached]))
        edges.append(tuple(out))
    return _trimmed(edges, frozenset(number for states, number in numbers.items() if end in states))


class _Builder:
    """A nondeterministic automaton, as it grows out of an expression."""

    def __init__(self) -> None:
        self.edges: list[list[tuple[int, int, int]]] = []
        self.free: list[list[int]] = []

    def state(self) -> int:
        if len(self.edges) > _PIECES:
            raise TooLarge
        self.edges.append([])
        self.free.append([])
        return len(self.edges) - 1

    def add(self, tree: Regex, start: int, end: int) -> None:
        match tree:
            case Set():
                self.edges[start] += [(low, high, end) for low, high in tree.ranges]
            case Cat():
                for item in tree.items:
                    after = self.state()
                    self.add(item, start, after)
                    start = after
                self.free[start].append(end)
            case Or():
                for item in tree.items:
                    self.add(item, start, end)
            case Repeat():
                for _ in range(tree.least):
                    start = self._once(tree.item, start)
                for _ in range((tree.most or 0) - tree.least):
                    self.free[start].append(end)
                    start = self._once(tree.item, start)
                if tree.most is None:
                    loop = self.state()
                    self.free[start].append(loop)
                    self.free[self._once(tree.item, loop)].append(loop)
                    start = loop
                self.free[start].append(end)
            case Anchor():
                raise ValueError("anchors are no part of a whole text")
            case _:
                assert_never(tree)

    def _once(self, tree: Regex, start: int) -> int:
        inner, after = self.state(), self.state()
        self.free[start].append(inner)
        self.add(tree, inner, after)
        return after

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        todo = list(states)
        found = set(todo)
        while todo:
            for state in self.free[todo.pop()]:
                if state not in found:
                    found.add(state)
                    todo.append(state)
        return frozenset(found)


def _split(edges: list[tuple[int, int, int]]) -> list[tuple[int, int, frozenset[int]]]:
    """Overlapping edges taken apart: each piece with all the states it leads to."""
    if len(edges) == 1:
        return [(edges[0][0], edges[0][1], frozenset((edges[0][2],)))]
    cuts = sorted({low for low, _, _ in edges} | {high + 1 for _, high, _ in edges})
    pieces = [(low, up - 1, frozenset(to for a, b, to in edges if a <= low and up - 1 <= b)) for low, up in pairwise(cuts)]
    out: list[tuple[int, int, frozenset[int]]] = []
    for low, high, targets in pieces:
        if targets and out and out[-1][2] == targets and out[-1][1] + 1 == low:
            out[-1] = (out[-1][0], high, targets)
        elif targets:
            out.append((low, high, targets))
    return out


def _product(one: Automaton, other: Automaton, keep: Callable[[bool, bool], bool], *, both: bool) -> Automaton:
    """Both at once. `both`: where the second leads nowhere, so does the product."""
    numbers: dict[tuple[int, int | None], int] = {(0, 0): 0}
    todo: list[tuple[int, int | None]] = [(0, 0)]
    edges: list[Edges] = []
    for left, right in todo:
        if len(numbers) > _MOST:
            raise TooLarge
        out: list[tuple[int, int, int]] = []
        for low, high, pair in _meet(one.edges[left], () if right is None else other.edges[right], both=both):
            if pair not in numbers:
                numbers[pair] = len(numbers)
                todo.append(pair)
            out.append((low, high, numbers[pair]))
        edges.append(tuple(out))
    final = frozenset(at for (left, right), at in numbers.items() if keep(left in one.final, right in other.final))
    return _trimmed(edges, final)


def _meet(left: Edges, right: Edges, *, both: bool) -> Iterable[tuple[int, int, tuple[int, int | None]]]:
    for low, high, to in left:
        at = low
        for other_low, other_high, other in right:
            if other_high < low or other_low > high:
                continue
            if other_low > at and not both:
                yield at, other_low - 1, (to, None)
            yield max(at, other_low), min(high, other_high), (to, other)
            at = other_high + 1
        if at <= high and not both:
            yield at, high, (to, None)


def _trimmed(edges: list[Edges], final: frozenset[int]) -> Automaton:
    """Without states that cannot be reached or lead to no end; of the rest, equal ones are one."""
    backwards: dict[int, set[int]] = {}
    for at, out in enumerate(edges):
        for _, _, to in out:
            backwards.setdefault(to, set()).add(at)
    alive, todo = set(final), list(final)
    while todo:
        for state in backwards.get(todo.pop(), ()):
            if state not in alive:
                alive.add(state)
                todo.append(state)
    kinds = _kinds(edges, final, alive) if len(alive) <= _SMALL else list(range(len(edges)))
    numbers, order = {kinds[0]: 0}, [0]
    made: list[Edges] = []
    for state in order:
        followed: list[tuple[int, int, int]] = []
        for low, high, to in edges[state] if state in alive else ():
            if to not in alive:
                continue
            if kinds[to] not in numbers:
                numbers[kinds[to]] = len(numbers)
                order.append(to)
            _append(followed, low, high, numbers[kinds[to]])
        made.append(tuple(followed))
    return Automaton(tuple(made), frozenset(numbers[kinds[state]] for state in final if kinds[state] in numbers))


def _append(edges: list[tuple[int, int, int]], low: int, high: int, to: int) -> None:
    """One more edge; with the one before it where both lead the same way."""
    if edges and edges[-1][2] == to and edges[-1][1] + 1 == low:
        edges[-1] = (edges[-1][0], high, to)
    else:
        edges.append((low, high, to))


def _kinds(edges: list[Edges], final: frozenset[int], alive: set[int]) -> list[int]:
    """States that nothing can tell apart get the same number."""
    kinds = [int(state in final) for state in range(len(edges))]
    while True:
        looks: dict[object, int] = {}
        refined = [-1] * len(edges)
        for state in alive:
            look: list[tuple[int, int, int]] = []
            for low, high, to in edges[state]:
                if to in alive:
                    _append(look, low, high, kinds[to])
            refined[state] = looks.setdefault((kinds[state], tuple(look)), len(looks))
        if len(looks) == len({kinds[state] for state in alive}):
            return refined
        kinds = refined
