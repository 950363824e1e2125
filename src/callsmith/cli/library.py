"""`callsmith library`: the llama.cpp library that runs the models."""

from typing import Annotated

import typer

library_app = typer.Typer(
    help="The llama.cpp library that runs the models; doctor says which is used.", no_args_is_help=True, rich_markup_mode=None
)


@library_app.callback()
def library() -> None:
    """Have `fetch` be a command of its own, although it is the only one."""


@library_app.command("fetch")
def fetch(force: Annotated[bool, typer.Option("--force", help="Fetch it again, even if it is there.")] = False) -> None:
    """Fetch a library that is faster on this machine, if one is known. Models use it from then on."""
    from callsmith.cli.terminal.fetching import size
    from callsmith.engines import find_engine
    from callsmith.engines.llama_library import faster_library, library_in
    from callsmith.models.library import fetch_library

    find_engine("llama")  # says so where its extra is missing
    known = faster_library()
    if known is None:
        typer.echo("No library is known that is faster here than the one that callsmith[llama] installs.", err=True)
        return
    if force or not library_in(known.folder):
        typer.echo(f"Fetching {known.package} (llama.cpp), {size(known.size)}, into {known.folder}", err=True)
    typer.echo(fetch_library(known, force=force))
