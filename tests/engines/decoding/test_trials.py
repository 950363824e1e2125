"""The worker processes in which grammars are tried, shared by requests that come and go."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("llguidance")

from callsmith.engines.decoding import trials
from callsmith.engines.decoding.trials import Cancellation, Trials

SIMPLE = 'start: "a"'


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
