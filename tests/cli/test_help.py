"""The end of every command's help: an example that the command would take."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from callsmith.cli.main import app


def commands(command: Any, words: tuple[str, ...] = ("callsmith",)) -> Iterator[tuple[str, Any]]:
    yield " ".join(words), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


EVERY = dict(commands(get_command(app)))


@pytest.mark.parametrize("name", EVERY)
def test_every_help_ends_with_an_example_that_parses(name: str):
    lines = [line.strip() for line in (EVERY[name].epilog or "").splitlines() if line.startswith("  ")]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" < ")[0])
        assert line.startswith("callsmith ")
        if hasattr(EVERY[name], "commands"):
            called = max((known for known in EVERY if line.startswith(known)), key=len)
        else:
            called = name
            assert line.startswith(name)
        command = EVERY[called]
        context = command.context_class(command, info_name=called)
        command.make_parser(context).parse_args(words[len(called.split()) :])  # an unknown option or argument is an error


def test_the_help_of_settings_names_no_default_that_is_nothing():
    said = CliRunner().invoke(app, ["serve", "--help"]).output
    assert "Default: 30." in said
    assert "Default: ." not in said
