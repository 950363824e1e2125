"""Compaction items of `/v1/responses`: a conversation replaced by what its user said and a summary of all of it.

    {"type": "compaction", "id": "cmp_1", "encrypted_content": "callsmith:VGhleSBhZ3JlZWQg…"}

A client sends the item back as it came. The summary in it is encoded and not encrypted: it is the client's own conversation, and
is read as something that the assistant said.
"""

import base64
import binascii

from callsmith.core.values import Json
from callsmith.wire.fields import Fields

COMPACTION = "compaction"
SUMMARISE = (
    "Summarise our conversation so far, so that it can be continued from the summary alone. Keep all facts, names, numbers, "
    "decisions and results of tools, and say what is still to be done. Write only the summary."
)
_OURS = "callsmith:"


def write_compaction(id: str, summary: str) -> dict[str, Json]:
    """The item that holds a summary."""
    return {"type": COMPACTION, "id": id, "encrypted_content": _OURS + base64.b64encode(_encode(summary)).decode()}


def read_compaction(item: Fields) -> str | None:
    """The summary in an item; None if another server made it, whose items only that server can read."""
    content = item.required_text("encrypted_content")
    if not content.startswith(_OURS):
        return None
    try:
        return base64.b64decode(content.removeprefix(_OURS), validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        raise item.error("encrypted_content", "is not as it was when it was given out") from None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a model may write half a surrogate pair
