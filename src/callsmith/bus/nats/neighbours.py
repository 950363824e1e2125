"""Neighbours: the other nodes, as far as they were heard of lately."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

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
    seen: float
    latest: float  # time at the node, when it was last heard of
    behind: float = inf
    revision: int = -1
    offers: dict[str, Offer] = field(default_factory=dict[str, Offer])  # by digest
    former: frozenset[str] = frozenset()  # digests of what it offered before: calls of it may be under way

    def hear(self, at: float, now: float, wall: float) -> None:
        """It has said something at this time of its own; what is no news is a replay, and says nothing."""
        if at > self.latest:
            self.seen, self.latest = now, at
            self.behind = min(self.behind, wall - at)


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

    def add_announcement(self, announcement: Announcement, now: float, wall: float) -> None:
        """Take an announcement whose sender is verified."""
        key = node_digest(announcement.node)
        known = self._nodes.get(key)
        if known is None:
            # What the clock of a node was stays known: its first word after a long silence may have been long on the way.
            known = self._nodes[key] = Neighbour(announcement.node, now, 0.0, self._behind.pop(key, inf))
        known.hear(announcement.at, now, wall)
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
        return [one.node for one in self._nodes.values() if now - one.seen > _SILENCE]

    def mark_all_seen(self, now: float) -> None:
        """After a time in which nobody could be heard."""
        for one in self._nodes.values():
            one.seen = now

    def offers(self, capability: str = "") -> Sequence[Offer]:
        """What is offered: of one capability, or of all."""
        if self._offers is None:
            every = [offer for one in self._nodes.values() for offer in one.offers.values()]
            self._offers = {"": every}
            for offer in every:
                self._offers.setdefault(offer.descriptor.name, []).append(offer)
        return self._offers.get(capability, ())

    def has_offer(self, node: str, digest: str) -> bool:
        """Whether a node has this offer, or had it until lately."""
        known = self._nodes.get(node_digest(node))
        return known is not None and (digest in known.offers or digest in known.former)

    def behind(self, node: str) -> float:
        known = self._nodes.get(node_digest(node))
        return 0.0 if known is None or known.behind == inf else known.behind
