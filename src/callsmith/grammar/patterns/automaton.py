"""Finite automata over characters: intersections and differences of regular expressions.

    >>> without_tag = to_automaton(ANYTHING) - to_automaton(parse("[^]*</a>[^]*"))

They are deterministic, so that a grammar engine never has to follow two rules made of one at the same time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, assert_never

from callsmith.grammar.patterns.regex import ANYTHING, Anchor, Cat, CharSet, Or, Regex, Repeat, literal

Edges: TypeAlias = tuple[tuple[int, int, int], ...]  # first code point, last code point, the state they lead to
States: TypeAlias = frozenset[int]  # of an automaton that is not deterministic
MAX_STATES = 1500  # a larger automaton is not worth its grammar
MAX_WORD_STATES = 20_000  # for texts without certain words: about one state for each letter
_MAX_NFA_STATES = 60_000
_MAX_PRODUCT_STATES = 20_000  # before minimizing
_MAX_MINIMIZED_STATES = 80  # a larger automaton is not minimized: it would take too long


class TooLarge(ValueError):
    """An automaton with more states than a grammar should have rules."""


@dataclass(frozen=True, slots=True)
class Automaton:
    """A deterministic automaton. It begins in state 0; a character without an edge is not accepted."""

    edges: tuple[Edges, ...]
    final: frozenset[int]

    def __and__(self, other: "Automaton") -> "Automaton":
        """The texts that both accept."""
        return _product(self, other, keep=lambda one, two: one and two, both=True)

    def __sub__(self, other: "Automaton") -> "Automaton":
        """The texts that only this one accepts."""
        return _product(self, other, keep=lambda one, two: one and not two, both=False)

    @property
    def is_empty(self) -> bool:
        """Whether it accepts no text at all."""
        return not self.final

    def shortest(self) -> "Automaton":
        """The accepted texts of which no shorter beginning is accepted."""
        return _minimize([() if at in self.final else edges for at, edges in enumerate(self.edges)], self.final)

    def accepts(self, text: str) -> bool:
        """Whether it accepts the text as a whole."""
        state: int | None = 0
        for char in text:
            code = ord(char)
            state = next((to for low, high, to in self.edges[state] if low <= code <= high), None)
            if state is None:
                return False
        return state in self.final


def to_automaton(tree: Regex, most: int = MAX_STATES) -> Automaton:
    """The automaton of an expression that must match the whole text."""
    builder = _NfaBuilder()
    start, end = builder.state(), builder.state()
    builder.add(tree, start, end)
    first = builder.closure([start])
    numbers: dict[frozenset[int], int] = {first: 0}
    todo, edges = [first], list[Edges]()
    for current in todo:
        if len(numbers) > most:
            raise TooLarge
        out: list[tuple[int, int, int]] = []
        for low, high, targets in _split_overlaps([edge for state in current for edge in builder.edges[state]]):
            reached = builder.closure(targets)
            if reached not in numbers:
                numbers[reached] = len(numbers)
                todo.append(reached)
            out.append((low, high, numbers[reached]))
        edges.append(tuple(out))
    return _minimize(edges, frozenset(number for states, number in numbers.items() if end in states))


class Follower:
    """Follows texts through an expression that must match the whole of them; the states of its automaton are made on the way."""

    def __init__(self, tree: Regex) -> None:
        self._builder = _NfaBuilder()
        start, self._end = self._builder.state(), self._builder.state()
        self._builder.add(tree, start, self._end)
        self.first: States = self._builder.closure([start])
        self.size = len(self._builder.edges)
        self._known: dict[tuple[States, int], States] = {}
        self._codes: dict[States, tuple[int, ...]] = {}

    def step(self, states: States, code: int) -> States:
        """The states behind a character, by its code point; none if it does not fit."""
        following = self._known.get((states, code))
        if following is None:
            edges = self._builder.edges
            reached = (to for state in states for low, high, to in edges[state] if low <= code <= high)
            following = self._builder.closure(reached)
            if len(self._known) > _MAX_PRODUCT_STATES:
                self._known.clear()
            self._known[states, code] = following
        return following

    def is_end(self, states: States) -> bool:
        """Whether the text may end here."""
        return self._end in states

    def codes_above(self, states: States, least: int) -> tuple[int, ...]:
        """What fits here of the code points from `least` on, which are those of no character."""
        codes = self._codes.get(states)
        if codes is None:
            found = {low for state in states for low, _, _ in self._builder.edges[state] if low >= least}
            if len(self._codes) > _MAX_PRODUCT_STATES:
                self._codes.clear()
            codes = self._codes[states] = tuple(sorted(found))
        return codes

    def follow(self, text: str, steps: int) -> int | None:
        """How many characters fit, where the text does not as a whole; None if it does. `TooLarge` if that takes more steps."""
        states = self.first
        for at, char in enumerate(text):
            following = self._known.get((states, ord(char)))
            if following is None:
                steps -= len(states)
                if steps < 0:
                    raise TooLarge
                following = self.step(states, ord(char))
            if not following:
                return at
            states = following
        return None if self.is_end(states) else len(text)


def containing(words: Iterable[str]) -> Automaton:
    """The automaton of all texts in which one of these words occurs."""
    return to_automaton(Cat((ANYTHING, Or(tuple(map(literal, words))), ANYTHING)), MAX_WORD_STATES)


def excluding(words: Iterable[str]) -> Automaton:
    """The automaton of all texts in which none of these words occurs."""
    return to_automaton(ANYTHING) - containing(words)


class _NfaBuilder:
    """Builds a nondeterministic automaton from an expression; `epsilon` are the edges without a character."""

    def __init__(self) -> None:
        self.edges: list[list[tuple[int, int, int]]] = []
        self.epsilon: list[list[int]] = []

    def state(self) -> int:
        if len(self.edges) > _MAX_NFA_STATES:
            raise TooLarge
        self.edges.append([])
        self.epsilon.append([])
        return len(self.edges) - 1

    def add(self, tree: Regex, start: int, end: int) -> None:
        match tree:
            case CharSet():
                self.edges[start] += [(low, high, end) for low, high in tree.ranges]
            case Cat():
                for item in tree.items:
                    after = self.state()
                    self.add(item, start, after)
                    start = after
                self.epsilon[start].append(end)
            case Or():
                for item in tree.items:
                    self.add(item, start, end)
            case Repeat():
                for _ in range(tree.least):
                    start = self._once(tree.item, start)
                for _ in range((tree.most or 0) - tree.least):
                    self.epsilon[start].append(end)
                    start = self._once(tree.item, start)
                if tree.most is None:
                    loop = self.state()
                    self.epsilon[start].append(loop)
                    self.epsilon[self._once(tree.item, loop)].append(loop)
                    start = loop
                self.epsilon[start].append(end)
            case Anchor():
                raise ValueError("an expression for a whole text has no anchors")
            case _:
                assert_never(tree)

    def _once(self, tree: Regex, start: int) -> int:
        inner, after = self.state(), self.state()
        self.epsilon[start].append(inner)
        self.add(tree, inner, after)
        return after

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        todo = list(states)
        reached = set(todo)
        while todo:
            for state in self.epsilon[todo.pop()]:
                if state not in reached:
                    reached.add(state)
                    todo.append(state)
        return frozenset(reached)


def _split_overlaps(edges: list[tuple[int, int, int]]) -> list[tuple[int, int, frozenset[int]]]:
    """Split overlapping edges into pieces, each with all the states it leads to."""
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
    """The automaton that follows both at once. `both`: it needs an edge in each of them, otherwise only in the first."""
    numbers: dict[tuple[int, int | None], int] = {(0, 0): 0}
    todo: list[tuple[int, int | None]] = [(0, 0)]
    edges: list[Edges] = []
    for left, right in todo:
        if len(numbers) > _MAX_PRODUCT_STATES:
            raise TooLarge
        out: list[tuple[int, int, int]] = []
        for low, high, pair in _intersect_edges(one.edges[left], () if right is None else other.edges[right], both=both):
            if pair not in numbers:
                numbers[pair] = len(numbers)
                todo.append(pair)
            out.append((low, high, numbers[pair]))
        edges.append(tuple(out))
    final = frozenset(at for (left, right), at in numbers.items() if keep(left in one.final, right in other.final))
    return _minimize(edges, final)


def _intersect_edges(left: Edges, right: Edges, *, both: bool) -> Iterable[tuple[int, int, tuple[int, int | None]]]:
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


def _minimize(edges: list[Edges], final: frozenset[int]) -> Automaton:
    """The automaton without states that are unreachable or lead to no final state, equivalent states merged."""
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
    classes = _equivalence_classes(edges, final, alive) if len(alive) <= _MAX_MINIMIZED_STATES else list(range(len(edges)))
    numbers, order = {classes[0]: 0}, [0]
    merged: list[Edges] = []
    for state in order:
        followed: list[tuple[int, int, int]] = []
        for low, high, to in edges[state] if state in alive else ():
            if to not in alive:
                continue
            if classes[to] not in numbers:
                numbers[classes[to]] = len(numbers)
                order.append(to)
            _append(followed, low, high, numbers[classes[to]])
        merged.append(tuple(followed))
    return Automaton(tuple(merged), frozenset(numbers[classes[state]] for state in final if classes[state] in numbers))


def _append(edges: list[tuple[int, int, int]], low: int, high: int, to: int) -> None:
    """Add an edge, merged with the one before it where both lead to the same state."""
    if edges and edges[-1][2] == to and edges[-1][1] + 1 == low:
        edges[-1] = (edges[-1][0], high, to)
    else:
        edges.append((low, high, to))


def _equivalence_classes(edges: list[Edges], final: frozenset[int], alive: set[int]) -> list[int]:
    """A number for each state; states that accept the same texts have the same number."""
    classes = [int(state in final) for state in range(len(edges))]
    while True:
        signatures: dict[object, int] = {}
        refined = [-1] * len(edges)
        for state in alive:
            signature: list[tuple[int, int, int]] = []
            for low, high, to in edges[state]:
                if to in alive:
                    _append(signature, low, high, classes[to])
            refined[state] = signatures.setdefault((classes[state], tuple(signature)), len(signatures))
        if len(signatures) == len({classes[state] for state in alive}):
            return refined
        classes = refined
