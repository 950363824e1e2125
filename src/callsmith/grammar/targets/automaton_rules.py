"""An automaton as grammar rules: one rule for each state."""

from collections.abc import Callable

from callsmith.grammar.nodes import Alt, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.automaton import Automaton
from callsmith.grammar.patterns.character_sets import Ranges, union
from callsmith.grammar.patterns.regex import CharSet, unparse
from callsmith.grammar.rules import Rules


def _plain(ranges: Ranges) -> Node:
    return Pattern(unparse(CharSet(ranges)))


def automaton_rules(automaton: Automaton, rules: Rules, spell: Callable[[Ranges], Node] = _plain) -> Node:
    """Add the automaton's states to the rules and return the first; `spell` writes a character of a set, by default as itself."""
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
