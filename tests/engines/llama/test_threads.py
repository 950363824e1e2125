"""Threads that decode, by what others leave free."""

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.engines.llama import threads
from callsmith.engines.llama.gguf import LlamaContext, Weights
from callsmith.engines.llama.libllama import load
from callsmith.engines.llama.threads import FreeThreads, busy_seconds, most_threads
from tests.small import shallow_file


class Machine:
    """A machine on which processes use so many cores for so long."""

    def __init__(self) -> None:
        self.now, self.busy, self.own = 100.0, 1000.0, 10.0
        self.looks = 0

    def run(self, seconds: float, *, own: float, others: float) -> None:
        self.now += seconds
        self.own += own * seconds
        self.busy += (own + others) * seconds

    def look(self) -> float:
        self.looks += 1
        return self.busy


def free_threads(machine: Machine) -> FreeThreads:
    return FreeThreads(busy=machine.look, own=lambda: machine.own, clock=lambda: machine.now)


@pytest.mark.parametrize(
    ("cores", "own", "others", "expected"),
    [
        (2, 2.0, 0.0, 2),
        (2, 0.0, 0.4, 2),
        (2, 1.3, 0.7, 1),  # they want a whole core, and two of our threads leave them two thirds of it
        (2, 0.0, 2.0, 1),
        (4, 3.0, 1.0, 3),
        (4, 1.0, 3.0, 2),  # at least half
        (1, 0.5, 0.5, 1),
        (16, 8.0, 6.0, 8),  # half of the cores are twins of the others: six others find room beside eight threads
        (16, 8.0, 8.0, 8),
        (16, 4.0, 12.0, 4),
    ],
)
def test_there_are_as_many_threads_as_others_leave_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, own: float, others: float, expected: int
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: cores)
    machine = Machine()
    free = free_threads(machine)
    machine.run(1.0, own=own, others=others)
    assert free.count() == expected


def test_what_was_so_at_the_start_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind an installation, which keeps the machine busy for a while."""
    monkeypatch.setattr(threads, "cores", lambda: 2)
    machine = Machine()
    free = free_threads(machine)
    counts = [free.count()]  # nothing is known yet
    for others in (1.0, 1.0, 0.0, 0.0, 1.0):
        machine.run(0.6, own=1.0, others=others)
        counts.append(free.count())
    assert counts == [1, 1, 1, 2, 2, 1]


def test_it_is_looked_at_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    machine = Machine()
    free = free_threads(machine)
    for _ in range(100):
        machine.run(0.01, own=1.0, others=1.0)
        free.count()
    assert 3 <= machine.looks <= 5


def test_where_nothing_is_known_of_others_all_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_STAT", Path("/nowhere/stat"))
    assert busy_seconds() is None
    monkeypatch.setattr(threads, "cores", lambda: 4)
    clock = iter(range(100))
    free = FreeThreads(busy=busy_seconds, clock=lambda: next(clock))
    assert [free.count() for _ in range(3)] == [4, 4, 4]


@pytest.mark.parametrize(("cores", "most"), [(1, 1), (2, 2), (4, 4), (6, 3), (64, 32)])
def test_the_second_half_of_a_core_adds_nothing(monkeypatch: pytest.MonkeyPatch, cores: int, most: int) -> None:
    monkeypatch.setattr(threads, "cores", lambda: cores)
    assert most_threads() == most


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux says how busy the processors are")
def test_work_of_this_process_is_seen() -> None:
    began = busy_seconds()
    worked = time.process_time()
    while time.process_time() - worked < 0.3:
        pass
    ended = busy_seconds()
    assert began is not None and ended is not None
    assert ended - began >= 0.2


def test_only_processors_that_it_may_use_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("only Linux has it")
    (tmp_path / "stat").write_text(
        "cpu  900 0 0 0 0 0 0 0 0 0\ncpu0 100 20 30 1000 500 4 3 43 7 7\ncpu1 800 0 0 0 0 0 0 0 0 0\nintr 5\n"
    )
    monkeypatch.setattr(threads, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert busy_seconds() == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.weights
def test_a_context_follows_unless_it_has_to_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights(load(), shallow_file())
    counts = iter([2, 1, 1, 2])
    calls: list[int] = []
    library = weights.library.c
    set_threads = library.llama_set_n_threads

    def record(pointer: int, single: int, batch: int) -> None:
        assert single == batch
        calls.append(single)
        set_threads(pointer, single, batch)

    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(FreeThreads, "count", lambda self: next(counts))
    monkeypatch.setattr(library, "llama_set_n_threads", record)
    context = LlamaContext(weights, size=64)
    for position, exact in enumerate([False, False, False, True, False]):
        assert context.decode([(5, position, 0, True)], exact=exact)
    context.close()
    weights.close()
    assert calls == [1, 2]


@pytest.mark.weights
def test_threads_that_were_asked_for_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights(load(), shallow_file())
    monkeypatch.setattr(FreeThreads, "count", lambda self: pytest.fail("it looked"))
    context = LlamaContext(weights, size=64, threads=1)
    assert context.decode([(5, 0, 0, True)])
    context.close()
    weights.close()
