"""Whether a text is one of a grammar that refers to itself, by Earley's algorithm."""

from dataclasses import dataclass
from typing import Final

from callsmith.grammar.languages.productions import ROOT, Productions, nullable_names
from callsmith.grammar.patterns.character_sets import Ranges

_MAX_STEPS: Final = 300_000  # about a second


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where a text stops being one of the grammar: behind so many characters. `is_unknown`: it was too long to find out."""

    at: int
    is_unknown: bool = False


class Recognizer:
    """Recognises the texts of productions whose symbols are names and sets of characters."""

    def __init__(self, productions: Productions) -> None:
        self._nullable = nullable_names(productions)
        self._steps = 0
        self._ways = [(name, way) for name, ways in productions.items() for way in ways]
        self._by_name: dict[str, list[int]] = {name: [] for name in productions}
        for number, (name, _) in enumerate(self._ways):
            self._by_name[name].append(number)

    def follow(self, text: str) -> Misfit | None:
        """Where the text stops being one of the grammar; None if it is one."""
        waiting: list[dict[str, list[tuple[int, int, int]]]] = []  # at each place: those that a rule has to be found for
        items = [(number, 0, 0) for number in self._by_name[ROOT]]
        self._steps = 0
        for at in range(len(text) + 1):
            waiting.append({})
            scanned = self._complete(items, at, waiting)
            if self._steps > _MAX_STEPS:
                return Misfit(at, is_unknown=True)
            if at == len(text):
                break
            code = ord(text[at])
            items = [(way, dot + 1, begun) for ranges, (way, dot, begun) in scanned if _has(ranges, code)]
            if not items:
                return Misfit(at)
        is_whole = any(begun == 0 and self._ways[way][0] == ROOT and dot == len(self._ways[way][1]) for way, dot, begun in items)
        return None if is_whole else Misfit(len(text))

    def _complete(
        self, items: list[tuple[int, int, int]], at: int, waiting: list[dict[str, list[tuple[int, int, int]]]]
    ) -> list[tuple[Ranges, tuple[int, int, int]]]:
        """Add to the items of a place what follows from them without a character; those that want one, with what it may be."""
        seen, here = set(items), waiting[at]
        scanned: list[tuple[Ranges, tuple[int, int, int]]] = []

        def add(item: tuple[int, int, int]) -> None:
            self._steps += 1
            if item not in seen:
                seen.add(item)
                items.append(item)

        for item in items:  # grows in the loop
            if self._steps > _MAX_STEPS:
                break
            number, dot, begun = item
            name, way = self._ways[number]
            if dot == len(way):
                for way_before, dot_before, begun_before in waiting[begun].get(name, ()):
                    add((way_before, dot_before + 1, begun_before))
                continue
            symbol = way[dot]
            if not isinstance(symbol, str):
                scanned.append((symbol, item))  # pyright: ignore[reportArgumentType]
                continue
            if symbol not in here:
                here[symbol] = []
                for predicted in self._by_name[symbol]:
                    add((predicted, 0, at))
            here[symbol].append(item)
            if symbol in self._nullable:
                add((number, dot + 1, begun))
        return scanned


def _has(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)
