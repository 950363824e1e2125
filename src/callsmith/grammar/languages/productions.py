"""Rules as productions, each a sequence of symbols: the plain form that a grammar is recognised, rewritten and intersected in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from callsmith.core.errors import UsageError
from callsmith.grammar.nodes import Alt, Many, Node, Pattern, Ref, Seq
from callsmith.grammar.patterns.character_sets import Ranges
from callsmith.grammar.patterns.regex import Anchor, Cat, CharSet, Or, Regex, Repeat, length_range, parse

Symbol: TypeAlias = str | Pattern | Ranges  # the name of a rule, a terminal, or a set of characters
Way: TypeAlias = tuple[Symbol, ...]
Productions: TypeAlias = dict[str, list[Way]]  # by name, the first is where texts begin
T = TypeVar("T")
MAX_SYMBOLS: Final = 50_000
ROOT: Final = "%root"


def to_productions(start: Node, rules: Mapping[str, Node], *, by_character: bool) -> Productions:
    """The productions of a grammar; `by_character`: without terminals, each of their characters is a symbol."""
    return _ProductionBuilder(by_character=by_character).build(start, rules)


class _ProductionBuilder:
    def __init__(self, *, by_character: bool) -> None:
        self.by_character = by_character
        self.made: Productions = {ROOT: []}
        self.size = 0

    def build(self, start: Node, rules: Mapping[str, Node]) -> Productions:
        self.made |= {name: [] for name in rules}
        for name, node in ((ROOT, start), *rules.items()):
            ways = node.items if isinstance(node, Alt) else (node,)
            self.made[name] = [self.node(way) for way in ways]
        return self.made

    def add(self, ways: Iterable[Way]) -> Way:
        listed = list(ways)  # which adds others first
        name = f"%{len(self.made)}"
        self.made[name] = listed
        self.count(sum(map(len, self.made[name])) + 1)
        return (name,)

    def count(self, more: int) -> None:
        self.size += more
        if self.size > MAX_SYMBOLS:
            raise UsageError(f"grammar: becomes too large, more than {MAX_SYMBOLS} symbols", field="grammar")

    def node(self, node: Node) -> Way:
        match node:
            case Pattern():
                return self.regex(parse(node.regex)) if self.by_character else (node,)
            case Ref(name):
                return (name,)
            case Seq(items):
                return self.sequence(items, self.node)
            case Alt(items):
                return self.add(map(self.node, items))
            case Many(item, least, most):
                return self.repeat(self.node(item), least, most)
            case _:
                raise TypeError(f"no part of a grammar that a user wrote: {node}")

    def regex(self, tree: Regex) -> Way:
        match tree:
            case CharSet(ranges):
                return (ranges,)
            case Cat(items):
                return self.sequence(items, self.regex)
            case Or(items):
                return self.add(map(self.regex, items))
            case Repeat(item, least, most):
                return self.repeat(self.regex(item), least, most)
            case Anchor():
                raise TypeError("an expression for a whole text has no anchors")

    def sequence(self, items: Sequence[T], make: Callable[[T], Way]) -> Way:
        way = tuple(chain.from_iterable(map(make, items)))
        self.count(len(way))
        return way

    def repeat(self, item: Way, least: int, most: int | None) -> Way:
        if len(item) != 1:
            item = self.add([item])
        self.count(least)
        if most is None:
            more = f"%{len(self.made)}"
            self.add([(), (*item, more)])
            return (*item * least, more)
        rest: Way = ()
        for _ in range(most - least):
            rest = self.add([(), (*item, *rest)])
        return (*item * least, *rest)


def shorten_ways(productions: Productions, most: int = 8) -> Productions:
    """The productions with no more than so many symbols in a sequence: what is behind them is a rule of its own."""
    short: Productions = {}
    for name, ways in productions.items():
        short[name] = []
        for way in ways:
            at, here = name, way
            while len(here) > most:
                rest = f"{name}%{len(short)}"
                short[at].append((*here[: most - 1], rest))
                at, here = rest, here[most - 1 :]
                short[at] = []
            short[at].append(here)
    return short


def nullable_names(productions: Productions) -> set[str]:
    """The names of the rules that an empty text matches."""
    users: dict[str, set[str]] = {}
    for name, ways in productions.items():
        for symbol in {symbol for way in ways for symbol in way if isinstance(symbol, str)}:
            users.setdefault(symbol, set()).add(name)
    nullable: set[str] = set()
    todo = list(productions)
    while todo:
        name = todo.pop()
        if name not in nullable and any(all(_is_nullable(item, nullable) for item in way) for way in productions[name]):
            nullable.add(name)
            todo += users.get(name, ())
    return nullable


def _is_nullable(symbol: Symbol, nullable: set[str]) -> bool:
    match symbol:
        case str():
            return symbol in nullable
        case Pattern():
            return length_range(parse(symbol.regex))[0] == 0
        case _:
            return False


# --- rules that begin with themselves ---------------------------------------------------------------------------------------


def find_left_recursion(productions: Productions) -> list[str]:
    """The names of the rules that can begin with themselves, in the order of the grammar."""
    nullable = nullable_names(productions)
    begins: dict[str, set[str]] = {}
    for name, ways in productions.items():
        leads = begins.setdefault(name, set())
        for way in ways:
            for symbol in way:
                if isinstance(symbol, str):
                    leads.add(symbol)
                if not _is_nullable(symbol, nullable):
                    break
    within = names_on_cycles(begins)
    return [name for name in productions if name in within]


def names_on_cycles(leads: Mapping[str, set[str]]) -> set[str]:
    """The names that lead to themselves, and those on the way from one of them to another."""
    back: dict[str, set[str]] = {name: set() for name in leads}
    for name, names in leads.items():
        for lead in names:
            back[lead].add(name)
    return _on_cycles(leads, back) & _on_cycles(back, leads)


def _on_cycles(forward: Mapping[str, set[str]], backward: Mapping[str, set[str]]) -> set[str]:
    """The names from which a way leads into a cycle."""
    left = {name: len(following) for name, following in forward.items()}
    todo = [name for name, count in left.items() if count == 0]
    for name in todo:
        for before in backward[name]:
            left[before] -= 1
            if left[before] == 0:
                todo.append(before)
    return {name for name, count in left.items() if count}


def drop_left_recursion(productions: Productions) -> Productions:
    """The same texts by rules that do not begin with themselves: engines that go from left to right need that.

    A rule `a: a x | y` becomes `a: y more`, `more: x more | `; where it is another rule that begins with it, that one is put in
    its place first. What begins with itself behind something that may be empty stays, and is refused.
    """
    recursive = find_left_recursion(productions)
    if not recursive:
        return productions
    made = dict(productions)
    done: list[str] = []
    for name in recursive:
        ways = _put_in(made, name, done)
        again = [way[1:] for way in ways if way[:1] == (name,) and len(way) > 1]
        first = [way for way in ways if way[:1] != (name,)]
        if again:
            more = f"{name}%more"
            made[more] = [(), *((*way, more) for way in again)]
            first = [(*way, more) for way in first]
        made[name] = first
        done.append(name)
    if left := find_left_recursion(made):
        name = next((name.removesuffix("%more") for name in left if not name.startswith("%")), None)
        why = "a repetition is of something that may be empty"  # those are the only ones without names of their own
        if name:
            why = f"the rule {name!r} begins with itself behind something that may be empty; write it as a repetition"
        raise UsageError(f"grammar: {why}", field="grammar")
    return made


def _put_in(productions: Productions, name: str, done: Sequence[str]) -> list[Way]:
    """The ways of a rule, in which rules that are done already are replaced where they come first."""
    out: list[Way] = []
    todo, size = list(reversed(productions[name])), 0
    while todo:
        way = todo.pop()
        size += len(way) + 1
        if size > MAX_SYMBOLS:
            raise UsageError(f"grammar: the rules that begin with {name!r} and with each other are too many", field="grammar")
        if way and isinstance(way[0], str) and way[0] in done:
            todo += [(*first, *way[1:]) for first in reversed(productions[way[0]])]
        else:
            out.append(way)
    return list(dict.fromkeys(out))


def to_rules(productions: Productions) -> dict[str, Node]:
    """The productions as rules of nodes; their symbols are names and terminals."""
    return {name: _rule_node(name, ways) for name, ways in productions.items()}


def _rule_node(name: str, ways: list[Way]) -> Node:
    is_repetition = ways[:1] == [()] and all(way[-1:] == (name,) and name not in way[:-1] for way in ways[1:])
    if is_repetition:
        return Many(Alt(tuple(Seq(tuple(map(_symbol_node, way[:-1]))) for way in ways[1:])))
    return Alt(tuple(Seq(tuple(map(_symbol_node, way))) for way in ways))


def _symbol_node(symbol: Symbol) -> Node:
    match symbol:
        case str():
            return Ref(symbol)
        case Pattern():
            return symbol
        case _:
            raise TypeError("a set of characters is no node")
