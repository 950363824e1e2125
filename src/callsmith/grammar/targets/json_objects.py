"""The members of an object: which keys there are besides the declared ones, and in which order members may stand."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from callsmith.core.errors import UnsupportedSchema
from callsmith.grammar.nodes import Alt, Node, Ref, Seq
from callsmith.grammar.patterns.automaton import Automaton, TooLarge, compiled
from callsmith.grammar.patterns.regex import ANYTHING, Irregular, Or, literal, parse, whole
from callsmith.grammar.rules import Rules
from callsmith.grammar.schema.normal_form import Simple
from callsmith.grammar.values import NOTHING

ANY_ORDER = 4  # so many properties may stand in any order: their number of rules doubles with each
_STATES = 400
_LETTERS = 20_000  # of all listed names together


def other_keys(simple: Simple, rules: Rules) -> Iterator[tuple[Automaton, Simple]]:
    """Keys that are not listed, by the pattern they match (never two) or none, each time with the schema of the value."""
    extra: Simple | bool = simple.get("additionalProperties", Simple({}, simple.path))
    if extra is False and "patternProperties" not in simple:
        return
    try:
        rest = compiled(ANYTHING) - compiled(Or(tuple(literal(name) for name in simple.get("properties", {}))), _LETTERS)
    except TooLarge:
        raise UnsupportedSchema(simple.path, "properties", "there are too many to tell other names from them") from None
    for pattern, one in simple.get("patternProperties", {}).items():
        try:
            matching = compiled(whole(parse(pattern)), 300)
            keys, rest = rest & matching, rest - matching
        except (Irregular, TooLarge):  # any name may be one of them
            rules.unenforced(simple, ("patternProperties", "additionalProperties"))
            extra = Simple({}, simple.path)
            continue
        if not keys.empty:
            yield keys, one
    if isinstance(extra, Simple) and not rest.empty:
        yield rest, extra


# Which declared members may still come (those from a number on, or any of a set), and how many there are already.
State: TypeAlias = tuple[int | frozenset[str], int]


class Members:
    """Members separated by commas. Two rules a state, and for any next member only one way to go."""

    def __init__(self, declared: Mapping[str, Node], others: Sequence[Node], comma: Node, rules: Rules) -> None:
        self.declared, self.names = declared, list(declared)
        self.others = others
        self.comma, self.rules = comma, rules
        self.required: frozenset[str] = frozenset()
        self.least: int = 0
        self.most: int | None = None
        self._made: dict[tuple[Any, ...], Ref] = {}
        self._todo: list[tuple[Any, ...]] = []

    def node(self, simple: Simple) -> Node:
        """All of them, as many as the schema wants."""
        self.required = frozenset(simple.get("required", ()))
        self.least, self.most = simple.get("minProperties", 0), simple.get("maxProperties")
        first = frozenset(self.names) if len(self.names) <= ANY_ORDER else 0
        if self._states(first) > _STATES:
            self.rules.unenforced(simple, ("minProperties", "maxProperties"))
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
        """Counting goes no further than this."""
        return max(self.least, 0 if self.most is None else self.most)

    def _left(self, place: int | frozenset[str]) -> list[str]:
        return self.names[place:] if isinstance(place, int) else [name for name in self.names if name in place]

    def _may_end(self, state: State) -> bool:
        place, count = state
        return count >= self.least and not any(name in self.required for name in self._left(place))

    def _later(self, *key: Any) -> Ref:
        """A rule that is written when its turn comes: a long object is no deep one."""
        if key not in self._made:
            self._made[key] = Ref(self.rules.promise("o"))
            self._todo.append(key)
        return self._made[key]

    def _after(self, state: State) -> Node:
        """A comma and a further member, or the end."""
        ways = self._ways(state)
        more: list[Node] = [Seq((self.comma, ways[0] if len(ways) == 1 else Alt(tuple(ways))))] if ways else []
        return Alt((*more, NOTHING)) if self._may_end(state) else Alt(tuple(more))

    def _ways(self, state: State) -> list[Node]:
        """Whatever member may come next, and what follows it."""
        place, count = state
        if self.most is not None and count >= self.most:
            return []
        counted = min(count + 1, self._cap())
        # A member that is not declared takes none of the room that the required ones still need.
        ways: list[Node] = [Seq((one, self._later(self._after, (place, counted)))) for one in self.others]
        if isinstance(place, frozenset):
            ways += [
                Seq((self.declared[name], self._later(self._after, (place - {name}, counted)))) for name in self._left(place)
            ]
        elif place < len(self.names):
            ways.append(self._later(self._from, place, counted))
        return ways

    def _from(self, place: int, counted: int) -> Node:
        """This member, or, where it may be left out, one behind it."""
        taken = Seq((self.declared[self.names[place]], self._later(self._after, (place + 1, counted))))
        if self.names[place] in self.required or place + 1 == len(self.names):
            return taken
        return Alt((taken, self._later(self._from, place + 1, counted)))
