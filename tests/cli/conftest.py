"""The command line, in process."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
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


def _heed_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def serving() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """The command, and the address it says it serves at."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "callsmith", "serve", "--port", "0", *arguments]
        # Whoever runs the tests in the background has SIGINT ignored, and a child would inherit that.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_sigint)
        started.append(process)
        assert process.stdout
        first = process.stdout.readline()
        return process, first.partition(" at ")[2].partition("/v1")[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()
