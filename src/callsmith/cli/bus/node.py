"""What the commands of `callsmith bus` share: their options, the identity of this node, and a connection to the bus."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

from callsmith.cli.inputs.setting_options import SettingsCommand, given_settings
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import UsageError

if TYPE_CHECKING:
    from callsmith.bus.bus import CapabilityBus
    from callsmith.bus.trust.identity import Identity
    from callsmith.core.capability.authority import Authority
    from callsmith.server.parts.bus.settings import BusSettings
    from callsmith.server.settings import Settings

_LISTENING_SECONDS = 3.0  # until what is called has been heard of


class NodeCommand(SettingsCommand):
    """A command of a node on the bus, with the options that say which bus and whom to trust."""

    only = ("bus.url", "bus.community", "bus.identity", "bus.members", "bus.trusted", "bus.issuers", "bus.open")


class OfferCommand(SettingsCommand):
    """`callsmith bus offer`, which also has tools."""

    only = (*NodeCommand.only, "llm.tools")


def node_settings(context: typer.Context) -> "Settings":
    """The settings of this node, from options, the environment and the user's own file. A bus must be among them."""
    from callsmith.server.parts.bus.settings import BusSettings

    settings = _settings(context)
    if settings.part(BusSettings).url is None:
        raise UsageError("which bus? Give --bus nats://HOST:4222, or set CALLSMITH_BUS__URL", field="bus.url")
    return settings


@asynccontextmanager
async def connect(settings: "Settings", *capabilities: str, calls_only: bool = True) -> "AsyncGenerator[CapabilityBus, None]":
    """The bus of this node, connected; once these capabilities were heard of, or after some seconds."""
    import asyncio

    from callsmith.server.parts.bus.node import open_node
    from callsmith.server.parts.bus.settings import BusSettings

    async with open_node(settings.part(BusSettings), calls_only=calls_only).bus as bus:
        deadline = asyncio.get_running_loop().time() + _LISTENING_SECONDS
        while not all(bus.offers(name) for name in capabilities) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        yield bus


def authority_with(token: str | None, settings: "Settings") -> "Authority | None":
    """The authority of a call with a token: a file's content, if it names a file."""
    from pathlib import Path

    from callsmith.core.capability.authority import Authority
    from callsmith.server.parts.bus.settings import BusSettings

    if token is None:
        return None
    text = token if token.startswith("hntoken:") else Path(token).read_text("utf-8").strip()
    return Authority(open_identity(settings.part(BusSettings)).node_id, token=text)


class IdentityCommand(SettingsCommand):
    """A command that needs to know where this node's key is, and nothing else of the bus."""

    only = ("bus.identity",)


def show_id(context: typer.Context) -> None:
    """Print the id of this node, which others put into their settings. Its key is made on first use."""
    echo(open_identity(bus_settings(context)).node_id)


def bus_settings(context: typer.Context) -> "BusSettings":
    """The settings of the bus, from options, the environment and the user's own file."""
    from callsmith.server.parts.bus.settings import BusSettings

    return _settings(context).part(BusSettings)


def _settings(context: typer.Context) -> "Settings":
    from callsmith.cli.serve import load_settings

    return load_settings(None, given_settings(context), None).settings


def open_identity(settings: "BusSettings") -> "Identity":
    """The identity of this node."""
    from callsmith.bus.trust.identity import load_identity
    from callsmith.server.parts.bus.node import identity_file

    return load_identity(identity_file(settings))
