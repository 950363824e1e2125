"""The commands as a whole: help, versions, and how what goes wrong is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from callsmith.core.errors import UnknownName

COMMANDS = [(), ("serve",), ("chat",), ("parse",), ("grammar",), ("formats",), ("formats", "detect"), ("models",)]
COMMANDS += [("models", "fetch"), ("models", "verify")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(callsmith, command: tuple[str, ...]):
    result = callsmith(*command, "--help")
    assert result.code == 0
    assert "Usage: " in result.out


def test_help_loads_nothing_heavy():
    heavy = (
        "asyncio",
        "callsmith.core.values",
        "importlib.metadata",
        "jinja2",
        "numpy",
        "pydantic",
        "starlette",
        "uvicorn",
        "jsonschema_rs",
    )
    code = (
        "import io, sys; from callsmith.cli.main import app\n"
        "sys.argv, sys.stdout, output = ['callsmith', '--help'], io.StringIO(), sys.stdout\n"
        "try: app()\nexcept SystemExit as ended: assert not ended.code\n"
        "assert 'Usage' in sys.stdout.getvalue()\n"
        f"print([name for name in {heavy} if name in sys.modules], file=output)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_version_is_told_by_the_module_and_by_the_command(callsmith):
    module = subprocess.run([sys.executable, "-m", "callsmith", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == callsmith("--version").out
    assert module.stdout.startswith("callsmith ")


def test_a_usage_error_is_one_line_on_stderr_and_exit_code_2(callsmith):
    result = callsmith("parse", "--format", "hermse", stdin="")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: unknown format 'hermse'; did you mean 'hermes'?\n"


def test_what_the_operator_must_mend_is_exit_code_1_with_a_hint(callsmith, tmp_path: Path):
    result = callsmith("chat", "--model", str(tmp_path / "missing.gguf"), "Hi")
    assert result.code == 1
    assert result.err.startswith("error: there is no file at ")


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_exception_itself(callsmith, monkeypatch: pytest.MonkeyPatch, how: str):
    if how == "environment":
        monkeypatch.setenv("CALLSMITH_DEBUG", "1")
    with pytest.raises(UnknownName):
        callsmith(*(["--debug"] if how == "option" else []), "parse", "--format", "hermse", stdin="")


def test_an_interrupt_ends_quietly_with_130(callsmith, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("callsmith.formats.format_named", interrupt)
    result = callsmith("parse", "--format", "hermes", stdin="")
    assert (result.code, result.out, result.err) == (130, "", "")
