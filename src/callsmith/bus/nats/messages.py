"""Messages of the bus over NATS: JSON, with a signature in a header if the node that sends it has an identity.

What is signed begins with what the message is and which call it belongs to, so that no message can pass for another:
`offers`, `beat`, `control`, `reply <request id> <part>`. The signature of a call is over its payload alone, an envelope.

All subjects are under `callsmith.<community>.`, so that permissions can be given for them:

    offers                       what a node offers, from now on
    who                          asks all nodes, or the one that is named, to say what they offer
    beat.<node>                  every second, from every node
    call.rag.query.<offer>       calls, for one of the nodes that have exactly this offer (a queue group)
    node.<node>                  calls, for this node
    control.<node>               what callers send while their calls run at this node: acknowledgements, messages, cancellation
    reply.<connection>.<call>    answers, for the caller

`<node>` and `<offer>` are digests.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import cast

from callsmith.bus.trust.identity import verify_signature
from callsmith.core.errors import MissingExtra
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError

try:
    import msgspec
    from msgspec import Struct
except ImportError as missing:
    raise MissingExtra("bus", "a bus over NATS") from missing

SIGNATURE = "Callsmith-Signature"
PART = "Callsmith-Part"  # of an answer that does not fit into one message: "1/3"
QUEUE = "callsmith"  # the queue group of those who share an offer
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SIGNING = "ed25519:"  # how the ids of nodes with an identity begin


class NatsMessage(Struct, frozen=True):
    """A message that has come in. `reply` is the subject on which an answer is awaited, if one is."""

    subject: str
    reply: str
    data: bytes
    headers: Mapping[str, str]

    @property
    def is_refused(self) -> bool:
        """Whether it is the server's word that nobody listens to what was sent."""
        return not self.data and self.headers.get("Status") == "503"


_encoder = msgspec.json.Encoder(enc_hook=dict)
_decoder = msgspec.json.Decoder()


def encode(value: Mapping[str, Json] | Struct) -> bytes:
    """The value as JSON; a BusError if JSON cannot say it."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BusError("bad_request", f"this cannot be sent as JSON: {type(error).__name__}") from error


def decode(data: bytes) -> dict[str, Json]:
    """The JSON object in a message; a BusError if there is none."""
    try:
        value = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BusError("bad_request", "the message is no JSON") from error
    if not isinstance(value, dict):
        raise BusError("bad_request", "the message is no JSON object")
    return cast(dict[str, Json], value)


def is_signing(node: str) -> bool:
    """Whether a node has an identity, and signs all that it sends."""
    return node.startswith(_SIGNING)


def is_from(node: str, message: NatsMessage, what: str) -> bool:
    """Whether the message is what it seems and from this node, as far as that can be known: only nodes with an identity sign."""
    if not is_signing(node):
        return True
    try:
        verify_signature(node, bytes_to_sign(what, message.data), message.headers.get(SIGNATURE, ""))
    except BusError:
        return False
    return True


def bytes_to_sign(what: str, payload: bytes) -> bytes:
    """What is signed of a message; `what` it is comes first, unless it is a call."""
    return f"{what}\n".encode("utf-8", "surrogatepass") + payload if what else payload


def digest(data: bytes) -> str:
    """What stands for longer data in a subject."""
    return sha256(data).hexdigest()[:32]


@lru_cache(maxsize=4096)
def node_digest(node: str) -> str:
    return digest(node.encode("utf-8", "surrogatepass"))


class Subjects:
    """The subjects of one community."""

    def __init__(self, community: str = "") -> None:
        token = community if _TOKEN.fullmatch(community) else digest(community.encode("utf-8", "surrogatepass"))
        self._prefix = f"callsmith.{token if community else '_'}"
        self.offers = f"{self._prefix}.offers"
        self.who = f"{self._prefix}.who"
        self.beats = f"{self._prefix}.beat.*"

    def beat(self, node: str) -> str:
        return f"{self._prefix}.beat.{node_digest(node)}"

    def call(self, name: str, offer: str) -> str:
        return f"{self._prefix}.call.{name}.{offer}"

    def node(self, node: str) -> str:
        return f"{self._prefix}.node.{node_digest(node)}"

    def control(self, node: str) -> str:
        return f"{self._prefix}.control.{node_digest(node)}"

    def replies(self, connection: str) -> str:
        return f"{self._prefix}.reply.{connection}."

    def is_reply(self, subject: str) -> bool:
        """Whether answers may be sent there; nobody can have us send anything elsewhere."""
        return subject.startswith(f"{self._prefix}.reply.")
