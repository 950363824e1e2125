"""`callsmith bus`: this node of the capability bus, its identity and its tokens."""

import typer

from callsmith.cli.bus.identity import show_id
from callsmith.cli.bus.tokens import tokens_app

bus_app = typer.Typer(
    help="This node of the capability bus: its identity and its tokens.", rich_markup_mode=None, no_args_is_help=True
)
bus_app.command("id")(show_id)
bus_app.add_typer(tokens_app, name="token")
