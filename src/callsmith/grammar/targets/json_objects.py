"""The members of a JSON object as rules: which keys are allowed besides the declared ones, and in which order they may come."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from callsmith.core.errors import UnsupportedSchema
from callsmith.grammar.nodes import Alt, Node, Ref, Seq
from callsmith.grammar.patterns.automaton import Automaton, TooLarge, to_automaton
from callsmith.grammar.patterns.regex import ANYTHING, Or, UnsupportedRegex, literal, match_whole_text, parse
from callsmith.grammar.rules import Rules
from callsmith.grammar.schema.normal_form import NormalSchema
from callsmith.grammar.values import NOTHING

ANY_ORDER = 4  # up to so many properties may come in any order: with each of them the number of rules doubles
_MAX_STATES = 400
_MAX_NAME_STATES = 20_000  # for all listed names together, about one for each letter


def other_keys(schema: NormalSchema, rules: Rules) -> Iterator[tuple[Automaton, NormalSchema]]:
    """Yield the sets of keys that are not listed, each with the schema of their values: one for each pattern, and the rest."""
    extra: NormalSchema | bool = schema.get("additionalProperties", NormalSchema({}, schema.path))
    if extra is False and "patternProperties" not in schema:
        return
    try:
        rest = to_automaton(ANYTHING) - to_automaton(
            Or(tuple(literal(name) for name in schema.get("properties", {}))), _MAX_NAME_STATES
        )
    except TooLarge:
        raise UnsupportedSchema(schema.path, "properties", "there are too many to tell other names from them") from None
    for pattern, one in schema.get("patternProperties", {}).items():
        try:
            matching = to_automaton(match_whole_text(parse(pattern)), 300)
            keys, rest = rest & matching, rest - matching
        except (UnsupportedRegex, TooLarge):  # any name may be one of them
            rules.add_unenforced(schema, ("patternProperties", "additionalProperties"))
            extra = NormalSchema({}, schema.path)
            continue
        if not keys.is_empty:
            yield keys, one
    if isinstance(extra, NormalSchema) and not rest.is_empty:
        yield rest, extra


# Which declared members may still come (those from an index on, or any of a set), and how many members there are already.
State: TypeAlias = tuple[int | frozenset[str], int]


class MemberRules:
    """Makes the rules of an object's members: two for each state, and deterministic."""

    def __init__(self, declared: Mapping[str, Node], others: Sequence[Node], comma: Node, rules: Rules) -> None:
        self.declared, self.names = declared, list(declared)
        self.others = others
        self.comma, self.rules = comma, rules
        self.required: frozenset[str] = frozenset()
        self.least: int = 0
        self.most: int | None = None
        self._made: dict[tuple[Any, ...], Ref] = {}
        self._todo: list[tuple[Any, ...]] = []

    def node(self, schema: NormalSchema) -> Node:
        """The members, as many as the schema allows."""
        self.required = frozenset(schema.get("required", ()))
        self.least, self.most = schema.get("minProperties", 0), schema.get("maxProperties")
        first = frozenset(self.names) if len(self.names) <= ANY_ORDER else 0
        if self._states(first) > _MAX_STATES:
            self.rules.add_unenforced(schema, ("minProperties", "maxProperties"))
            self.least, self.most = 0, None
        start: State = (first, 0)
        ways = self._ways(start)
        while self._todo:
            make, *given = key = self._todo.pop()
            self.rules.nodes[self._made[key].name] = make(*given)
        return Alt((*ways, NOTHING)) if self._may_end(start) else Alt(tuple(ways))

    def _states(self, first: int | frozenset[str]) -> int:
        places = len(self.names) + 1 if isinstance(first, int) else 2 ** len(first)
        return places * (self._cap() + 1)

    def _cap(self) -> int:
        """The number up to which members are counted."""
        return max(self.least, 0 if self.most is None else self.most)

    def _left(self, place: int | frozenset[str]) -> list[str]:
        return self.names[place:] if isinstance(place, int) else [name for name in self.names if name in place]

    def _may_end(self, state: State) -> bool:
        place, count = state
        return count >= self.least and not any(name in self.required for name in self._left(place))

    def _later(self, *key: Any) -> Ref:
        """A rule whose node is made later, from a list of work: recursion would be too deep for objects with many members."""
        if key not in self._made:
            self._made[key] = Ref(self.rules.reserve("o"))
            self._todo.append(key)
        return self._made[key]

    def _after(self, state: State) -> Node:
        """A comma and another member, or the end."""
        ways = self._ways(state)
        more: list[Node] = [Seq((self.comma, ways[0] if len(ways) == 1 else Alt(tuple(ways))))] if ways else []
        return Alt((*more, NOTHING)) if self._may_end(state) else Alt(tuple(more))

    def _ways(self, state: State) -> list[Node]:
        """The members that may come next, each with what follows it."""
        place, count = state
        if self.most is not None and count >= self.most:
            return []
        counted = min(count + 1, self._cap())
        # An undeclared member that leaves no room for a required one leads to a state that cannot end, and that is pruned.
        ways: list[Node] = [Seq((one, self._later(self._after, (place, counted)))) for one in self.others]
        if isinstance(place, frozenset):
            ways += [
                Seq((self.declared[name], self._later(self._after, (place - {name}, counted)))) for name in self._left(place)
            ]
        elif place < len(self.names):
            ways.append(self._later(self._from, place, counted))
        return ways

    def _from(self, place: int, counted: int) -> Node:
        """The member at this index, or, if it is optional, one after it."""
        taken = Seq((self.declared[self.names[place]], self._later(self._after, (place + 1, counted))))
        if self.names[place] in self.required or place + 1 == len(self.names):
            return taken
        return Alt((taken, self._later(self._from, place + 1, counted)))
