"""Turns that are kept and counted, and written down."""

from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Usage
from callsmith.runtime.loop import run
from callsmith.runtime.telemetry.trace import OTHERS, CombinedRecorder, Counters, Trace, TraceFile, read_trace
from callsmith.runtime.telemetry.turns import UNKNOWN, CallRecord, TurnInfo, TurnRecord, record_turn
from tests.fakes import ASKED, FakeModel, Handlers, calls, hello, says
from tests.runtime.telemetry.traced import GREET, SECRET, WAVE
from tests.work import count_calls

# The trace


def test_the_trace_keeps_the_latest_turns_and_counts_all():
    trace = Trace(3)
    for number in range(10):
        trace.add(TurnRecord(float(number), "parrot", ("greet",)))
    assert [turn.when for turn in trace.turns()] == [7.0, 8.0, 9.0]
    assert trace.counters().tools["greet"].offered == 10


def test_the_trace_may_be_written_and_read_by_many_threads():
    trace = Trace(100)

    def add(name: str) -> None:
        for number in range(500):
            trace.add(TurnRecord(0.0, "parrot", (f"{name}{number}",), calls=(CallRecord(f"{name}{number}", "ok"),)))
            if number % 50 == 0:
                trace.counters()

    threads = [Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counters = trace.counters()
    assert sum(counts.called for counts in counters.tools.values()) == 2000
    assert counters.models["parrot"].reasons["stop"] == 2000


def test_tools_of_any_number_of_names_do_not_fill_the_memory():
    counters = Counters()
    for number in range(3000):
        counters.add(TurnRecord(0.0, "parrot", (f"tool{number}",)))
    assert len(counters.tools) <= 1001
    assert counters.tools[OTHERS].offered == 2000


def test_counters_tell_what_became_of_each_tool():
    records = (
        CallRecord("a", "ok", repairs=("x",), arguments_size=8, result_size=9, seconds=0.02), CallRecord("a", "invalid"),
        CallRecord("a", "failed", seconds=400.0), CallRecord("a", "timeout"), CallRecord("a", "declined", resumed=True),
        CallRecord("aa", "unknown", meant="a"), CallRecord(UNKNOWN, "unknown"),
    )  # fmt: skip
    counters = Counters()
    counters.add(TurnRecord(0.0, "parrot", ("a", "b"), calls=records, usage=Usage(5, 6), first=0.1, seconds=0.2))
    a = counters.tools["a"]
    assert (a.offered, a.called, a.invalid, a.repaired, a.declined, a.failed, a.timeouts) == (1, 5, 2, 1, 1, 1, 1)
    assert (a.tokens, a.seconds.total, sum(a.seconds.counts), a.seconds.counts[-1]) == (5, 400.02, 2, 1)
    assert counters.tools[UNKNOWN].invalid == 1
    assert counters.models["parrot"].usage == Usage(5, 6)


def test_recording_a_turn_is_little_work_however_many_there_are():
    trace = Trace()
    turn = TurnRecord(
        0.0, "parrot", ("greet", "wave"), calls=(CallRecord("greet", "ok", seconds=0.1), CallRecord("wave", "failed"))
    )

    trace.add(turn)
    first = count_calls(lambda: trace.add(turn))
    for _ in range(2000):
        trace.add(turn)
    assert count_calls(lambda: trace.add(turn)) <= first + 5
    assert first < 100


# Files


@pytest.mark.req("R221")
async def test_what_is_written_to_a_file_is_read_back_the_same(tmp_path: Path):
    path, trace = tmp_path / "trace.jsonl", Trace()
    recorder = CombinedRecorder(trace, TraceFile(path), TraceFile(path))  # as two programs would
    toolset = Handlers(GREET, WAVE, greet=hello)
    for _ in range(2):
        scripted = FakeModel(calls(Call("greet", {"to": SECRET}, "c1"), Call("greeet", {}, "c2")), says(SECRET))
        async for _ in record_turn(run(scripted, toolset, ASKED), recorder, TurnInfo("parrot", await toolset.tools())):
            pass
    text = path.read_text("utf-8")
    assert SECRET not in text
    back = list(read_trace(path))
    assert len(back) == 4 and back[0] == back[1]
    for turn, kept in zip(back[::2], trace.turns(), strict=True):
        assert turn is not None
        times = {"when": turn.when, "first": turn.first, "seconds": turn.seconds}
        ran = [replace(call, at=other.at, seconds=other.seconds) for call, other in zip(kept.calls, turn.calls, strict=True)]
        assert turn == replace(kept, **times, calls=tuple(ran))
        assert turn.seconds == pytest.approx(kept.seconds, abs=1e-5)


def test_the_line_of_a_turn_is_as_it_always_was(tmp_path: Path):
    """`trace_line.json` has every field; lines have no version, for fields of later ones are passed over."""
    turn = TurnRecord(
        1000.123457, "qwen", ("add", "wipe"), "ab12", "required", True,
        (
            CallRecord("add", "ok", "c1", "code", ("quotes",), ("a", "b"), 14, 3, 1, 0.123457, 0.5, arguments="{}", result="3"),
            CallRecord("(unknown)", "unknown", meant="wipe", resumed=True),
        ),
        Usage(10, 5, 2, 1), 0.25, 1.5, 2, 1, 3, 1, (f"a {chr(0xD800)}",), "cancelled", "Boom", CallDecision(True, 1.333333, -1.5),
    )  # fmt: skip
    stored = Path(__file__).parent / "trace_line.json"
    assert list(read_trace(stored)) == [turn]
    file = TraceFile(tmp_path / "trace.jsonl")
    file.add(replace(turn, when=1000.12345678, decision=CallDecision(True, 4 / 3, -1.5)))
    file.close()
    assert (tmp_path / "trace.jsonl").read_bytes() == stored.read_bytes()


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "{}",
        '{"when":1,"model":"m","answers":Infinity}',
        '{"when":"x","model":"m"}',
        '{"when":1,"model":"m","calls":[{"tool":"a","outcome":"great"}]}',
    ],
)
def test_a_line_that_is_no_turn_is_passed_over(tmp_path: Path, line: str):
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{{"when":1,"model":"m","later":[]}}\n{line}\n\n', "utf-8")
    assert list(read_trace(path)) == [TurnRecord(1.0, "m"), None]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk here that is always full")
def test_a_file_that_cannot_be_written_is_told_at_once_and_later_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with pytest.raises(Unavailable):
        TraceFile(tmp_path / "missing" / "trace.jsonl")
    full = TraceFile("/dev/full")
    full.add(TurnRecord(1.0, "m"))
    full.add(TurnRecord(2.0, "m"))
    assert [record.message for record in caplog.records] == ["turns are no longer recorded in /dev/full: No space left on device"]
