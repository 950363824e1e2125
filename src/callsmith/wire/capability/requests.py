"""Calls over HTTP and WebSocket: the call itself, and what its caller sends while it is answered.

A call is an envelope, `{"envelope": {"capability": "rag.query", "version": "1.0", "body": {…}}, "signature": "ed25519:…"}`; or
its fields are headers, `X-HearthNet-Capability: rag.query`, and the body is `{"params": {…}, "input": {…}}`. Over WebSocket:

    {"type": "call", "envelope": {…}, "signature": "…"}                          the first message
    {"type": "ack", "upto": 8}                                                   frames that have arrived
    {"type": "tool_result", "tool_call_id": "tc_1", "body": {…}}                 for the handler
    {"type": "confirmation", "tool_call_id": "tc_2", …}                          the same: what a person has decided
    {"type": "end"}                                                              nothing more comes for the handler
    {"type": "cancel"}
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import SIGNED, Envelope, read_envelope, signed_bytes, write_envelope
from callsmith.wire.capability.errors import BusError
from callsmith.wire.fields import Fields, kind

PATH = "/bus/v1/call"
SUBPROTOCOL = "hearthnet-bus.v2"
REQUEST_ID = "x-hearthnet-request-id"
_CAPABILITY, _SIGNATURE, _TOKEN = "x-hearthnet-capability", "x-hearthnet-signature", "x-hearthnet-token"
# Which field of an envelope a header has.
_FIELDS = {
    _CAPABILITY: "capability",
    "x-hearthnet-capability-version": "version",
    REQUEST_ID: "request_id",
    "x-hearthnet-from": "from",
    "x-hearthnet-community": "community",
    "x-hearthnet-timestamp": "timestamp",
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)
_LONGEST_ID = 128


@dataclass(frozen=True, slots=True)
class SentCall:
    """A call as it came in. `signed` are the bytes that the signature, if there is one, is for.

    `stream` says whether the caller wants frames; None: nothing was said.
    """

    envelope: Envelope
    signature: str = ""
    signed: bytes = b""
    stream: bool | None = None


def read_call(headers: Iterable[tuple[str, str]], body: Json) -> SentCall:
    """The call of a request or of a first message; a BusError bad_request says what is wrong with it."""
    try:
        return _read_call(_bus_headers(headers), Fields.of(body, ""))
    except UsageError as error:
        raise BusError("bad_request", str(error)) from error


def _read_call(headers: Mapping[str, str], body: Fields) -> SentCall:
    fields: dict[str, Json] = {field: headers[name] for name, field in _FIELDS.items() if name in headers}
    if (timestamp := fields.get("timestamp")) is not None:
        if not _NUMBER.fullmatch(timestamp):
            raise UsageError("timestamp: expected seconds since 1970", field="timestamp")
        fields["timestamp"] = float(timestamp)
    envelope_fields = body.object("envelope")
    if envelope_fields is None:
        if _CAPABILITY not in headers:
            raise body.error("envelope", f"is required, or the header {_CAPABILITY}")
        sent: dict[str, Json] = {name: fields.get(name) for name in SIGNED if name != "body"}
        sent["body"] = dict(body.data)
        stream, work = body.flag("stream"), {name: value for name, value in body.data.items() if name != "stream"}
    else:
        sent = dict(envelope_fields.data)
        for name, value in fields.items():
            if sent.get(name) != value:
                raise envelope_fields.error(name, "a header says something else")
        stream, work = envelope_fields.flag("stream"), sent.get("body")
    signature = _require_same(headers, _SIGNATURE, body.text("signature") if envelope_fields is not None else None, "signature")
    token = _require_same(headers, _TOKEN, envelope_fields.text("token") if envelope_fields is not None else None, "token")
    signed = signed_bytes(sent) if signature else b""
    envelope = read_envelope({**sent, "body": work, "token": token or None, "stream": stream})
    if envelope.request_id and not _REQUEST_ID.fullmatch(envelope.request_id):
        raise body.error("request_id", "expected up to 128 letters, digits and _ . : -")
    return SentCall(envelope, signature, signed, stream)


def _bus_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    bus_headers: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if name in _FIELDS or name in (_SIGNATURE, _TOKEN):
            if name in bus_headers:
                raise BusError("bad_request", f"the header {name} was sent more than once")
            bus_headers[name] = value
    return bus_headers


def _require_same(headers: Mapping[str, str], header: str, value: str | None, name: str) -> str:
    """What a header and the body say, if that is the same."""
    if header in headers and value and headers[header] != value:
        raise UsageError(f"{name}: a header says something else", field=name)
    return value or headers.get(header, "")


@dataclass(frozen=True, slots=True)
class Ack:
    """The caller has got all frames up to this one."""

    upto: int


@dataclass(frozen=True, slots=True)
class HandlerReply:
    """Something for the handler of the call: a `tool_result`, or a `confirmation`."""

    message: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class End:
    """The caller has nothing more for the handler, which need not wait for it."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The caller wants no more."""


CallerMessage: TypeAlias = Ack | HandlerReply | End | Cancel


def read_message(value: Json) -> CallerMessage:
    """What a caller has sent while its call is answered; a BusError bad_request for anything else."""
    try:
        fields = Fields.of(value, "the message")
        match fields.get("type"):
            case "ack":
                upto = fields.integer("upto", 0)
                if upto is None:
                    raise fields.error("upto", "is required")
                return Ack(upto)
            case "tool_result" | "confirmation" as type:
                id = fields.required_text("tool_call_id")
                if len(id) > _LONGEST_ID or not id.isprintable():
                    raise fields.error("tool_call_id", f"must be at most {_LONGEST_ID} printable characters")
                if type == "tool_result" and "body" not in fields.data:
                    raise fields.error("body", "is required")
                return HandlerReply(fields.data)
            case "end":
                return End()
            case "cancel":
                return Cancel()
            case "call":
                raise fields.error("type", "there is one call to a connection: open another one")
            case other:
                got = f"{other[:40]!r}" if isinstance(other, str) else kind(other)
                raise fields.error("type", f"expected ack, tool_result, confirmation, end or cancel, got {got}")
    except UsageError as error:
        raise BusError("bad_request", str(error)) from error


def write_call(envelope: Envelope, signature: str = "") -> dict[str, Json]:
    """A call as an envelope, without a type."""
    return {"envelope": write_envelope(envelope), **({"signature": signature} if signature else {})}
