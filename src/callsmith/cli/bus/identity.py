"""`callsmith bus id`: by which id other nodes know this one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from callsmith.bus.trust.identity import Identity

IdentityOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--identity", help="The file with this node's key. Default: node.pem in the config folder.", show_default=False),
]


def show_id(identity: IdentityOption = None) -> None:
    """Print the id of this node, which others put into their settings. Its key is made on first use.

    Example: callsmith bus id
    """
    typer.echo(open_identity(identity).node_id)


def open_identity(path: Path | None) -> "Identity":
    """The identity of this node: in this file, or in the config folder."""
    from callsmith.bus.trust.identity import load_identity

    return load_identity(identity_file(path))


def identity_file(path: Path | None) -> Path:
    from callsmith.models.plugins import config_folder

    return path or config_folder() / "node.pem"
