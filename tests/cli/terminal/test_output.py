"""Commands print through one module, which leaves nothing in a text that a terminal would obey."""

import re
from pathlib import Path

import callsmith.cli

FOLDER = Path(callsmith.cli.__file__).parent


def test_no_command_prints_past_it() -> None:
    past = re.compile(r"typer\.(echo|secho)\(|(?<![\w.])print\(|click\.echo")
    sources = {path: path.read_text("utf-8") for path in FOLDER.rglob("*.py") if path.name != "output.py"}
    assert [str(path) for path, source in sources.items() if past.search(source)] == []
