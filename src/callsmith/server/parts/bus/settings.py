"""The settings of the capability bus: the section `[bus]`."""

from dataclasses import dataclass
from typing import ClassVar

from callsmith.server.settings import flag


@dataclass(frozen=True, slots=True)
class BusSettings:
    """The capability bus: with which other nodes this one shares capabilities, whom it trusts, and which it uses as tools.

    `members`, `trusted` and `issuers` are ids of nodes (`callsmith bus id`): those that are trusted so far, and those whose
    tokens let others call as members. The revocations are in a file beside the identity.
    """

    heading: ClassVar[str] = "Capability bus"

    url: str | None = flag(
        None, "--bus", help="The NATS server that connects this node with others: nats://HOST:4222. Default: no others."
    )
    community: str = flag("", "--bus-community", help="The name that the nodes which belong together share.")
    identity: str | None = flag(
        None, "--bus-identity", file="any", help="The file with this node's key. Default: node.pem in the config folder."
    )
    members: tuple[str, ...] = flag(
        (), "--bus-members", help="Nodes that may call what is for members: ids of `callsmith bus id`, separated by commas."
    )
    trusted: tuple[str, ...] = flag((), "--bus-trusted", help="Nodes that are trusted further: their ids, separated by commas.")
    issuers: tuple[str, ...] = flag((), "--bus-issuers", help="Nodes whose tokens count here: their ids, separated by commas.")
    open: bool = flag(
        False, "--bus-open", help="Take calls of whoever reaches the NATS server like those of members, without signatures."
    )
    tools: tuple[str, ...] = flag(
        (),
        "--bus-tools",
        help="Tools that capabilities of the bus run: names of built-in tools (search_corpus, translate, …), default for four of "
        "them, and patterns of capabilities, as experimental.home.*; separated by commas.",
    )


SECTION = BusSettings
