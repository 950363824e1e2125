"""The command line, in process."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from callsmith.cli.main import app


class Outcome:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def callsmith() -> Callable[..., Outcome]:
    def run(*arguments: str, stdin: str | bytes | None = None) -> Outcome:
        result = CliRunner().invoke(app, arguments, input=stdin, env={"COLUMNS": "200", "NO_COLOR": "1"})
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run
