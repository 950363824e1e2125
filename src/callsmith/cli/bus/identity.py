"""`callsmith bus id`: by which id other nodes know this one."""

from typing import TYPE_CHECKING

import typer

from callsmith.cli.inputs.setting_options import SettingsCommand, given_settings
from callsmith.cli.terminal.output import echo

if TYPE_CHECKING:
    from callsmith.bus.trust.identity import Identity
    from callsmith.server.parts.bus.settings import BusSettings


class IdentityCommand(SettingsCommand):
    """A command that needs to know where this node's key is, and nothing else of the bus."""

    only = ("bus.identity",)


def show_id(context: typer.Context) -> None:
    """Print the id of this node, which others put into their settings. Its key is made on first use."""
    echo(open_identity(bus_settings(context)).node_id)


def bus_settings(context: typer.Context) -> "BusSettings":
    """The settings of the bus, from options, the environment and the user's own file."""
    from callsmith.cli.serve import load_settings
    from callsmith.server.parts.bus.settings import BusSettings

    return load_settings(None, given_settings(context), None).settings.part(BusSettings)


def open_identity(settings: "BusSettings") -> "Identity":
    """The identity of this node."""
    from callsmith.bus.trust.identity import load_identity
    from callsmith.server.parts.bus.node import identity_file

    return load_identity(identity_file(settings))
