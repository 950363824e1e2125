"""A report on tool selection: tools that are never called, tools that are called wrongly, and tools that are confused."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from callsmith.runtime.telemetry.trace import Counters, ToolCounts
from callsmith.runtime.telemetry.turns import INVALID, Outcome, TurnRecord

OFTEN = 0.2  # the share of invalid calls from which on a tool is reported
FEWEST = 3  # calls a tool must have to be reported

Why: TypeAlias = Literal["instead", "name"]

_UNSUCCESSFUL = INVALID | frozenset[Outcome]({"failed", "timeout", "declined"})


@dataclass(frozen=True, slots=True)
class Confusion:
    """One tool called instead of another, and how often.

    "instead": a call of `tool` failed, and in the next step `other` was called, but not `tool`. "name": `tool` is a name that
    does not exist, and `other` a similar one that does.
    """

    tool: str
    other: str
    why: Why
    times: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The report on the turns."""

    turns: int
    tools: dict[str, ToolCounts]
    never_called: tuple[str, ...]
    often_invalid: tuple[str, ...]
    confused: tuple[Confusion, ...]


def report(turns: Iterable[TurnRecord]) -> Selection:
    """Make the report on these turns."""
    counters, mixed, number = Counters(), Counter[tuple[str, str, Why]](), 0
    for turn in turns:
        number += 1
        counters.add(turn)
        mixed.update(_confusions(turn))
    tools = dict(sorted(counters.tools.items()))
    return Selection(
        number,
        tools,
        tuple(name for name, counts in tools.items() if counts.offered and not counts.called),
        tuple(name for name, counts in tools.items() if counts.called >= FEWEST and counts.invalid >= OFTEN * counts.called),
        tuple(Confusion(*pair, times) for pair, times in sorted(mixed.items(), key=lambda item: (-item[1], item[0]))),
    )


def _confusions(turn: TurnRecord) -> Iterator[tuple[str, str, Why]]:
    """The confusions of one turn."""
    steps: dict[int, list[str]] = {}
    for call in turn.calls:
        steps.setdefault(call.step, []).append(call.tool)
    for call in turn.calls:
        then = steps.get(call.step + 1, ())
        if call.meant:
            yield call.tool, call.meant, "name"
        elif call.outcome in _UNSUCCESSFUL and call.tool not in then:
            for other in dict.fromkeys(then):
                yield call.tool, other, "instead"
