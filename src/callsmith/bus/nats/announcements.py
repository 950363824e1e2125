"""Announcements: what a node offers, `{"node": "ed25519:…", "revision": 1790000000123, "at": 1790000000.1, "offers": [{…}]}`.

`revision` grows with every change, `at` is the time at the node, and `"gone": true` says that it leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.listing import read_descriptor, write_descriptor
from callsmith.bus.nats.messages import decode, encode
from callsmith.bus.nats.subjects import digest
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import canonical
from callsmith.wire.capability.errors import BusError
from callsmith.wire.fields import Fields

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
    entries |= {"gone": True} if is_gone else {"offers": [write_descriptor(one) for one in descriptors]}
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
        found = tuple((offer_digest(one), one) for one in map(read_descriptor, offers))
        revision, at = data.integer("revision", 0) or 0, data.number("at") or 0.0
        return Announcement(node, revision, at, found, data.flag("gone") or False)
    except (CallsmithError, TypeError, ValueError, RecursionError) as error:
        raise BusError("bad_request", f"this is no announcement: {error}") from error


def offer_digest(descriptor: Descriptor) -> str:
    return digest(canonical(write_descriptor(descriptor)))
