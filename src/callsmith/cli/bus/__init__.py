"""`callsmith bus`: this node of the capability bus: what it offers and calls, its identity and its tokens."""

import typer

from callsmith.cli.bus.calls import call_capability, chat_over_bus, list_offers
from callsmith.cli.bus.identity import IdentityCommand, show_id
from callsmith.cli.bus.node import NodeCommand, OfferCommand
from callsmith.cli.bus.offer import offer_capabilities
from callsmith.cli.bus.tokens import tokens_app

bus_app = typer.Typer(
    help="The capability bus: offer and call capabilities of several machines.", rich_markup_mode=None, no_args_is_help=True
)
bus_app.command("list", cls=NodeCommand)(list_offers)
bus_app.command("call", cls=NodeCommand)(call_capability)
bus_app.command("chat", cls=NodeCommand)(chat_over_bus)
bus_app.command("offer", cls=OfferCommand)(offer_capabilities)
bus_app.command("id", cls=IdentityCommand)(show_id)
bus_app.add_typer(tokens_app, name="token")
