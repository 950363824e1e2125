"""A real build for the tests of this folder, and a machine that is described in files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from callsmith.engines.llama_builds.locate import VARIABLE
from tests.real_build import CPU_BUILD, install_once


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which the build for this processor is installed."""
    if CPU_BUILD is None:
        pytest.skip("no build of llama.cpp is known for this processor")
    folder = tmp_path_factory.mktemp("real")
    install_once(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """A file system with these files in it."""

    def write(files: dict[str, str]) -> Path:
        for name, content in files.items():
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
        (tmp_path / "root").mkdir(exist_ok=True)
        return tmp_path / "root"

    return write
