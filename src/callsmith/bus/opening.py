"""Opens a bus by the address of what connects it: this process alone, a NATS server, or a callsmith server."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.trace import Observer
from callsmith.core.capability.authority import Trust
from callsmith.core.errors import UsageError

if TYPE_CHECKING:  # of the extra `bus`, which a server's capabilities need only for signatures
    from callsmith.bus.trust.authorize import Authorizer
    from callsmith.bus.trust.identity import Identity

LOCAL = "local"
_SCHEMES = ("nats://", "tls://")


def open_bus(
    url: str = LOCAL,
    *,
    identity: "Identity | None" = None,
    authorizer: "Authorizer | None" = None,
    community: str = "",
    peers: Collection[str] = (),
    trust_unsigned: Trust = "unknown",
    observers: Iterable[Observer] = (),
    key: str = "",
    calls_only: bool = False,
) -> CapabilityBus:
    """A bus that `async with` starts: "local", or "nats://host:4222", with several servers of a cluster separated by commas;
    or the capabilities of a callsmith server, "http://host:8000", which is called with an API key.

    The other parameters are those of `NatsTransport`; other kinds of bus use those of them that mean something there.
    """
    check = authorizer.authorize if authorizer else None
    if url == LOCAL:
        return CapabilityBus(check_authority=check, observers=observers)
    if url.startswith(("http://", "https://")):
        from callsmith.bus.http import HttpTransport

        server = HttpTransport(url, key=key, identity=identity, community=community)
        return CapabilityBus(server, check_authority=check, observers=observers)
    urls = url.split(",")
    if not all(url.startswith(_SCHEMES) for url in urls):
        known = f"{LOCAL!r}, or at an address such as nats://127.0.0.1:4222 or http://127.0.0.1:8000"
        raise UsageError(f"a bus is {known}, not {url.rpartition('@')[2][:100]!r}")
    from callsmith.bus.nats.transport import NatsTransport

    transport = NatsTransport(
        urls,
        identity=identity,
        authorizer=authorizer,
        community=community,
        peers=peers,
        trust_unsigned=trust_unsigned,
        calls_only=calls_only,
    )
    return CapabilityBus(transport, check_authority=transport.authorizer.authorize, observers=observers)
