"""The worker processes in which grammars are tried, shared by requests that come and go."""

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llguidance")

from callsmith.engines.decoding import trials
from callsmith.engines.decoding.trials import Cancellation, Trials

SIMPLE = 'start: "a"'


def test_pools_that_are_made_at_the_same_time_all_have_their_stack_and_leave_others_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, begun = [0], list[int]()  # of the stack of the next thread, by default 0; and of those that were begun

    def set_slowly(size: int) -> int:
        sizes.append(size)
        before = threading.stack_size(size)
        time.sleep(0.01)
        return before

    class Pool(ThreadPoolExecutor):
        def submit(self, *args: Any, **options: Any) -> Any:
            begun.append(sizes[-1])
            return super().submit(*args, **options)

    monkeypatch.setattr(trials, "stack_size", set_slowly)
    monkeypatch.setattr(trials, "ThreadPoolExecutor", Pool)
    makers = [threading.Thread(target=lambda: trials.pool_with_stack(2, "test").shutdown()) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert threading.stack_size(0) == 0
    assert begun == [trials.STACK] * 8


@pytest.fixture
def tried() -> Iterator[Trials]:
    workers = Trials({}, [])
    yield workers
    workers.close()


def test_who_leaves_just_as_a_grammar_has_been_tried_takes_no_worker_from_the_next(
    tried: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = trials._ask

    def ask_and_leave(worker: "subprocess.Popen[bytes]", lark: str) -> Any:
        reply = ask(worker, lark)
        leaving.set()
        return reply

    for _ in range(5):
        leaving = Cancellation()
        with monkeypatch.context() as patch:
            patch.setattr(trials, "_ask", ask_and_leave)
            tried.run(SIMPLE, leaving)
        assert not tried.run(SIMPLE, Cancellation()).error


def test_modules_of_the_user_take_no_place_of_pythons_own(tried: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert not tried.run(SIMPLE, Cancellation()).error
