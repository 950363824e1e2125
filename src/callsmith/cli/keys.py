"""`callsmith keys`: keys that open a server."""

import json
import re
from typing import Annotated

import typer

from callsmith.cli.inputs.options import example, make_group, require_server
from callsmith.cli.terminal.output import echo, echo_lines
from callsmith.core.errors import UsageError

app = make_group("keys", "Keys that open a server.", "callsmith keys new alice", needs_command=True)


@app.callback()
def keys() -> None:
    """Keys that open a server."""


@app.command("new", epilog=example("callsmith keys new alice"))
def new(
    name: Annotated[str, typer.Argument(help="Whose key it is: letters, digits, - and _.")],
    models: Annotated[list[str] | None, typer.Option("--model", help="Models it opens, as shell patterns. Default: all.")] = None,
    tools: Annotated[list[str] | None, typer.Option("--tool", help="Tools of the server it opens. Default: all.")] = None,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="admin: sees all of /health and /metrics, drains upstreams; approver: decides on calls of others. Default: none",
        ),
    ] = None,
) -> None:
    """Make a key. It is shown this once; the lines below it go into the server's settings, which keep only its hash."""
    require_server()
    from callsmith.server.http.keys import new_key
    from callsmith.server.settings import Key

    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise UsageError(f"{name!r} is no name for a key: use letters, digits, - and _", field="name")
    key, digest = new_key()
    Key(digest, scopes=tuple(scopes or ()))  # an unknown scope is an error before anything is shown
    echo_lines(f"The key, shown this once:\n\n  {key}\n\nFor callsmith.toml:\n")
    echo_lines(f'[keys.{name}]\nsha256 = "{digest}"')
    for part, patterns in (("models", models), ("tools", tools), ("scopes", scopes)):
        if patterns:
            echo(f"{part} = {json.dumps(patterns)}")
