"""Rules of a grammar that do not refer to themselves, as regular expressions: in those no part takes what another needs."""

from collections.abc import Mapping
from typing import Final

from callsmith.grammar.nodes import Alt, Many, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.regex import Cat, Or, Regex, Repeat, parse

_MAX_DEPTH: Final = 150  # of nodes in each other, those of the rules that are referred to included
_MAX_SIZE: Final = 16 * 1024  # characters, classes and repetitions of an expression that rules may become


class RegularRules:
    """Rules as regular expressions, where they do not refer to themselves and do not become too large."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._made: dict[str, tuple[Regex, int] | None] = {}  # with their sizes
        self._depth = 0

    def of(self, name: str) -> Regex | None:
        """The expression of a rule; None if it has none."""
        made = self._of(name)
        return made and made[0]

    def _of(self, name: str) -> tuple[Regex, int] | None:
        if name not in self._made:
            self._made[name] = None  # while it is being made: a rule that is in itself has none
            self._made[name] = self._fold(self._rules[name])
        return self._made[name]

    def _fold(self, node: Node) -> tuple[Regex, int] | None:
        self._depth += 1
        folded = self._fold_inner(node) if self._depth < _MAX_DEPTH else None
        self._depth -= 1
        return folded

    def _fold_inner(self, node: Node) -> tuple[Regex, int] | None:
        match node:
            case Pattern(regex):
                tree = parse(regex)
                return tree, size_of(tree)
            case Ref(name):
                return self._of(name)
            case Many(item, least, most):
                inner = self._fold(item)
                return inner and (Repeat(inner[0], least, most), inner[1] + 1)
            case Seq(items) | Alt(items):
                known = [part for part in map(self._fold, items) if part is not None]
                size = sum(part_size for _, part_size in known) + 1
                if len(known) < len(items) or size > _MAX_SIZE:
                    return None
                trees = tuple(tree for tree, _ in known)
                return (Cat(trees) if isinstance(node, Seq) else Or(trees)), size
            case _:
                raise TypeError(f"no part of a grammar that a user wrote: {node}")


def size_of(tree: Regex) -> int:
    """How many characters, classes and repetitions an expression has."""
    match tree:
        case Cat() | Or():
            return 1 + sum(map(size_of, tree.items))
        case Repeat():
            return 1 + size_of(tree.item)
        case _:
            return 1
