"""What all tests share: how many cases are generated, the order on several workers, and one model with real weights."""

import asyncio
import gc
import os
import time
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from callsmith.core.errors import MissingExtra
from callsmith.models.local import LocalModel
from tests.effort import PROFILE, PROFILES
from tests.small import open_shallow, open_small

ATTACKS = Path(__file__).parent / "attack"
SAMPLED = 3  # of so many cases of a test marked `sampled` one is tried, where not more is asked for

os.environ.setdefault("CALLSMITH_LIBLLAMA", "pinned")  # whatever else has been fetched on this machine

for name, examples in PROFILES.items():  # no deadline: cases are judged by what they find, and not by how busy the machine is
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by what tests are, draw of those that are sampled, and put first what uses the model: one worker gets all of it."""
    for item in items:
        if item.get_closest_marker("sampled") or (isinstance(item, pytest.Function) and is_hypothesis_test(item.function)):
            item.add_marker("generated")
        if item.path.parent == ATTACKS:
            item.add_marker("attack")
    draws = PROFILE == "default" and not config.option.keyword  # who names cases with -k wants them all
    left_out = {*left_out_of_samples(items)} if draws else set[pytest.Item]()
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not {"small", "shallow"} & {*getattr(item, "fixturenames", ())})


def left_out_of_samples(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test marked `sampled` all cases but every third; from another one on in each test, so that a format that one leaves
    out is tried by the next. Few cases were asked for by name, and stay."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, cases in tests.items():
        first = crc32(test.encode()) % SAMPLED
        yield from (case for number, case in enumerate(cases) if number % SAMPLED != first and len(cases) > SAMPLED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip what needs an engine that is not installed, as on machines where only the rest is tried."""
    try:
        return (yield)
    except (MissingExtra, ModuleNotFoundError) as error:
        if find_spec("xllamacpp") is not None or getattr(error, "extra", "llama") != "llama":
            raise
        pytest.skip(f"needs an engine: {error}")


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
