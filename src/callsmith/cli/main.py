"""`callsmith`: the commands, and how their errors are reported.

A module or package in this folder that has an `app` is a command, or a group of commands: there is no list to edit.
"""

import gc
import sys
from importlib import import_module
from io import TextIOWrapper
from pkgutil import iter_modules
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import callsmith.cli
from callsmith.cli.inputs.options import example
from callsmith.cli.terminal.output import echo, echo_lines, guard_warnings
from callsmith.core.errors import CallsmithError, UsageError

# Modules are no garbage: to look for some at every 700 objects, as is usual, takes a tenth of the time until a server listens.
gc.set_threshold(50_000, 10, 10)

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended


class Commands(TyperGroup):
    """The commands. Errors of callsmith's own are printed in a line or two, without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except CallsmithError as error:
            if ctx.params.get("debug"):
                raise
            echo_lines(f"error: {error}", err=True, fg="red")
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
        except (OSError, RuntimeError) as error:
            homeless = isinstance(error, RuntimeError) and "home directory" in str(error)  # as pathlib says it
            if ctx.params.get("debug") or isinstance(error, BrokenPipeError) or not (homeless or isinstance(error, OSError)):
                raise
            hint = "\nSet HOME to a folder." if homeless else ""
            echo_lines(f"error: {error}{hint}", err=True, fg="red")
            raise typer.Exit(1) from None


app = typer.Typer(
    name="callsmith",
    cls=Commands,
    help="Any model, any client, every tool call valid.",
    epilog=example("callsmith init", "callsmith chat", "callsmith serve"),
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: it is there at once
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        echo(f"callsmith {version('callsmith')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="CALLSMITH_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Any model, any client, every tool call valid."""
    guard_warnings()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":  # an encoding that has not every letter
            stream.reconfigure(errors="backslashreplace")


for name in sorted(module.name for module in iter_modules(callsmith.cli.__path__)):
    if name != "main" and (commands := getattr(import_module(f"callsmith.cli.{name}"), "app", None)):
        app.add_typer(commands)
