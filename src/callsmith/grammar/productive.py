"""Which rules of a grammar a finite text can match, and the grammar without the others."""

from collections.abc import Mapping

from callsmith.core.errors import UnsupportedSchema
from callsmith.grammar.nodes import Alt, Many, Node, Ref, Seq, references
from callsmith.grammar.schema.normal_form import Unsatisfiable


def productive_rules(rules: Mapping[str, Node]) -> set[str]:
    """The names of the rules that a finite text matches."""
    users: dict[str, list[str]] = {}
    for name, node in rules.items():
        for reference in set(references(node)):
            users.setdefault(reference, []).append(name)
    good: set[str] = set()
    todo = list(rules)
    while todo:
        name = todo.pop()
        if name not in good and is_productive(rules[name], good):
            good.add(name)
            todo += users.get(name, ())
    return good


def keep_productive(start: Node, rules: Mapping[str, Node], reason: Unsatisfiable | None) -> tuple[Node, dict[str, Node]]:
    """The grammar without alternatives that no finite text matches, and without rules that nothing refers to."""
    good = productive_rules(rules)
    if not is_productive(start, good):
        reason = reason or Unsatisfiable("#", "$ref", "it requires itself, without end")
        raise UnsupportedSchema(reason.path, reason.keyword, f"no value fits: {reason.why}")
    used: dict[str, Node] = {}
    first = _prune(start, good)
    todo = references(first)
    while todo:
        name = todo.pop()
        if name not in used:
            used[name] = _prune(rules[name], good)
            todo += references(used[name])
    return first, used


def is_productive(node: Node, good: set[str]) -> bool:
    """Whether a finite text matches the node, given the names of the rules for which that is known."""
    match node:
        case Seq():
            return all(is_productive(item, good) for item in node.items)
        case Alt():
            return any(is_productive(item, good) for item in node.items)
        case Many():
            return node.least == 0 or is_productive(node.item, good)
        case Ref():
            return node.name in good
        case _:
            return True


def _prune(node: Node, good: set[str]) -> Node:
    match node:
        case Seq():
            return Seq(tuple(_prune(item, good) for item in node.items))
        case Alt():
            return Alt(tuple(_prune(item, good) for item in node.items if is_productive(item, good)))
        case Many():
            return Many(_prune(node.item, good), node.least, node.most) if is_productive(node.item, good) else Seq(())
        case _:
            return node
