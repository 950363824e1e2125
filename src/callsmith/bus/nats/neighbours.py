"""Neighbours: the other nodes, as far as they were heard of lately."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from callsmith.bus.nats.announcements import Announcement
from callsmith.bus.nats.subjects import node_digest
from callsmith.bus.port import Offer

BEAT_SECONDS = 1.0
MISSED_BEATS = 3
MOST_NODES = 1000
_SILENCE = (MISSED_BEATS + 0.5) * BEAT_SECONDS


@dataclass(slots=True)
class Neighbour:
    """Another node. `behind`: by how many seconds its clock is behind ours, with the time of the quickest message added."""

    node: str
    revision: int
    seen: float
    behind: float
    offers: dict[str, Offer] = field(default_factory=dict[str, Offer])  # by digest


class Neighbours:
    """The nodes that are there and what they offer. With `peers`, only these nodes count. Times are those of the event loop."""

    def __init__(self, peers: Collection[str] = ()) -> None:
        self._peers = frozenset(peers)
        self._nodes: dict[str, Neighbour] = {}  # by the digest of the node
        self._offers: dict[str, list[Offer]] = {}  # by capability
        self._all: list[Offer] = []

    def counts(self, node: str) -> bool:
        """Whether there is an ear for this node: it is a peer, or anybody counts and there is room."""
        if self._peers:
            return node in self._peers
        return node_digest(node) in self._nodes or len(self._nodes) < MOST_NODES

    def revision(self, digest: str) -> int | None:
        """The latest that is known of a node; None if nothing is."""
        known = self._nodes.get(digest)
        return None if known is None else known.revision

    def beat(self, digest: str, now: float) -> None:
        if known := self._nodes.get(digest):
            known.seen = now

    def announced(self, announcement: Announcement, now: float, wall: float) -> None:
        """Take an announcement whose sender is verified."""
        key, behind = node_digest(announcement.node), wall - announcement.at
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = Neighbour(announcement.node, -1, now, behind)
        known.seen, known.behind = now, min(known.behind, behind)
        if announcement.revision > known.revision:
            known.revision = announcement.revision
            known.offers = {digest: Offer(announcement.node, descriptor) for digest, descriptor in announcement.offers}
            self._index()

    def remove(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._nodes.pop(node_digest(node), None)
        self._index()

    def silent(self, now: float) -> list[str]:
        """The nodes that have missed too many beats."""
        return [one.node for one in self._nodes.values() if now - one.seen > _SILENCE]

    def all_seen(self, now: float) -> None:
        """After a time in which nobody could be heard."""
        for one in self._nodes.values():
            one.seen = now

    def offers(self, capability: str = "") -> Sequence[Offer]:
        return self._offers.get(capability, ()) if capability else self._all

    def has_offer(self, node: str, digest: str) -> bool:
        known = self._nodes.get(node_digest(node))
        return known is not None and digest in known.offers

    def behind(self, node: str) -> float:
        known = self._nodes.get(node_digest(node))
        return 0.0 if known is None else known.behind

    def _index(self) -> None:
        self._offers = {}
        self._all = [offer for one in self._nodes.values() for offer in one.offers.values()]
        for offer in self._all:
            self._offers.setdefault(offer.descriptor.name, []).append(offer)
