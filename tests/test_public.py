"""The front door: few names, in order, and quick to open."""

import subprocess
import sys
from pathlib import Path

import pytest

import callsmith

HEAVY = ("pydantic", "jinja2", "numpy", "starlette", "asyncio", "jsonschema_rs", "rich", "typer")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_there_are_at_most_forty_public_names_in_order():
    assert len(callsmith.__all__) <= 40
    assert callsmith.__all__ == sorted(set(callsmith.__all__))


@pytest.mark.parametrize("name", callsmith.__all__)
def test_every_public_name_can_be_imported_and_listed(name: str):
    assert getattr(callsmith, name) is not None
    assert name in dir(callsmith)


def test_star_import_gives_the_public_names():
    assert run("from callsmith import *; print(sorted(n for n in dir() if n[0] != '_'))").strip() == str(callsmith.__all__)


def test_type_checkers_see_every_public_name():
    source = Path(callsmith.__file__).read_text("utf-8")
    declared = source.partition("if TYPE_CHECKING:")[2].partition("__all__")[0].replace(",", " ").split()
    assert set(callsmith.__all__) <= set(declared)
    assert (Path(callsmith.__file__).parent / "py.typed").exists()


def test_importing_callsmith_loads_few_modules():
    """Fewer than sixty more than Python itself: that is what keeps it far below 150 milliseconds."""
    loaded = run("import sys; before = len(sys.modules); import callsmith; print(len(sys.modules) - before)")
    assert int(loaded) < 60


def test_importing_callsmith_loads_nothing_heavy():
    assert run(f"import sys, callsmith; print([name for name in {HEAVY} if name in sys.modules])").strip() == "[]"


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Tol'"):
        _ = callsmith.Tol


def test_the_version_is_the_one_that_is_installed():
    assert callsmith.__version__.count(".") == 2
