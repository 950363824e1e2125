"""Neighbours: the other nodes, as far as they were heard of lately, and how they announce what they offer.

    {"node": "ed25519:…", "revision": 1790000000123, "at": 1790000000.1, "offers": [{…}]}

`revision` grows with every change, `at` is the time at the node, and `"gone": true` says that it leaves.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from callsmith.bus.descriptor import Descriptor, read_descriptor, write_descriptor
from callsmith.bus.nats.messages import decode, digest, encode, node_digest
from callsmith.bus.port import Offer
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import canonical
from callsmith.wire.capability.errors import BusError
from callsmith.wire.fields import Fields

BEAT_SECONDS = 1.0
MISSED_BEATS = 3
MOST_NODES = 1000
_SILENCE = (MISSED_BEATS + 0.5) * BEAT_SECONDS
MOST_OFFERS = 256  # of a node
MOST_BYTES = 512 * 1024
_LONGEST_NODE = 128


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a node says of itself. Offers come with their digests: two that are equal have the same."""

    node: str
    revision: int
    at: float
    offers: tuple[tuple[str, Descriptor], ...] = ()
    is_gone: bool = False


def write_announcement(node: str, revision: int, at: float, descriptors: Sequence[Descriptor], *, is_gone: bool = False) -> bytes:
    entries: dict[str, Json] = {"node": node, "revision": revision, "at": at}
    entries |= {"gone": True} if is_gone else {"offers": [write_descriptor(descriptor) for descriptor in descriptors]}
    return encode(entries)


def check_size(descriptors: Sequence[Descriptor]) -> None:
    """A UsageError if that is more than a node may offer."""
    size = len(write_announcement("", 0, 0, descriptors))
    if len(descriptors) > MOST_OFFERS or size > MOST_BYTES - 1024:
        raise UsageError(
            f"a node offers at most {MOST_OFFERS} capabilities whose descriptors take {MOST_BYTES} bytes together, "
            f"not {len(descriptors)} with {size} bytes"
        )


def read_announcement(payload: bytes, counts: Callable[[str], bool]) -> Announcement:
    """The announcement in a message; a BusError says what is wrong with it, if only that its node does not count."""
    if len(payload) > MOST_BYTES:
        raise BusError("bad_request", f"an announcement has at most {MOST_BYTES} bytes")
    try:
        data = Fields(decode(payload))
        node = data.required_text("node")
        if len(node) > _LONGEST_NODE or not node.isprintable() or not counts(node):
            raise data.error("node", "is not one that counts here")
        offers = data.array("offers") or ()
        if len(offers) > MOST_OFFERS:
            raise data.error("offers", f"at most {MOST_OFFERS}")
        digested = tuple((offer_digest(item), item) for item in map(read_descriptor, offers))
        revision, at = data.integer("revision", 0) or 0, data.number("at") or 0.0
        return Announcement(node, revision, at, digested, data.flag("gone") or False)
    except (CallsmithError, TypeError, ValueError, RecursionError) as error:
        raise BusError("bad_request", f"this is no announcement: {error}") from error


def offer_digest(descriptor: Descriptor) -> str:
    return digest(canonical(write_descriptor(descriptor)))


@dataclass(slots=True)
class Neighbour:
    """Another node. `behind`: by how many seconds its clock is behind the event loop's, which nobody sets, with the time of the
    quickest message added."""

    node: str
    seen: float
    latest: float  # time at the node, when it was last heard of
    behind: float = inf
    revision: int = -1
    offers: dict[str, Offer] = field(default_factory=dict[str, Offer])  # by digest
    former: frozenset[str] = frozenset()  # digests of what it offered before: calls of it may be under way

    def hear(self, at: float, now: float) -> None:
        """It has said something at this time of its own; what is no news is a replay, and says nothing."""
        if at > self.latest:
            self.seen, self.latest = now, at
            self.behind = min(self.behind, now - at)


class Neighbours:
    """The nodes that are there and what they offer. With `peers`, only these nodes count. Times are those of the event loop."""

    def __init__(self, peers: Collection[str] = ()) -> None:
        self._peers = frozenset(peers)
        self._nodes: dict[str, Neighbour] = {}  # by the digest of the node
        self._behind: dict[str, float] = {}  # of nodes that are gone, by their digests
        self._offers: dict[str, list[Offer]] | None = None  # by capability, and all under ""; None: to be made anew

    def counts(self, node: str) -> bool:
        """Whether there is an ear for this node: it is a peer, or anybody counts and there is room."""
        if self._peers:
            return node in self._peers
        return node_digest(node) in self._nodes or len(self._nodes) < MOST_NODES

    def get(self, digest: str) -> Neighbour | None:
        return self._nodes.get(digest)

    def add_announcement(self, announcement: Announcement, now: float) -> None:
        """Take an announcement whose sender is verified."""
        key = node_digest(announcement.node)
        known = self._nodes.get(key)
        if known is None:
            # What the clock of a node was stays known: its first word after a long silence may have been long on the way.
            known = self._nodes[key] = Neighbour(announcement.node, now, 0.0, self._behind.pop(key, inf))
        known.hear(announcement.at, now)
        if announcement.revision > known.revision:
            known.revision = announcement.revision
            known.former = frozenset(known.offers)
            known.offers = {digest: Offer(announcement.node, descriptor) for digest, descriptor in announcement.offers}
            self._offers = None

    def remove(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            gone = self._nodes.pop(node_digest(node), None)
            if gone is not None and len(self._behind) < MOST_NODES:
                self._behind[node_digest(node)] = gone.behind
        self._offers = None

    def list_silent(self, now: float) -> list[str]:
        """The nodes that have missed too many beats."""
        return [node.node for node in self._nodes.values() if now - node.seen > _SILENCE]

    def mark_all_seen(self, now: float) -> None:
        """After a time in which nobody could be heard."""
        for node in self._nodes.values():
            node.seen = now

    def offers(self, capability: str = "") -> Sequence[Offer]:
        """What is offered: of one capability, or of all."""
        if self._offers is None:
            every = [offer for node in self._nodes.values() for offer in node.offers.values()]
            self._offers = {"": every}
            for offer in every:
                self._offers.setdefault(offer.descriptor.name, []).append(offer)
        return self._offers.get(capability, ())

    def has_offer(self, node: str, digest: str) -> bool:
        """Whether a node has this offer, or had it until lately."""
        known = self._nodes.get(node_digest(node))
        return known is not None and (digest in known.offers or digest in known.former)

    def seconds_since(self, timestamp: float, node: str, now: float) -> float:
        """How long ago a time by the clock of a node is; of a node that was not heard of, by our own clock."""
        known = self._nodes.get(node_digest(node))
        return time.time() - timestamp if known is None or known.behind == inf else now - timestamp - known.behind
