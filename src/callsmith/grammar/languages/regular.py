"""Rules of a grammar as one regular expression: in it no part takes what another needs, and it can be intersected.

Rules that do not refer to themselves are one, and so are those that refer to themselves at their end alone. Of others it is as
much as a number of levels has.
"""

from collections.abc import Container, Mapping
from typing import Final

from callsmith.grammar.nodes import Alt, Many, Node, Pattern, Ref, Seq, references
from callsmith.grammar.patterns.character_sets import MAX_CODE_POINT
from callsmith.grammar.patterns.regex import EMPTY, Cat, CharSet, Or, Regex, Repeat, parse

_MAX_DEPTH: Final = 150  # of nodes in each other, those of the rules that are referred to included
_MAX_SIZE: Final = 16 * 1024  # characters, classes and repetitions of an expression that rules may become
_MAX_LEVELS: Final = 8
_LARGE: Final = 4 * 1024  # an expression in which rules are not put in place any more
RULES: Final = MAX_CODE_POINT + 1


class _TooLarge(Exception):
    """An expression that is not worth its size."""


def to_regex(start: Node, rules: Mapping[str, Node]) -> Regex | None:
    """The expression of all texts; None if there is none, or it would be too large."""
    return _RegexMaker(rules, 0).make(start)


def unroll(start: Node, rules: Mapping[str, Node]) -> Regex | None:
    """The expression of the texts in which no rule is in itself more often than some times; None if not even one fits."""
    made = (_RegexMaker(rules, levels).make(start) for levels in range(_MAX_LEVELS, 0, -1))
    return next((tree for tree in made if tree is not None), None)


def unfold_tails(rules: Mapping[str, Node]) -> dict[str, Node]:
    """The rules, of which those that refer to themselves at their end alone are repetitions."""
    return {name: _without_tail_recursion(name, node) for name, node in rules.items()}


def to_expression(node: Node, rules: Mapping[str, Node], apart: Container[str]) -> Regex | None:
    """The expression of a node in which rules that are kept apart are the code points from `RULES` on, in the order of the rules.

    Others are as well, where it would be large with them. None if it is too large even so.
    """
    return _ExpressionMaker(rules, apart).make(node)


class _RegexMaker:
    """Makes expressions. `levels` is how often a rule may be in itself: what is deeper is left out; 0: it may not be left out."""

    def __init__(self, rules: Mapping[str, Node], levels: int) -> None:
        self._rules, self._levels = rules, levels
        self._open: dict[str, int] = {}  # how often each rule is being made
        self._made: dict[str, Regex | None] = {}
        self._sizes: dict[str, int] = {}
        self._depth = self._size = 0

    def make(self, node: Node) -> Regex | None:
        try:
            return self._fold(node)
        except _TooLarge:
            return None

    def _rule(self, name: str) -> Regex | None:
        if name in self._made:
            self._count(self._sizes[name])
            return self._made[name]
        if self._open.get(name, 0) > self._levels:
            return None
        before = self._size
        self._open[name] = self._open.get(name, 0) + 1
        tree = self._fold(_without_tail_recursion(name, self._rules[name]))
        self._open[name] -= 1
        if self._levels == 0:  # otherwise it depends on what it is in
            self._made[name], self._sizes[name] = tree, self._size - before
        return tree

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > _MAX_SIZE:
            raise _TooLarge

    def _fold(self, node: Node) -> Regex | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _TooLarge
        self._count(1)
        tree = self._fold_inner(node)
        self._depth -= 1
        return tree

    def _fold_inner(self, node: Node) -> Regex | None:
        match node:
            case Pattern(regex):
                tree = parse(regex)
                self._count(size_of(tree))
                return tree
            case Ref(name):
                return self._rule(name)
            case Many(item, least, most):
                inner = self._fold(item)
                if inner is None:
                    return EMPTY if self._levels and not least else None
                return Repeat(inner, least, most)
            case Seq(items):
                trees = [tree for tree in map(self._fold, items) if tree is not None]
                return Cat(tuple(trees)) if len(trees) == len(items) else None
            case Alt(items):
                trees = [tree for tree in map(self._fold, items) if tree is not None]
                is_known = len(trees) == len(items) or (self._levels and trees)
                return Or(tuple(trees)) if is_known else None
            case _:
                raise TypeError(f"no part of a grammar that a user wrote: {node}")


class _ExpressionMaker(_RegexMaker):
    """Makes expressions in which some rules are characters."""

    def __init__(self, rules: Mapping[str, Node], apart: Container[str]) -> None:
        super().__init__(rules, 0)
        self._apart, self._codes = apart, {name: RULES + number for number, name in enumerate(rules)}

    def _rule(self, name: str) -> Regex | None:
        if name in self._apart or self._size > _LARGE or self._depth > _MAX_DEPTH // 2:
            return CharSet(((self._codes[name], self._codes[name]),))
        return super()._rule(name)


def _without_tail_recursion(name: str, node: Node) -> Node:
    """A rule `a: x a | y`, which refers to itself at its end alone, as the repetition that it is: `x* y`."""
    ways = [(*way.items,) if isinstance(way, Seq) else (way,) for way in (node.items if isinstance(node, Alt) else (node,))]
    again = [way[:-1] for way in ways if way and way[-1] == Ref(name)]
    others = [way for way in ways if not (way and way[-1] == Ref(name))]
    if not again or not others or any(name in references(Seq(way)) for way in (*again, *others)):
        return node
    return Seq((Many(Alt(tuple(map(Seq, again)))), Alt(tuple(map(Seq, others)))))


def size_of(tree: Regex) -> int:
    """How many characters, classes and repetitions an expression has."""
    match tree:
        case Cat() | Or():
            return 1 + sum(map(size_of, tree.items))
        case Repeat():
            return 1 + size_of(tree.item)
        case _:
            return 1
