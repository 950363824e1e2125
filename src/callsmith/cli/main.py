"""`callsmith`: the commands, and how their errors are reported."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from callsmith.cli.bus import bus_app
from callsmith.cli.chat import ChatCommand, chat
from callsmith.cli.doctor import DoctorCommand, doctor
from callsmith.cli.engines import engines_app
from callsmith.cli.evals.check import check
from callsmith.cli.evals.eval import eval_app
from callsmith.cli.evals.tune import tune
from callsmith.cli.formats import formats_app
from callsmith.cli.grammar import grammar
from callsmith.cli.init import init
from callsmith.cli.inputs.examples import example
from callsmith.cli.inputs.setting_options import SettingsCommand
from callsmith.cli.keys import keys_app
from callsmith.cli.mcp import McpCommand, mcp
from callsmith.cli.models import models_app
from callsmith.cli.parse import parse
from callsmith.cli.serve import serve
from callsmith.cli.terminal.output import echo, echo_lines, guard_warnings
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
            echo_lines(f"error: {error}", err=True, fg="red")
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


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


app.command(
    cls=SettingsCommand,
    epilog=example(
        "callsmith serve --tools mytools", "callsmith serve --model big=qwen2.5-coder-1.5b --model small=smollm2-135m"
    ),
)(serve)
app.command(
    cls=ChatCommand,
    epilog=example("callsmith chat --tools mytools --save talk.json", 'callsmith chat "Summarise this." < notes.txt'),
)(chat)
app.command(epilog=example("callsmith check http://127.0.0.1:8000/v1 --junit report.xml"))(check)
app.command(epilog=example("callsmith tune qwen2.5-coder-1.5b --quick", "callsmith tune mine.gguf --cases mine.jsonl --store"))(
    tune
)
app.command(epilog=example("callsmith init", "callsmith init --output callsmith.toml"))(init)
app.command(epilog=example("callsmith parse --format hermes answer.txt"))(parse)
app.command(
    epilog=example(
        "callsmith grammar --tools tools.json --target gbnf", "callsmith grammar --jsonl schemas.jsonl > verdicts.jsonl"
    )
)(grammar)
app.command(cls=DoctorCommand, epilog=example("callsmith doctor --model qwen2.5-coder-1.5b"))(doctor)
app.command(
    cls=McpCommand, epilog=example("callsmith mcp --tools mytools", "callsmith mcp --tools mytools --http 127.0.0.1:8001")
)(mcp)
app.add_typer(bus_app, name="bus", epilog=example("callsmith bus list --bus nats://127.0.0.1:4222"))
app.add_typer(engines_app, name="engines", epilog=example("callsmith engines", "callsmith engines install"))
app.add_typer(
    eval_app, name="eval", epilog=example("callsmith eval --quick", "callsmith eval --quick --setup free --setup guarded")
)
app.add_typer(formats_app, name="formats", epilog=example("callsmith formats", "callsmith formats show hermes"))
app.add_typer(keys_app, name="keys", epilog=example("callsmith keys new alice"))
app.add_typer(models_app, name="models", epilog=example("callsmith models", "callsmith models fetch qwen2.5-coder-1.5b"))
app.add_typer(tools_app, name="tools", epilog=example("callsmith tools list --tools mytools"))
