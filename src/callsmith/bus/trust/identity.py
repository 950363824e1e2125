"""Identity: the Ed25519 key pair of a node. Its public key is the id by which other nodes know it, `ed25519:…`."""

import base64
import os
import stat
from functools import lru_cache
from pathlib import Path

from callsmith.core.errors import MissingExtra, UsageError
from callsmith.files import write_file
from callsmith.wire.capability.errors import BusError

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as missing:
    raise MissingExtra("bus", "signing calls") from missing

_PREFIX = "ed25519:"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64

# Points of small order: whoever has such a "public key" needs no private one, since signatures for it can be made up. A key is
# the y coordinate and, in its highest bit, the sign of x; a y of 2^255 - 19 or more is a second spelling of another key.
_FIELD = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})


class Identity:
    """A node's key pair. It signs what the node sends; the private key is shown nowhere."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.private_key = key
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.node_id = _PREFIX + encode_base64url(raw)

    def __repr__(self) -> str:
        return f"Identity({self.node_id})"

    @classmethod
    def create(cls) -> "Identity":
        return cls(Ed25519PrivateKey.generate())

    def sign(self, data: bytes) -> str:
        """The signature of these bytes, `ed25519:…`."""
        return _PREFIX + encode_base64url(self.private_key.sign(data))


def load_identity(path: Path) -> Identity:
    """The identity in this file (PEM, as `openssl genpkey -algorithm ed25519` writes it); made if there is none yet."""
    try:
        if not path.exists():
            _create_file(path)
        with path.open("rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode, file.read(64 * 1024)
    except OSError as error:
        raise UsageError(f"the identity in {path} cannot be read or written: {error.strerror or error}") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"others may read the private key in {path}: run chmod 600 on it, or delete it if it was read")
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise UsageError(f"{path} is no private key in PEM without a password; move it away to get a new identity") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} has a key of another kind; an identity is an Ed25519 key")
    return Identity(key)


def _create_file(path: Path) -> None:
    """Store a new key, whole or not at all; if another process is faster, its key stays."""
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(path, Ed25519PrivateKey.generate().private_bytes(*pem), is_private=True, keeps_existing=True)


def is_node_id(text: str) -> bool:
    """Whether it is the id of a node, which has a key that can sign."""
    try:
        public_key(text)
    except BusError:
        return False
    return True


@lru_cache(maxsize=1024)
def public_key(node_id: str) -> Ed25519PublicKey:
    """The key that a node's id is; a BusError invalid_signature if it is none, or one for which anybody could sign."""
    raw = _read(node_id, _KEY_BYTES, "the id of a node")
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= _FIELD or y in _SMALL_ORDER:
        raise BusError("invalid_signature", "the id of the node is a weak key, for which anybody could sign")
    return Ed25519PublicKey.from_public_bytes(raw)


def verify_signature(node_id: str, data: bytes, signature: str) -> None:
    """A BusError invalid_signature unless the node has signed these bytes."""
    try:
        public_key(node_id).verify(_read(signature, _SIGNATURE_BYTES, "a signature"), data)
    except InvalidSignature:
        raise BusError("invalid_signature", f"this was not signed by {node_id}") from None


def _read(text: str, size: int, what: str) -> bytes:
    try:
        raw = decode_base64url(text.removeprefix(_PREFIX)) if text.startswith(_PREFIX) else b""
    except ValueError:
        raw = b""
    if len(raw) != size:
        raise BusError("invalid_signature", f"{what} is {_PREFIX} and {size} bytes as base64url without padding")
    return raw


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """The bytes; a ValueError for any spelling that `encode_base64url` does not give (padding, spaces, stray bits)."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_base64url(data) != text:
        raise ValueError("this is not base64url without padding")
    return data
