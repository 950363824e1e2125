"""`callsmith bus`: this node of the capability bus: what it offers and calls, its identity and its tokens."""

from callsmith.cli.bus.calls import call_capability, chat_over_bus, list_offers, offer_capabilities
from callsmith.cli.bus.node import IdentityCommand, NodeCommand, OfferCommand, show_id
from callsmith.cli.bus.tokens import tokens_app
from callsmith.cli.inputs.options import example, make_group

app = make_group(
    "bus",
    "The capability bus: offer and call capabilities of several machines.",
    "callsmith bus list --bus nats://127.0.0.1:4222",
    needs_command=True,
)
app.command("list", cls=NodeCommand, epilog=example("callsmith bus list --bus nats://10.0.0.5:4222"))(list_offers)
app.command(
    "call",
    cls=NodeCommand,
    epilog=example('callsmith bus call rag.query@1.0 \'{"params": {"corpus": "village"}, "input": {"query": "hall"}}\''),
)(call_capability)
app.command(
    "chat",
    cls=NodeCommand,
    epilog=example('callsmith bus chat "When does the hall open?" --tool search_corpus --tool list_corpora'),
)(chat_over_bus)
app.command(
    "offer",
    cls=OfferCommand,
    epilog=example("callsmith bus offer --corpus village=./documents --tools mytools --bus nats://10.0.0.5:4222"),
)(offer_capabilities)
app.command("id", cls=IdentityCommand, epilog=example("callsmith bus id"))(show_id)
app.add_typer(tokens_app, name="token", epilog=example("callsmith bus token show - < token.txt"))
