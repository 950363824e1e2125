"""The named rules of a grammar while it is being built, what they leave unenforced, and automata as rules."""

from collections.abc import Callable, Iterable

from callsmith.grammar.nodes import NOTHING, Alt, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.automaton import Automaton
from callsmith.grammar.patterns.character_sets import Ranges, union
from callsmith.grammar.patterns.regex import CharSet, unparse
from callsmith.grammar.schema.normal_form import NormalSchema, UnenforcedKeywords, Unsatisfiable


class Rules:
    """The rules of a grammar while it is being built; equal nodes share a rule."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.unenforced: UnenforcedKeywords = []
        self.reason: Unsatisfiable | None = None  # why nothing matches, for the first such node
        self._names: dict[str, str] = {}  # repr of a node → its rule; nodes with schemas are not hashable

    def name(self, node: Node, stem: str = "r") -> Ref:
        """Add the node as a rule, or find the rule that equals it."""
        name = self._names.setdefault(repr(node), f"{stem}{len(self.nodes)}")
        self.nodes[name] = node
        return Ref(name)

    def reserve(self, stem: str = "r") -> str:
        """Add a rule whose node is set later: for nodes that refer to themselves."""
        name = f"{stem}{len(self.nodes)}"
        self.nodes[name] = NOTHING
        return name

    def unsatisfiable(self, path: str, keyword: str, why: str) -> Node:
        """A node that no text matches; the first reason is stored."""
        self.reason = self.reason or Unsatisfiable(path, keyword, why)
        return Alt(())

    def list_unenforced(self) -> tuple[tuple[str, str], ...]:
        """(path, keyword) of everything that is unenforced, each once."""
        return tuple(dict.fromkeys(self.unenforced))

    def add_unenforced(self, schema: NormalSchema, keywords: Iterable[str]) -> None:
        """List these keywords as unenforced, at all paths they came from, if the schema has any of them."""
        wanted = [keyword for keyword in keywords if keyword in schema.sources]
        if any(keyword in schema for keyword in wanted):
            self.unenforced += [(path, keyword) for keyword in wanted for path in schema.sources[keyword]]


def automaton_rules(automaton: Automaton, rules: Rules, spell: Callable[[Ranges], Node] | None = None) -> Node:
    """Add the automaton's states to the rules and return the first; `spell` writes a character of a set, by default as itself."""
    spell = spell or (lambda ranges: Pattern(unparse(CharSet(ranges))))
    names = {at: rules.reserve("s") for at, edges in enumerate(automaton.edges) if edges}
    for at, name in names.items():
        ways: dict[int, list[tuple[int, int]]] = {}
        for low, high, to in automaton.edges[at]:
            ways.setdefault(to, []).append((low, high))
        nodes: list[Node] = [
            Seq((spell(union(tuple(ranges))), *([Ref(names[to])] if to in names else []))) for to, ranges in ways.items()
        ]
        rules.nodes[name] = Alt((*nodes, Seq(())) if at in automaton.final else tuple(nodes))
    return Ref(names[0]) if 0 in names else Seq(())
