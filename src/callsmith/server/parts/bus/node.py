"""A node of the capability bus, as the settings describe it: its identity, whom it trusts, and its connection to others."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.port import Authenticator
from callsmith.bus.reach import CapabilityTools
from callsmith.capabilities.builtin_tools import DEFAULT_SET, NAMES, builtin_tools
from callsmith.core.capability.authority import Trust
from callsmith.core.errors import UsageError
from callsmith.core.ports import Toolset
from callsmith.models.plugins import config_folder
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.tools.wrap import Merged
from callsmith.wire.capability.errors import BusError

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Node:
    """This node: its bus, and what checks the signatures and tokens of calls; None where there are no other nodes."""

    bus: CapabilityBus
    authenticator: Authenticator | None = None
    id: str = ""


def open_node(settings: BusSettings, *, calls_only: bool = False) -> Node:
    """The node that the settings describe. Its key is made on first use; `async with node.bus` connects it.

    `calls_only`: it offers nothing, and may run beside the process that is the node.
    """
    if settings.url is None:
        return Node(CapabilityBus())
    from callsmith.bus.opening import open_bus
    from callsmith.bus.trust.authorize import Authorizer
    from callsmith.bus.trust.identity import load_identity
    from callsmith.bus.trust.issuing import token_capabilities
    from callsmith.bus.trust.revocations import RevocationFile
    from callsmith.bus.trust.verification import TokenVerifier

    identity = load_identity(identity_file(settings))
    revocations = RevocationFile(revocation_file(settings))
    verifier = TokenVerifier(
        identity.node_id,
        settings.community,
        dict.fromkeys(settings.issuers, "member"),
        revocations,
    )
    nodes: dict[str, Trust] = {**dict.fromkeys(settings.members, "member"), **dict.fromkeys(settings.trusted, "trusted")}
    authorizer = Authorizer(identity.node_id, settings.community, nodes, verifier)
    bus = open_bus(
        settings.url,
        identity=identity,
        authorizer=authorizer,
        community=settings.community,
        peers=() if settings.open else tuple(nodes),
        trust_unsigned="member" if settings.open else "unknown",
        calls_only=calls_only,
    )
    if identity.node_id in settings.issuers and not calls_only:  # it takes tokens of its own, so that it can issue some
        for descriptor, handler in token_capabilities(identity, verifier, revocations, bus.offers):
            bus.register(descriptor, handler)
    return Node(bus, authorizer, identity.node_id)


@asynccontextmanager
async def keep_connected(bus: CapabilityBus) -> AsyncGenerator[None, None]:
    """Connect the bus while the block runs: if it is away, as soon as it is there."""
    trying: asyncio.Task[None] | None = None
    try:
        await bus.start()
    except BusError as error:
        _log.error("this node is not on its bus, and tries again: %s", error)
        trying = asyncio.create_task(_connect_later(bus))
    try:
        yield
    finally:
        if trying is not None:
            trying.cancel()
        await bus.close()


async def _connect_later(bus: CapabilityBus) -> None:
    while True:
        await asyncio.sleep(_RETRY_SECONDS)
        try:
            await bus.start()
        except BusError:
            continue
        except UsageError as error:  # another process of this identity was faster
            _log.error("this node is not on its bus, and stays away: %s", error)
            return
        _log.info("this node is on its bus now")
        return


def identity_file(settings: BusSettings) -> Path:
    return Path(settings.identity) if settings.identity else config_folder() / "node.pem"


def revocation_file(settings: BusSettings) -> Path:
    return identity_file(settings).with_name("revocations.jsonl")


def bus_tools(bus: CapabilityBus, names: Iterable[str]) -> Toolset | None:
    """Tools that capabilities run: those of built-in names ("default": four), and all whose capabilities match a pattern."""
    wanted = list(dict.fromkeys(wanted_name for name in names for wanted_name in (DEFAULT_SET if name == "default" else (name,))))
    builtin = [name for name in wanted if name in NAMES]
    patterns = [name for name in wanted if name not in NAMES]
    for pattern in patterns:
        if "." not in pattern:
            known = ", ".join(NAMES)
            raise UsageError(f"{pattern!r} is none of {known}, and no pattern such as rag.*", field="bus.tools")
    toolsets: list[Toolset] = [builtin_tools(bus, builtin)] if builtin else []
    toolsets += [CapabilityTools(bus, patterns=patterns)] if patterns else []
    return toolsets[0] if len(toolsets) == 1 else Merged(*toolsets) if toolsets else None
