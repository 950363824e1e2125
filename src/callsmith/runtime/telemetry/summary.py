"""Outcomes of tools and models over a while, summed up from the records of turns: by tool, and minute by minute.

`report` is about tool selection: tools that are never called, that are called wrongly, and that are confused.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Literal, TypeAlias

from callsmith.runtime.telemetry.trace import Counters, ToolCounts
from callsmith.runtime.telemetry.turns import INVALID, CallRecord, Outcome, TurnRecord

MINUTE = 60
_FAILED: frozenset[Outcome] = frozenset({"failed", "timeout", "cancelled"})

OFTEN = 0.2  # the share of invalid calls from which on a tool is reported
FEWEST = 3  # calls a tool must have to be reported

Why: TypeAlias = Literal["instead", "name"]

_UNSUCCESSFUL = INVALID | frozenset[Outcome]({"failed", "timeout", "declined"})


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """The calls of one tool: `invalid` did not fit its schema, or could not be read; others than ok, failed and invalid did not
    run. A call that waited for a person is one, whenever it was answered. `p50` and `p95` are the seconds it ran, None if it has
    not."""

    name: str
    calls: int
    ok: int
    failed: int
    invalid: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class MinuteSummary:
    """The turns that began in one minute; `at` is its beginning, in seconds since the epoch.

    `tokens` are those that were written, `tokens_per_second` how fast: without the wait for the first one, and the time in which
    tools ran. `first_token` is the median of the seconds to the first event. What is not known is None. `decided` are the turns
    in which it was decided beforehand whether to call tools, `decided_to_call` those of them in which it was decided to.
    """

    at: int
    turns: int
    calls: int
    invalid: int
    tokens: int
    tokens_per_second: float | None
    first_token: float | None
    decided: int = 0
    decided_to_call: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """Tools by the number of their calls, and the minutes from the oldest to this one."""

    tools: tuple[ToolSummary, ...]
    minutes: tuple[MinuteSummary, ...]


def summarize(turns: Iterable[TurnRecord], now: float, minutes: int) -> Summary:
    """What the turns of the last minutes come to, the one that is not over yet included."""
    last = int(now) // MINUTE
    by_minute: dict[int, list[TurnRecord]] = {number: [] for number in range(last - minutes + 1, last + 1)}
    for turn in turns:
        if (known := by_minute.get(int(turn.when) // MINUTE)) is not None:
            known.append(turn)
    calls: dict[str, list[CallRecord]] = {}
    for turn in (turn for turns in by_minute.values() for turn in turns):
        for call in turn.calls:
            calls.setdefault(call.meant or call.tool, []).append(call)
    tools = sorted((_tool(name, records) for name, records in calls.items()), key=lambda tool: (-tool.calls, tool.name))
    return Summary(tuple(tools), tuple(_minute(number * MINUTE, turns) for number, turns in by_minute.items()))


def _tool(name: str, calls: Sequence[CallRecord]) -> ToolSummary:
    outcomes = [call.outcome for call in calls]
    seconds = sorted(call.seconds for call in calls if call.seconds is not None)
    return ToolSummary(
        name,
        sum(not call.resumed for call in calls),
        outcomes.count("ok"),
        sum(outcome in _FAILED for outcome in outcomes),
        sum(outcome in INVALID for outcome in outcomes),
        _percentile(seconds, 0.5),
        _percentile(seconds, 0.95),
    )


def _minute(at: int, turns: Sequence[TurnRecord]) -> MinuteSummary:
    calls = [call for turn in turns for call in turn.calls if not call.resumed]
    answered = [turn for turn in turns if turn.usage.completion]
    tokens, seconds = sum(turn.usage.completion for turn in answered), sum(map(_writing_seconds, answered))
    firsts = [turn.first for turn in turns if turn.first is not None]
    decisions = [turn.decision for turn in turns if turn.decision is not None]
    return MinuteSummary(
        at,
        len(turns),
        len(calls),
        sum(call.outcome in INVALID for call in calls),
        tokens,
        round(tokens / seconds, 3) if seconds > 0 else None,
        median(firsts) if firsts else None,
        len(decisions),
        sum(decision.calls for decision in decisions),
    )


def _writing_seconds(turn: TurnRecord) -> float:
    """How long the model wrote, about: all of the turn but the wait for its first event, and where a tool ran."""
    running, until = 0.0, turn.first or 0.0
    for call in sorted(turn.calls, key=lambda call: call.at):  # they may run side by side
        end = call.at + (call.seconds or 0.0)
        running += max(0.0, end - max(call.at, until))
        until = max(until, end)
    return max(0.0, turn.seconds - (turn.first or 0.0) - running)


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """The value that so much of the values do not exceed."""
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None


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
