"""Messages of the bus over NATS: JSON, with a signature in a header if the node that sends it has an identity.

What is signed begins with what the message is and which call it belongs to, so that no message can pass for another:
`offers`, `beat`, `control`, `reply <request id> <part>`. The signature of a call is over its payload alone, an envelope.
"""

from collections.abc import Mapping
from typing import Protocol, cast

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
_SIGNING = "ed25519:"  # how the ids of nodes with an identity begin


class Signer(Protocol):
    """The identity of a node."""

    @property
    def node_id(self) -> str: ...

    def sign(self, data: bytes) -> str: ...


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


def encode(value: Mapping[str, Json]) -> bytes:
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


def sign_headers(identity: Signer | None, data: bytes, headers: dict[str, str] | None = None) -> dict[str, str] | None:
    """The headers of a message, with the signature over these bytes if the node has an identity."""
    return headers if identity is None else {**(headers or {}), SIGNATURE: identity.sign(data)}


def is_signing(node: str) -> bool:
    """Whether a node has an identity, and signs all that it sends."""
    return node.startswith(_SIGNING)


def is_from(node: str, message: NatsMessage, data: bytes) -> bool:
    """Whether the message is from this node, as far as that can be known: only nodes with an identity sign."""
    if not is_signing(node):
        return True
    try:
        verify_signature(node, data, message.headers.get(SIGNATURE, ""))
    except BusError:
        return False
    return True


def offers_bytes(payload: bytes) -> bytes:
    return b"offers\n" + payload


def beat_bytes(payload: bytes) -> bytes:
    return b"beat\n" + payload


def control_bytes(payload: bytes) -> bytes:
    return b"control\n" + payload


def reply_bytes(request_id: str, part: str, payload: bytes) -> bytes:
    return f"reply {request_id} {part}\n".encode("utf-8", "surrogatepass") + payload
