"""NatsTransport: connects a bus to those of other nodes by a NATS server.

What is protected between nodes that have identities: every call, announcement, control message and message of an answer is signed
by the node that sends it, and belongs to one call; a call is taken once, and not after its deadline; of an answer, only messages
of the node that was called are taken, or of one that has announced the same offer. Nodes without an identity sign nothing, and
whatever is said in their name is taken for theirs.

What is not: that messages arrive, that others do not read them, and the server's word that nobody listens to a call. Whoever may
publish and subscribe under `callsmith.` can drop, delay and read messages of others, and make a call go elsewhere: give such
permissions to nodes alone, and connect by TLS.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.nats.calls import OutgoingCalls
from callsmith.bus.nats.connection import LOST, NatsConnection
from callsmith.bus.nats.messages import (
    QUEUE,
    NatsMessage,
    Subjects,
    is_from,
    is_signing,
    node_digest,
)
from callsmith.bus.nats.neighbours import (
    BEAT_SECONDS,
    Neighbours,
    check_size,
    offer_digest,
    read_announcement,
    write_announcement,
)
from callsmith.bus.nats.serving import Serving
from callsmith.bus.port import Disconnected, Offer, Receive, Receiver
from callsmith.bus.trust.authorize import Authorizer, outgoing_token
from callsmith.bus.trust.identity import Identity
from callsmith.core.capability.authority import Authority, Trust
from callsmith.core.errors import UsageError
from callsmith.wire.capability.envelopes import Envelope
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

_log = logging.getLogger(__name__)

DISCOVERY_SECONDS = 0.25  # at the start, in which the others say what they offer
DRAIN_SECONDS = 5.0  # at the end, for calls that still run
_BETWEEN_ANNOUNCEMENTS = 0.1  # seconds, however often others ask
MOST_CALLS = 1024


class NatsTransport:
    """Other nodes by NATS. `urls` are those of one server, or of several of a cluster, separated by commas.

    Without an `identity` this node is a stranger to others. `authorizer` says on whose authority a call from elsewhere runs; who
    signs nothing is trusted as `trust_unsigned` says. With `peers`, offers of other nodes are not taken; and offers of nodes that
    sign nothing are taken only by nodes without an identity, or if they are trusted. `calls_only`: it calls others and offers
    nothing, so that it may run beside the process that is the node.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        identity: Identity | None = None,
        authorizer: Authorizer | None = None,
        community: str = "",
        peers: Collection[str] = (),
        trust_unsigned: Trust = "unknown",
        most_calls: int = MOST_CALLS,
        calls_only: bool = False,
    ) -> None:
        if trust_unsigned == "self":
            raise UsageError('nobody else is trusted as this node itself; "anchor" is the most', field="trust_unsigned")
        self._identity = identity
        self._node = identity.node_id if identity else f"anon:{token_hex(16)}"
        self._community = community
        self._takes_unsigned = identity is None or trust_unsigned != "unknown"
        self._most_calls = most_calls
        self._calls_only = calls_only
        self.authorizer = authorizer or Authorizer(self._node, community)
        self._authenticate = partial(self.authorizer.authenticate, unsigned=Authority(trust=trust_unsigned))
        self._subjects = Subjects(community)
        self._neighbours = Neighbours(peers)
        urls = urls.split(",") if isinstance(urls, str) else urls
        self._connection = NatsConnection(urls, identity, on_lost=self._on_lost, on_return=self._on_return)
        self._calls = OutgoingCalls(self._connection, self._subjects, self._neighbours)
        self._serving: Serving | None = None
        self._descriptors: Sequence[Descriptor] = ()
        self._subscribed: set[str] = set()  # to calls that are shared
        self._revision = time.time_ns() // 1_000
        self._published: deque[int] = deque(maxlen=64)  # the latest revisions
        self._has_twin = False
        self._announcing = asyncio.Lock()
        self._leaving = asyncio.Lock()
        self._last_announcement = 0.0
        self._last_question = 0.0
        self._is_answering = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None

    @property
    def node(self) -> str:
        return self._node

    async def start(self, receiver: Receiver) -> None:
        await self._connection.open()
        self._serving = Serving(
            self._connection,
            self._subjects,
            self._neighbours,
            self._node,
            self._authenticate,
            receiver,
            self._most_calls,
        )
        try:
            await self._join(self._serving)
        except BaseException:  # also a cancellation: this node has left again on every way out
            await self.close()
            raise

    async def _join(self, serving: Serving) -> None:
        """Listen to the others, and let them know of this node."""
        subjects, connection = self._subjects, self._connection
        await self._calls.open()
        await connection.subscribe(subjects.offers, self._take_offers)
        await connection.subscribe(subjects.beats, self._take_beat)
        connection.publish(subjects.who, b"", None)
        if self._calls_only:
            await asyncio.sleep(DISCOVERY_SECONDS)
            return
        await connection.subscribe(subjects.node(self._node), serving.take)
        await connection.subscribe(subjects.control(self._node), serving.take_control)
        await connection.subscribe(subjects.who, self._take_question)
        await self._announce_now()
        self._beating = asyncio.get_running_loop().create_task(self._beat())
        await asyncio.sleep(DISCOVERY_SECONDS)
        if self._has_twin:
            raise UsageError(
                "another process of this identity is on the bus already: give one of them an identity of its own (--bus-identity)"
            )

    async def close(self) -> None:
        """Offer nothing more, let the calls that run here end, and leave."""
        async with self._leaving:
            if self._serving is not None:
                await self._leave(self._serving)
                self._serving = None

    async def _leave(self, serving: Serving) -> None:
        self._descriptors = ()
        self._revision += 1
        self._calls_only |= self._has_twin  # the other one goes on
        with suppress(BusError):  # without a connection, the others notice by themselves
            await self._announce_now()
        await serving.close(DRAIN_SECONDS)
        self._calls.fail(Disconnected("this node has left the bus", sent=True))
        with suppress(BusError):
            self._publish_announcement(is_gone=True)
        for task in (self._beating, *self._tasks):
            if task is not None:
                task.cancel()
        await self._connection.close()

    def announce(self, descriptors: Sequence[Descriptor]) -> None:
        check_size(descriptors)
        self._descriptors = tuple(descriptors)
        self._revision = max(self._revision + 1, time.time_ns() // 1_000)
        if self._serving is not None and not self._calls_only:
            self._run(self._announce_now)

    def offers(self, capability: str = "") -> Sequence[Offer]:
        return self._neighbours.offers(capability)

    def request(self, envelope: Envelope, offer: Offer, *, share: bool, authority: Authority) -> Awaitable[tuple[str, Frame]]:
        share, added = self._add_fields(envelope, offer, share, authority)
        return self._calls.request(envelope, offer, share=share, added=added)

    def send(
        self, envelope: Envelope, offer: Offer, *, share: bool, receive: Receive, authority: Authority
    ) -> AsyncGenerator[Sequence[Frame], None]:
        share, added = self._add_fields(envelope, offer, share, authority)
        return self._calls.stream(envelope, offer, share=share, receive=receive, added=added)

    def _add_fields(self, envelope: Envelope, offer: Offer, share: bool, authority: Authority) -> tuple[bool, dict[str, str]]:
        """Whether the call may be shared all the same, and what is added to its envelope."""
        added = {"community": self._community} if self._community else {}
        if authority.token:
            seconds = envelope.seconds or offer.descriptor.timeout_seconds
            version = offer.descriptor.version
            added["token"] = outgoing_token(self._identity, authority, offer.node, envelope, version, seconds)
        if share and self._identity is not None and not offer.descriptor.idempotent:
            # Who overhears a signed call that names no node could have it run again, by another node that has the same offer.
            share, added["to"] = False, offer.node
        return share, added

    # --- what this node says of itself ---

    async def _announce_now(self) -> None:
        """Take calls for what is offered, let the others know, and take no more calls for what is not."""
        async with self._announcing:
            assert self._serving is not None
            wanted = {self._subjects.call(descriptor.name, offer_digest(descriptor)) for descriptor in self._descriptors}
            for subject in wanted - self._subscribed:
                await self._connection.subscribe(subject, self._serving.take, QUEUE)
            self._publish_announcement()
            for subject in self._subscribed - wanted:
                await self._connection.unsubscribe(subject)
            self._subscribed = wanted

    def _publish_announcement(self, *, is_gone: bool = False) -> None:
        if self._calls_only:
            return
        self._last_announcement = time.monotonic()
        self._published.append(self._revision)
        payload = write_announcement(self._node, self._revision, time.time(), self._descriptors, is_gone=is_gone)
        self._connection.publish(self._subjects.offers, payload, "offers")

    async def _beat(self) -> None:
        """Every second: say that this node is there, and see who is not."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with suppress(BusError):  # while the connection is away there is nobody to hear it
                if self._connection.is_given_up:
                    await self._connection.reopen()
                if self._connection.is_up:
                    beat = f"{self._revision} {time.time()}".encode()
                    self._connection.publish(self._subjects.beat(self._node), beat, "beat")
                    self._leave_alone(self._neighbours.list_silent(asyncio.get_running_loop().time()), "is not heard of any more")

    def _leave_alone(self, nodes: Sequence[str], why: str) -> None:
        if nodes:
            self._neighbours.remove(nodes)
        for node in nodes:
            self._calls.fail(BusError("partition", f"the node that ran it {why}", sent=True), node)
            if self._serving is not None:
                self._serving.cancel(node)

    # --- what the others say ---

    def _take_offers(self, message: NatsMessage) -> None:
        announcement = read_announcement(message.data, self._counts)
        node = announcement.node
        if not is_from(node, message, "offers"):
            return
        if node == self._node:
            self._has_twin |= announcement.revision not in self._published and not announcement.is_gone
            return
        if not announcement.is_gone:
            self._neighbours.add_announcement(announcement, asyncio.get_running_loop().time())
        elif (known := self._neighbours.get(node_digest(node))) and announcement.at > known.latest:  # else it is a replay
            self._leave_alone([node], "has left")

    def _counts(self, node: str) -> bool:
        """Whether it matters what a node says."""
        return node == self._node or ((self._takes_unsigned or is_signing(node)) and self._neighbours.counts(node))

    def _take_beat(self, message: NatsMessage) -> None:
        digest = message.subject.rpartition(".")[2]
        if digest == node_digest(self._node):
            return
        known = self._neighbours.get(digest)
        revision, at = map(float, message.data.split())
        if known is not None and is_from(known.node, message, "beat"):
            known.hear(at, asyncio.get_running_loop().time())
            if known.revision >= revision:
                return
        now = time.monotonic()
        if now - self._last_question > _BETWEEN_ANNOUNCEMENTS:
            self._last_question = now
            self._ask(digest.encode())

    def _ask(self, who: bytes) -> None:
        """Have all nodes, or one, say what they offer."""
        with suppress(BusError):  # when the connection is back, everything is announced anew
            self._connection.publish(self._subjects.who, who, None)

    def _take_question(self, message: NatsMessage) -> None:
        if message.data in (b"", node_digest(self._node).encode()) and not self._is_answering:
            self._is_answering = True
            self._run(self._answer_question)

    async def _answer_question(self) -> None:
        """Say what this node offers; to all who have asked meanwhile at once."""
        await asyncio.sleep(max(0.0, self._last_announcement + _BETWEEN_ANNOUNCEMENTS - time.monotonic()))
        self._is_answering = False
        self._publish_announcement()

    # --- the connection ---

    def _on_lost(self) -> None:
        self._calls.fail(Disconnected(LOST, sent=True))

    def _on_return(self) -> None:
        self._neighbours.mark_all_seen(asyncio.get_running_loop().time())
        self._run(self._announce_now)
        self._ask(b"")

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something that need not be waited for."""

        async def run() -> None:
            try:
                await work()
            except Disconnected:
                pass  # when the connection is back, everything is announced anew
            except BusError as error:
                _log.error("the other nodes do not know what this one offers: %s", error)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
