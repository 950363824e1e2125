"""`callsmith bus token`: tokens that let other nodes make some calls for some time."""

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.bus.node import IdentityCommand, bus_settings, open_identity
from callsmith.cli.inputs.options import example, pairs
from callsmith.cli.terminal.output import echo, echo_json
from callsmith.core.errors import UsageError

if TYPE_CHECKING:
    from callsmith.bus.trust.tokens import Token

tokens_app = typer.Typer(help="Tokens that let other nodes make some calls.", rich_markup_mode=None, no_args_is_help=True)


@tokens_app.command(
    "issue",
    cls=IdentityCommand,
    epilog=example(
        "callsmith bus token issue --subject ed25519:Gb9… --capability rag.query@1.0 --param corpus=village --lasts 8h"
    ),
)
def issue_token(
    context: typer.Context,
    subject: Annotated[str, typer.Option("--subject", help="The id of the node that may use it (callsmith bus id).")],
    capabilities: Annotated[list[str], typer.Option("--capability", help="What it may call, as in rag.query@1.0.")],
    audience: Annotated[
        str, typer.Option("--audience", help="The node or community that accepts it. Default: this node.", show_default=False)
    ] = "",
    params: Annotated[
        list[str] | None,
        typer.Option(
            "--param", metavar="NAME=VALUE", help="The only value allowed of a parameter; again for more.", show_default=False
        ),
    ] = None,
    lasts: Annotated[str, typer.Option("--lasts", help="How long it is valid, at most 24h.")] = "1h",
    calls: Annotated[int | None, typer.Option("--calls", help="How many calls it is good for.", show_default=False)] = None,
    rate: Annotated[int | None, typer.Option("--rate", help="How many calls a minute.", show_default=False)] = None,
) -> None:
    """Issue a token in the name of this node, and print it. Whoever accepts tokens of this node accepts it."""
    from callsmith.bus.trust.scopes import Scope
    from callsmith.bus.trust.tokens import issue
    from callsmith.core.types.quantities import parse_duration
    from callsmith.wire.capability.errors import BusError

    node = open_identity(bus_settings(context))
    try:
        seconds = parse_duration(lasts)
        scope = Scope(tuple(capabilities), _constraints(params), rate, calls)
        token = issue(node, subject=subject, audience=audience or node.node_id, scope=scope, seconds=seconds or 0)
    except ValueError as error:
        raise UsageError(f"--lasts: {error}") from error
    except BusError as error:
        raise UsageError(error.message) from error
    echo(token.text)


def _constraints(params: list[str] | None) -> dict[str, tuple[str, ...]]:
    allowed: dict[str, tuple[str, ...]] = {}
    for text in params or ():
        for name, value in pairs("--param", [text]).items():
            allowed[name] = (*allowed.get(name, ()), value)
    return allowed


@tokens_app.command("show", epilog=example("callsmith bus token show - < token.txt"))
def show_token(token: Annotated[str, typer.Argument(help="The token; - reads it from standard input.")]) -> None:
    """Show what a token says: who may do what, how often and until when. Says whether it is signed by its issuers."""
    from callsmith.bus.trust.scopes import write_scope
    from callsmith.bus.trust.tokens import check_links, check_signatures
    from callsmith.wire.capability.errors import BusError

    read = _read(token)
    try:
        check_signatures(read)
        check_links(read)
        state = "expired" if read.exp <= time.time() else "valid, if its first issuer is trusted"
    except BusError as error:
        state = f"invalid: {error.message}"
    links = [
        {"id": link.jti, "issuer": link.iss, "subject": link.sub, "audience": link.aud, "scope": write_scope(link.scope)}
        | {"valid_from": _date(link.nbf), "expires": _date(link.exp)}
        for link in read.links()
    ]
    echo_json({"state": state, "links": links})


@tokens_app.command("revoke", cls=IdentityCommand, epilog=example("callsmith bus token revoke 01JD3M8ZQ4V6T0K9XW5R2C7HNP"))
def revoke_token(
    context: typer.Context,
    token: Annotated[str, typer.Argument(help="The token, its id, or the id of a node; - reads it from standard input.")],
) -> None:
    """Revoke a token and all that were made from it, or with the id of a node all tokens of that issuer.

    It takes effect with the next call, at the nodes that read revocations.jsonl, which stands beside this node's key.
    """
    from callsmith.bus.trust.identity import is_node_id
    from callsmith.bus.trust.revocations import RevocationFile
    from callsmith.bus.trust.tokens import PREFIX
    from callsmith.server.parts.bus.node import revocation_file

    text = _text(token)
    kind = "issuer" if is_node_id(text) else "token"
    id = _read(text).jti if text.startswith(PREFIX) else text
    RevocationFile(revocation_file(bus_settings(context))).revoke(kind, id)
    echo(f"revoked: {kind} {id}")


def _date(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # in the year 10000 or later
        return str(seconds)


def _text(argument: str) -> str:
    return sys.stdin.read().strip() if argument == "-" else argument


def _read(argument: str) -> "Token":
    from callsmith.bus.trust.tokens import read_token
    from callsmith.wire.capability.errors import BusError

    try:
        return read_token(_text(argument))
    except BusError as error:
        raise UsageError(error.message) from error
