"""What the records of turns come to: tools, and minutes."""

import pytest

from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Usage
from callsmith.runtime.telemetry.summary import MinuteSummary, Summary, ToolSummary, summarize
from callsmith.runtime.telemetry.turns import UNKNOWN, CallRecord, TurnRecord

NOW = 6_000.0  # the beginning of a minute


def test_calls_are_counted_by_tool_and_outcome_the_most_called_first():
    calls = (
        CallRecord("read", "ok", seconds=0.1),
        CallRecord("read", "failed", seconds=0.3),
        CallRecord("read", "timeout", seconds=30.0),
        CallRecord("read", "invalid"),
        CallRecord("raed", "unknown", meant="read"),
        CallRecord("pay", "declined"),
        CallRecord(UNKNOWN, "unknown"),
    )
    assert summarize([TurnRecord(NOW, "m", calls=calls)], NOW, 1).tools == (
        ToolSummary("read", 5, 1, 2, 2, 0.3, 30.0),
        ToolSummary(UNKNOWN, 1, 0, 0, 1, None, None),
        ToolSummary("pay", 1, 0, 0, 0, None, None),
    )


def test_a_call_that_waited_for_a_person_is_one_call():
    waiting = TurnRecord(NOW, "m", calls=(CallRecord("pay", "waiting"),))
    answered = TurnRecord(NOW, "m", calls=(CallRecord("pay", "ok", resumed=True, seconds=0.5),))
    summary = summarize([waiting, answered], NOW, 1)
    assert summary.tools == (ToolSummary("pay", 1, 1, 0, 0, 0.5, 0.5),)
    assert summary.minutes[0].calls == 1


@pytest.mark.parametrize(("count", "p50", "p95"), [(1, 1, 1), (2, 1, 2), (20, 10, 19), (100, 50, 95)])
def test_percentiles_are_values_that_were_measured(count: int, p50: float, p95: float):
    calls = tuple(CallRecord("read", "ok", seconds=float(number)) for number in range(count, 0, -1))
    [tool] = summarize([TurnRecord(NOW, "m", calls=calls)], NOW, 1).tools
    assert (tool.p50, tool.p95) == (p50, p95)


def test_there_is_every_minute_also_those_in_which_nothing_happened():
    turns = [
        TurnRecord(NOW - 121, "m", usage=Usage(10, 99)),  # before
        TurnRecord(NOW - 120, "m", usage=Usage(10, 20), first=1.0, seconds=5.0),
        TurnRecord(
            NOW - 61,
            "m",
            usage=Usage(10, 20),
            first=2.0,
            seconds=10.0,
            calls=(CallRecord("read", "invalid", at=3.0, seconds=4.0),),
        ),
        TurnRecord(NOW + 59.9, "m"),
    ]
    assert summarize(turns, NOW + 59.9, 3).minutes == (
        MinuteSummary(int(NOW) - 120, 2, 1, 1, 40, 5.0, 1.5),
        MinuteSummary(int(NOW) - 60, 0, 0, 0, 0, None, None),
        MinuteSummary(int(NOW), 1, 0, 0, 0, None, None),
    )


def test_the_time_of_tools_that_ran_side_by_side_counts_once():
    calls = tuple(
        CallRecord("read", "ok", at=at, seconds=seconds) for at, seconds in ((3.0, 5.0), (2.0, 10.0), (2.0, 1.0), (13.0, 1.0))
    )
    [minute] = summarize([TurnRecord(NOW, "m", calls=calls, usage=Usage(1, 12), first=1.0, seconds=15.0)], NOW, 1).minutes
    assert (minute.tokens, minute.tokens_per_second) == (12, 4.0)


def test_a_turn_that_took_no_time_has_no_speed():
    [minute] = summarize([TurnRecord(NOW, "m", usage=Usage(1, 5), first=0.0, seconds=0.0)], NOW, 1).minutes
    assert (minute.tokens, minute.tokens_per_second) == (5, None)


def test_decisions_are_counted_and_those_to_call_among_them():
    decisions = [CallDecision(True, 1.3, -1.5), CallDecision(False, -2.0, -1.5), CallDecision(False, -9.0, 0.0), None]
    [minute] = summarize([TurnRecord(NOW, "m", decision=decision) for decision in decisions], NOW, 1).minutes
    assert (minute.turns, minute.decided, minute.decided_to_call) == (4, 3, 1)


def test_of_no_turns_there_is_nothing_to_say():
    assert summarize([], NOW, 1) == Summary((), (MinuteSummary(int(NOW), 0, 0, 0, 0, None, None),))
