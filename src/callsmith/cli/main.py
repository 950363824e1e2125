"""`callsmith`: the commands, and how their errors are reported."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from callsmith.cli.bus import bus_app
from callsmith.cli.chat import ChatCommand, chat
from callsmith.cli.doctor import DoctorCommand, doctor
from callsmith.cli.engines import engines_app
from callsmith.cli.evals.check import check
from callsmith.cli.formats import formats_app
from callsmith.cli.grammar import grammar
from callsmith.cli.inputs.setting_options import SettingsCommand
from callsmith.cli.keys import keys_app
from callsmith.cli.mcp import McpCommand, mcp
from callsmith.cli.models import models_app
from callsmith.cli.parse import parse
from callsmith.cli.serve import serve
from callsmith.cli.tools import tools_app
from callsmith.core.errors import CallsmithError, UsageError

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended


class Commands(TyperGroup):
    """The commands. Errors of callsmith's own are printed in a line or two, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except CallsmithError as error:
            if ctx.params.get("debug"):
                raise
            typer.secho(f"error: {error}", err=True, fg="red")
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


app = typer.Typer(
    name="callsmith",
    cls=Commands,
    help="Any model, any client, every tool call valid.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it is there at once
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"callsmith {version('callsmith')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="CALLSMITH_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Any model, any client, every tool call valid."""


app.command(cls=SettingsCommand)(serve)
app.command(cls=ChatCommand)(chat)
app.command()(check)
app.command()(parse)
app.command()(grammar)
app.command(cls=DoctorCommand)(doctor)
app.command(cls=McpCommand)(mcp)
app.add_typer(bus_app, name="bus")
app.add_typer(engines_app, name="engines")
app.add_typer(formats_app, name="formats")
app.add_typer(keys_app, name="keys")
app.add_typer(models_app, name="models")
app.add_typer(tools_app, name="tools")
