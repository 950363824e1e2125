"""How tools are selected: which are never called, which are called wrongly, and which are taken for one another."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from callsmith.runtime.telemetry.trace import Counters, ToolCounts
from callsmith.runtime.telemetry.turns import INVALID, Outcome, TurnRecord

OFTEN = 0.2  # of a tool's calls, from which share on invalid ones are too many
FEWEST = 3  # calls, before that is said of a tool

Why: TypeAlias = Literal["instead", "name"]

_FRUITLESS = INVALID | frozenset[Outcome]({"failed", "timeout", "declined"})


@dataclass(frozen=True, slots=True)
class Confusion:
    """One tool taken for another, so many times.

    "instead": `tool` was called in vain, and in the next step `other`, but not `tool` again. "name": `tool` is a name that does
    not exist, and `other` one that is much like it.
    """

    tool: str
    other: str
    why: Why
    times: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What turns say about the choice of tools."""

    turns: int
    tools: dict[str, ToolCounts]
    never_called: tuple[str, ...]
    often_invalid: tuple[str, ...]
    confused: tuple[Confusion, ...]


def report(turns: Iterable[TurnRecord]) -> Selection:
    """What these turns say."""
    counters, mixed, number = Counters(), Counter[tuple[str, str, Why]](), 0
    for turn in turns:
        number += 1
        counters.add(turn)
        mixed.update(_mixed_up(turn))
    tools = dict(sorted(counters.tools.items()))
    return Selection(
        number,
        tools,
        tuple(name for name, counts in tools.items() if counts.offered and not counts.called),
        tuple(name for name, counts in tools.items() if counts.called >= FEWEST and counts.invalid >= OFTEN * counts.called),
        tuple(Confusion(*pair, times) for pair, times in sorted(mixed.items(), key=lambda item: (-item[1], item[0]))),
    )


def _mixed_up(turn: TurnRecord) -> Iterator[tuple[str, str, Why]]:
    """Each confusion of a turn."""
    steps: dict[int, list[str]] = {}
    for call in turn.calls:
        steps.setdefault(call.step, []).append(call.tool)
    for call in turn.calls:
        then = steps.get(call.step + 1, ())
        if call.meant:
            yield call.tool, call.meant, "name"
        elif call.outcome in _FRUITLESS and call.tool not in then:
            for other in dict.fromkeys(then):
                yield call.tool, other, "instead"
