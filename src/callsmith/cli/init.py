"""`callsmith init`: a settings file to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from callsmith.cli.inputs.options import example
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import UsageError

app = typer.Typer()


@app.command(epilog=example("callsmith init", "callsmith init --output callsmith.toml"))
def init(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, help="Where it is written. Default: callsmith.toml in the config folder."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write it although there is one; that one is lost.")] = False,
) -> None:
    """Write a settings file that has every setting, its default and what it is for, in comments."""
    from callsmith.cli.inputs.options import require_server
    from callsmith.models.plugins import config_folder

    require_server()
    from callsmith.server.settings_template import settings_template

    path = output or config_folder() / "callsmith.toml"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(settings_template())
    except FileExistsError as error:
        raise UsageError(f"{path} exists already: --force replaces it, --output writes elsewhere") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    echo(f"Written: {path}")
    serve = "callsmith serve" if output is None else f"callsmith serve --config {path}"
    echo(f"Next: edit it, see what is in effect with `{serve} --print-config`, and start with `{serve}`.")
