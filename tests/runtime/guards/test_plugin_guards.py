"""Guards that do not come with callsmith: named by where they are, offered by packages, and chosen by presets."""

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Text
from callsmith.core.values import Request
from callsmith.models.presets import presets_in
from callsmith.runtime.guards import guard
from callsmith.runtime.guards.guard import Guard
from callsmith.runtime.guards.guards import guard_model
from tests.fakes import ASKED, FakeModel, says

HERE = f"{__name__}:Loud"


class Loud(Guard):
    """Says everything in capitals."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        async for event in self._model.stream(request):
            yield replace(event, text=event.text.upper()) if isinstance(event, Text) else event


async def said(model: object, *guards: str) -> str:
    events = [event async for event in guard_model(model, guards).stream(ASKED)]  # pyright: ignore[reportArgumentType]
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers a guard called loud."""
    folder = tmp_path / "loud-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[callsmith.guards]\nloud = {HERE}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    guard.installed_guards.cache_clear()
    yield
    guard.installed_guards.cache_clear()


async def test_a_guard_is_named_by_where_it_is_defined():
    assert await said(FakeModel(says("hello")), HERE) == "HELLO"


async def test_a_guard_of_a_package_is_known_by_its_name(package: None):
    assert await said(FakeModel(says("hello")), "loud", "small") == "HELLO"


async def test_a_preset_in_a_file_may_name_one(tmp_path: Path):
    (preset,) = presets_in(f'[mine]\nmodels = ["mine*"]\nformats = ["hermes"]\nguards = ["{HERE}"]\n', tmp_path)
    assert await said(FakeModel(says("hello")), *preset.guards) == "HELLO"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no.such.module:Guard", "cannot be loaded"),
        (f"{__name__}:Missing", "cannot be loaded"),
        (f"{__name__}:HERE", "not a callable"),
        ("nowhere", "guard"),
    ],
)
async def test_one_that_is_not_there_is_said_so(name: str, why: str):
    with pytest.raises(UsageError, match=why):
        await said(FakeModel(says("hello")), name)
