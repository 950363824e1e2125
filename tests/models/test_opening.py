"""Which engine a model is opened with."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import callsmith.engines
from callsmith.core.errors import UnknownName
from callsmith.engines.scripted import Scripted
from callsmith.models import open_model
from callsmith.models.opening import Options, describe_model, split_spec
from tests.small import SMALL, shallow_file, small_file


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


@pytest.mark.usefixtures("plugged")
async def test_an_engine_is_closed_where_no_model_can_be_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Scripted] = []

    async def close(engine: Scripted) -> None:
        closed.append(engine)

    monkeypatch.setattr(Scripted, "close", close)
    with pytest.raises(UnknownName, match="unknown format"):
        open_model("theirs:Hello!", Options(format="nobody's"))
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("spec", "scheme", "rest"),
    [
        ("smollm2-135m", "llama", "smollm2-135m"),
        ("llama:/models/x.gguf", "llama", "/models/x.gguf"),
        ("/models/a:b.gguf", "llama", "/models/a:b.gguf"),
        ("./models:v1/x.gguf", "llama", "./models:v1/x.gguf"),
        (r"C:\models\x.gguf", "llama", r"C:\models\x.gguf"),
        ("c:/models/x.gguf", "llama", "c:/models/x.gguf"),
        ("org/repo/file.gguf", "llama", "org/repo/file.gguf"),
        ("hf:org/repo:file.gguf", "llama", "hf:org/repo:file.gguf"),
        ("scripted:Hello: you", "scripted", "Hello: you"),
        ("theirs:http://localhost:8000/v1", "theirs", "http://localhost:8000/v1"),
    ],
)
@pytest.mark.usefixtures("plugged")
def test_a_spec_names_an_engine_or_weights(spec: str, scheme: str, rest: str) -> None:
    assert split_spec(spec) == (scheme, rest)


def test_a_file_whose_name_looks_like_a_scheme_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="unknown engine 'mine'"):
        split_spec("mine:v1.gguf")
    (tmp_path / "mine:v1.gguf").touch()
    assert split_spec("mine:v1.gguf") == ("llama", "mine:v1.gguf")


@pytest.mark.weights
def test_the_weights_of_the_catalogue_have_its_habits_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").symlink_to(small_file())
    assert describe_model(str(tmp_path / "mine.gguf")) == describe_model(SMALL)
    assert describe_model(str(shallow_file())).sampling != describe_model(SMALL).sampling  # of the same name, but other ones
