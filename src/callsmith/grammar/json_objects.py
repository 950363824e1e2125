"""The members of an object: which keys there are besides the declared ones, and in which order members may stand."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias, cast

from callsmith.grammar.automaton import Automaton, TooLarge, compiled
from callsmith.grammar.json_parts import Impossible, Parts, at
from callsmith.grammar.nodes import Alt, Node, Ref, Seq
from callsmith.grammar.regex import ANYTHING, Irregular, Or, literal, parse, whole
from callsmith.grammar.simple import Left
from callsmith.grammar.values import NOTHING, Rules

ANY_ORDER = 4  # so many properties may stand in any order: their number of rules doubles with each
_PATTERNS = 3  # so many `patternProperties` are told apart: likewise
_STATES = 400


class Naming:
    """What the parts of a schema say about properties by their names."""

    def __init__(self, parts: Parts, left: Left) -> None:
        self.parts = parts
        self.patterns: dict[str, Automaton] = {}
        self.unfollowed: set[str] = set()
        for schema, path in parts.parts:
            for pattern in cast(Mapping[str, Any], schema.get("patternProperties", {})):
                try:
                    if len(self.patterns) == _PATTERNS:
                        raise TooLarge
                    self.patterns[pattern] = self.patterns.get(pattern) or compiled(whole(parse(pattern)), 300)
                except (Irregular, TooLarge):
                    self.unfollowed.add(pattern)
                    left.append((path, "patternProperties"))

    def declared(self) -> list[str]:
        """The properties that are named."""
        return [name for held in self.parts.said("properties") for name in cast(Mapping[str, Any], held)]

    def value(self, name: str) -> tuple[Any, str]:
        """The schema of a property, and where it stands."""
        matched = [pattern for pattern, keys in self.patterns.items() if keys.accepts(name)]
        return self._demands(name, matched), at(self.parts.path, "properties", name)

    def _demands(self, name: str | None, patterns: Collection[str]) -> Any:
        """All that is said of a key by its name, the patterns it matches, or, in a part that knows neither, for all others."""
        found: list[Any] = []
        for schema, _ in self.parts.parts:
            named = cast(Mapping[str, Any], schema.get("properties", {}))
            matching = cast(Mapping[str, Any], schema.get("patternProperties", {}))
            here = [named[name]] if name is not None and name in named else []
            here += [matching[pattern] for pattern in patterns if pattern in matching]
            unsure = self.unfollowed & matching.keys()  # the key may match one of these: then nothing is known of it
            found += here or ([] if unsure else [schema.get("additionalProperties", True)])
        found = [one for one in found if one is not True]
        return found[0] if len(found) == 1 else {"allOf": found}

    def others(self, known: Collection[str]) -> Iterator[tuple[Automaton, Any, str]]:
        """All other keys, by the patterns they match, each time with the schema of the value and where it stands."""
        for matches in product((True, False), repeat=len(self.patterns)):
            matched = [pattern for pattern, yes in zip(self.patterns, matches, strict=True) if yes]
            demands = self._demands(None, matched)
            if demands is False:
                continue
            keys = compiled(ANYTHING)
            for pattern, yes in zip(self.patterns, matches, strict=True):
                keys = keys & self.patterns[pattern] if yes else keys - self.patterns[pattern]
            keys -= compiled(Or(tuple(literal(name) for name in known)))
            steps = ("patternProperties", matched[0]) if matched else ("additionalProperties",)
            if not keys.empty:
                yield keys, demands, at(self.parts.path, *steps)


# Which declared members may still come (those from a number on, or any of a set), and how many there are already.
State: TypeAlias = tuple[int | frozenset[str], int]


class Members:
    """Members separated by commas. Two rules a state, and for any next member only one way to go."""

    def __init__(
        self, declared: Mapping[str, Node], required: Collection[str], others: Sequence[Node], comma: Node, rules: Rules
    ) -> None:
        self.declared, self.names = declared, list(declared)
        self.required = required
        self.others = others
        self.comma, self.rules = comma, rules
        self.least, self.most = 0, None
        self._made: dict[tuple[Any, ...], Ref] = {}
        self._todo: list[tuple[Any, ...]] = []

    def node(self, counts: tuple[int, int | None], path: str) -> Node:
        """All of them. `counts` are the least and the greatest number of members."""
        self.least, self.most = counts
        if self.most is not None and self.most < max(self.least, len(self.required)):
            raise Impossible(path, "maxProperties", "more properties are required")
        if not self.others and self.least > len(self.declared):
            raise Impossible(path, "minProperties", "there are not so many properties")
        if self.least <= len(self.required) and (self.most is None or (not self.others and self.most >= len(self.declared))):
            self.least, self.most = 0, None  # so it is anyway
        first = frozenset(self.names) if len(self.names) <= ANY_ORDER else 0
        if self._states(first) > _STATES:
            self.rules.left += [(path, keyword) for keyword, on in self._asked() if on]
            self.least, self.most = 0, None
        start: State = (first, 0)
        ways = self._ways(start)
        while self._todo:
            make, *given = key = self._todo.pop()
            self.rules.nodes[self._made[key].name] = make(*given)
        return Alt((*ways, NOTHING)) if self._may_end(start) else Alt(tuple(ways))

    def _asked(self) -> tuple[tuple[str, bool], ...]:
        return ("minProperties", bool(self.least)), ("maxProperties", self.most is not None)

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
