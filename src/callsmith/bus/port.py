"""The ports of the bus: the handler of a capability, and the transport between nodes."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from msgspec import Struct

from callsmith.bus.descriptor import Descriptor
from callsmith.core.capability.authority import SELF, Authority
from callsmith.core.types.tables import as_object
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Envelope, Version
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Json] | None]]  # waits for what the other side sends; None: no more
# Raises a BusError if this authority does not reach as far as a call of this capability with these params.
AuthorityCheck: TypeAlias = Callable[[Authority, str, Version, Mapping[str, Json]], None]


async def nothing_received() -> Mapping[str, Json] | None:
    """A `Receive` of a call to which nothing is sent while it runs."""
    return None


class CapabilityCall(Struct, frozen=True):
    """A call of a capability, as its handler gets it.

    `authority` is the caller's: what the handler calls in turn is called with it. `deadline` is a time of the event loop's clock.
    `receive` waits for what the caller sends while the call runs, such as `{"type": "tool_result", …}`; None: nothing more comes.
    """

    capability: str
    version: Version
    body: Mapping[str, Json]
    authority: Authority = SELF
    request_id: str = ""
    session_id: str = ""
    deadline: float | None = None
    stream: bool = False
    receive: Receive = nothing_received

    @property
    def params(self) -> Mapping[str, Json]:
        return as_object(self.body.get("params"))

    @property
    def input(self) -> Mapping[str, Json]:
        return as_object(self.body.get("input"))


Answer: TypeAlias = Mapping[str, Json]  # {"output": …, "meta": …}
# Answers with a body, or with frames of which the last is "done". What it raises becomes an error of the wire.
Handler: TypeAlias = Callable[[CapabilityCall], Awaitable[Answer] | AsyncIterator[Frame]]
ParamsTest: TypeAlias = Callable[[Mapping[str, Json], Mapping[str, Json]], bool]  # (offered, requested)


@dataclass(frozen=True, slots=True)
class Offer:
    """A capability and one node that offers it. `is_local`: this node."""

    node: str
    descriptor: Descriptor
    is_local: bool = False


class Authenticator(Protocol):
    """Finds out on whose authority a call from elsewhere runs."""

    def authenticate(
        self, envelope: Envelope, signature: str = "", signed: bytes = b"", *, unsigned: Authority = ...
    ) -> Authority:
        """The authority of a call; a BusError says why it has none.

        `signed` are the bytes that the signature is for. `unsigned` is the authority of whoever sends no signature.
        """
        ...


class Disconnected(BusError):
    """This node has lost its connection to the others, which says nothing about them. Calls that were under way may have run."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__("partition", message, sent=sent)


class Receiver(Protocol):
    """Answers calls that have come in from elsewhere, by capabilities of this node."""

    async def answer(self, envelope: Envelope, authority: Authority) -> Frame:
        """The answer in one piece: "done", or "error"."""
        ...

    def receive(self, envelope: Envelope, authority: Authority, receive: Receive) -> AsyncGenerator[Sequence[Frame], None]:
        """The answer in bursts of frames, of which the last is "done" or "error"."""
        ...


class Transport(Protocol):
    """Connects a bus to those of other nodes."""

    @property
    def node(self) -> str:
        """The id of this node, by which others know it."""
        ...

    async def start(self, receiver: Receiver) -> None:
        """Begin to listen. Calls that come in are checked (who sent them, with which token) and given to the receiver."""
        ...

    async def close(self) -> None: ...

    def announce(self, descriptors: Sequence[Descriptor]) -> None:
        """Let the others know what this node offers from now on."""
        ...

    def offers(self, capability: str = "") -> Sequence[Offer]:
        """What the others offer, as far as they were heard of lately: of one capability, or of all."""
        ...

    def request(self, envelope: Envelope, offer: Offer, *, share: bool, authority: Authority) -> Awaitable[tuple[str, Frame]]:
        """Send a call that is not streamed; the node that has answered it, and the answer: "done", or "error"."""
        ...

    def send(
        self,
        envelope: Envelope,
        offer: Offer,
        *,
        share: bool,
        receive: Receive,
        authority: Authority,
    ) -> AsyncGenerator[Sequence[Frame], None]:
        """Send a call and give the frames of its answer, in bursts; that of a call without a stream is one frame, "done".

        The transport adds who sends it, when, and the token that goes with the authority, and signs all of it. `share`: any node
        that has the same offer may answer. The first frame of every answer is "accepted", with the node, and comes by itself. A
        BusError whose `sent` is false says that nobody has got the call.
        """
        ...
