"""What all tests share: how many cases are generated, the order on several workers, and one model with real weights."""

import asyncio
import gc
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from callsmith.models.local import LocalModel
from tests.effort import PROFILE, PROFILES
from tests.small import open_shallow, open_small

os.environ.setdefault("CALLSMITH_LIBLLAMA", "pinned")  # whatever else has been fetched on this machine

for name, examples in PROFILES.items():  # no deadline: cases are judged by what they find, and not by how busy the machine is
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what hypothesis generates, and put first what uses the model, so that one worker gets all of it (see make test)."""
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.function):
            item.add_marker("generated")
    items.sort(key=lambda item: not {"small", "shallow"} & {*getattr(item, "fixturenames", ())})


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what stays until the end: thousands of tests, and all that was imported."""
    gc.collect()
    gc.freeze()


class Clock:
    """The wall clock, `time.time`, which goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = time.time()

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stops the wall clock. Timers of the event loop go on."""
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return clock


@pytest.fixture(scope="session")
def small() -> Iterator[LocalModel]:
    """A real model, too small to call anything it need not. Opened once, and never closed by a test. `shallow` is quicker."""
    pytest.importorskip("llguidance")
    pytest.importorskip("xllamacpp")
    model = open_small(context=2048)
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="session")
def shallow() -> Iterator[LocalModel]:
    """The same model with two of its layers: for all that does not ask for sense, in a fraction of the time."""
    pytest.importorskip("llguidance")
    pytest.importorskip("xllamacpp")
    model = open_shallow(context=2048)
    yield model
    asyncio.run(model.close())
