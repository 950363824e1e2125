"""Which engine a model is opened with."""

from importlib.metadata import EntryPoint

import pytest

import callsmith.engines
from callsmith.core.errors import UnknownName
from callsmith.engines.scripted import Scripted
from callsmith.models import open_model


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry(EntryPoint):
        def load(self) -> object:
            return lambda rest: Scripted([rest])

    entry = Entry("theirs", "their.package:open", "callsmith.engines")
    monkeypatch.setattr(callsmith.engines, "entry_points", lambda group: [entry] if group == entry.group else [])


@pytest.mark.usefixtures("plugged")
def test_an_engine_of_another_package_is_opened_by_its_scheme() -> None:
    engine = open_model("theirs:Hello!").engine
    assert isinstance(engine, Scripted)
    assert engine._replies == ("Hello!",)


@pytest.mark.usefixtures("plugged")
def test_a_scheme_that_nobody_has_is_no_engine() -> None:
    for spec in ("nobody:x", "theirs"):
        with pytest.raises(UnknownName):
            open_model(spec)
