"""Signed reasoning: what a server wants back unchanged together with the calls that it led to.

A reader of answers has it in `signed`, a writer of requests takes it, by the id of the first call of the answer. In Messages and
Responses it is the whole answer, as blocks or items. In chat completions it is fields of the message and of the calls:

    {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "…", "index": 0}]}             on a message
    {"id": "call_1", "function": {…}, "extra_content": {"google": {"thought_signature": "…"}}}                   on a call
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from callsmith.core.values import Json, Message
from callsmith.wire.fields import Fields

Signed: TypeAlias = Mapping[str, Json]  # what a reader had in `signed`, by the id of the first call of its answer
NOTHING_SIGNED: Final[Signed] = MappingProxyType({})
_DETAILS, _EXTRA = "reasoning_details", "extra_content"
_GROWING = ("text", "summary", "data")  # the fields of a detail that come in pieces


class SignedDetails:
    """What is signed in one answer, put together from its deltas."""

    def __init__(self) -> None:
        self._details: list[dict[str, Json]] = []
        self._extra: dict[str, Json] = {}  # by the ids of calls

    def add(self, delta: Fields) -> None:
        """Take the details of a delta; pieces of the same one carry its index."""
        if delta.get(_DETAILS) is None:
            return
        for piece in delta.objects(_DETAILS):
            last = self._details[-1] if self._details else None
            if last is None or piece.get("index") is None or last.get("index") != piece.get("index"):
                self._details.append(dict(piece.data))
                continue
            for key, value in piece.data.items():
                if key in _GROWING and isinstance(value, str):
                    last[key] = (last.get(key) or "") + value
                elif value is not None:
                    last[key] = value

    def add_call(self, call: Fields) -> None:
        """Take what is signed of a call."""
        if call.get(_EXTRA) is not None and call.get("id"):
            self._extra[call.text("id") or ""] = call.get(_EXTRA)

    def whole(self) -> Json:
        """All of it; None if there is nothing."""
        return {_DETAILS: self._details, _EXTRA: self._extra} if self._details or self._extra else None


def signed_turn(message: Message, signed: Signed) -> Json:
    """What was signed of the answer that this message was; None if nothing."""
    return signed.get(message.calls[0].id) if message.calls else None


def add_details(message: dict[str, Json], signed: Mapping[str, Json]) -> dict[str, Json]:
    """A written message of the assistant's with what `SignedDetails.whole` gave for it."""
    calls = message["tool_calls"]
    extra: Mapping[str, Json] = signed[_EXTRA]
    marked = [{**call, _EXTRA: extra[call["id"]]} if call["id"] in extra else call for call in calls]
    details = {_DETAILS: signed[_DETAILS]} if signed[_DETAILS] else {}
    return {**message, **details, "tool_calls": marked}
