"""The guard sees what has become many times slower; measurements are kept in one line a run, and drawn."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import guard, measure
from callsmith.formats import format_named
from callsmith.formats.reader.reader import Reader

_feed, _close = Reader.feed, Reader.close


def _judged(monkeypatch: pytest.MonkeyPatch, what: Any) -> list[guard.Found]:
    """One check, of one format."""
    monkeypatch.setattr(guard, "formats", lambda: {"hermes": format_named("hermes")})
    (check,) = (item for item in guard.CHECKS if item.measure is what)
    return guard.judge([check])


@pytest.mark.req("R182")
def test_the_guard_sees_a_reader_that_has_become_a_hundred_times_slower(monkeypatch: pytest.MonkeyPatch):
    def slow(self: Reader, piece: str) -> Any:
        sum(range(60_000))
        return _feed(self, piece)

    assert all(result.is_kept for result in _judged(monkeypatch, guard.read_beside_json))
    monkeypatch.setattr(Reader, "feed", slow)
    (result,) = _judged(monkeypatch, guard.read_beside_json)
    assert not result.is_kept and "json.loads" in str(result) and "the limit" in str(result)


def test_the_guard_sees_a_reader_that_goes_over_the_whole_text_again_for_each_piece(monkeypatch: pytest.MonkeyPatch):
    spent, pieces = 0.0, 0

    def reading(cost: Callable[[int], int]) -> Any:
        def feed(self: Reader, piece: str) -> Any:
            nonlocal spent, pieces
            pieces += 1
            spent += cost(pieces)
            return _feed(self, piece)

        return feed

    def close(self: Reader) -> Any:
        nonlocal pieces
        pieces = 0
        return _close(self)

    monkeypatch.setattr(guard.time, "process_time", lambda: spent)  # a clock on which nothing but pieces takes time
    monkeypatch.setattr(Reader, "close", close)
    monkeypatch.setattr(Reader, "feed", reading(lambda number: 1))
    assert all(result.is_kept for result in _judged(monkeypatch, guard.read_longer))
    monkeypatch.setattr(Reader, "feed", reading(lambda number: number))
    assert not any(result.is_kept for result in _judged(monkeypatch, guard.read_longer))


def test_the_guard_ends_with_what_is_too_slow_and_measures_again_what_was_slow_once(monkeypatch: pytest.MonkeyPatch):
    once = iter((9.0, 1.0))
    checks = (guard.Check("slow once", lambda: next(once), 1, 5), guard.Check("always slow", lambda: 9.0, 1, 5))
    monkeypatch.setattr(guard, "CHECKS", checks)
    with pytest.raises(SystemExit) as raised:
        guard.main("")
    assert "always slow: 9, where 1 is usual and 5 the limit" in str(raised.value)
    assert "slow once" not in str(raised.value)


def test_measurements_of_a_run_are_one_line_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    passed_on = tmp_path / "passed_on"
    monkeypatch.setenv(measure.PASSED_ON, str(passed_on))
    monkeypatch.setattr(measure, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(measure, "PLOT", tmp_path / "history.svg")
    measure.compare("a call", "µs", [1.0, 2.0, 4.0], "them", [4.0, 4.0, 4.0], goal=1.5)
    measure.compare("requests", "a second", [30.0], "them", [10.0], more_is_better=True)
    measure.told("loop")
    measure.record(passed_on)
    (line,) = (tmp_path / "history.jsonl").read_text().splitlines()
    cost, rate = json.loads(line)["measurements"]
    assert (cost["ratio"], cost["low"], cost["high"], cost["ratio_is"]) == (2.0, 1.5, 3.0, "rival ÷ ours")
    assert (rate["ratio"], rate["ratio_is"], rate["benchmark"]) == (3.0, "ours ÷ rival", "loop")
    assert json.loads(line)["machine"]["cores"]


def test_the_plot_shows_how_ratios_have_moved_since_they_were_first_measured():
    def run(**ratios: float) -> list[Any]:
        return [{"benchmark": name, "name": "n", "rival": "r", "ratio": ratio} for name, ratio in ratios.items()]

    drawn = ET.fromstring(measure.drawn([run(loop=10), run(loop=5, bus=3)], "here"))
    points = [point.text for point in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert points == ["loop, 1: 1×", "loop, 2: 0.5×", "bus, 2: 1×"]
