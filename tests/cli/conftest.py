"""The command line, in process."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from callsmith import formats
from callsmith.cli.main import app

CALL = "<tool_call>\n<name>{}</name>\n<arguments>{}</arguments>\n</tool_call>"


class Outcome:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats that a command registers are forgotten after the test."""
    monkeypatch.setattr(formats, "_registered", {})


@pytest.fixture(scope="session")
def callsmith() -> Callable[..., Outcome]:
    def run(*arguments: str, stdin: str | bytes | None = None) -> Outcome:
        result = CliRunner().invoke(app, arguments, input=stdin, env={"COLUMNS": "200", "NO_COLOR": "1"})
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def script(tmp_path: Path):
    """A model that gives these replies, one after another."""

    def write(*replies: str) -> str:
        path = tmp_path / "replies.jsonl"
        path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), "utf-8")
        return f"scripted:{path}"

    return write
