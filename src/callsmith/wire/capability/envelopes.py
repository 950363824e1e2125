"""Envelopes: a call of a capability with all that is said about it, and the bytes of it that are signed.

{"capability": "rag.query", "version": "1.0", "request_id": "01J…", "from": "ed25519:…", "timestamp": 1790000000.0,
 "body": {"params": {"corpus": "village"}, "input": {"query": "hall"}}}

A capability is named with a version of (major, minor): `rag.query@1.0`. A call that asks for A.B is answered by a provider that
offers X.Y if X == A and Y >= B: minor versions only add.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Meta, MsgspecError, Struct, field
from msgspec import json as msgspec_json
from msgspec.structs import astuple

from callsmith.core.capability.authority import EVERYTHING, Trust, read_trust
from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError
from callsmith.wire.fields import Fields

Version: TypeAlias = tuple[int, int]

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}(\.[a-z0-9][a-z0-9_]{0,63}){1,6}", re.ASCII)
_VERSION = re.compile(r"(?:>=)?(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})", re.ASCII)

# The first parts of names that are allocated; everything else is experimental.
PREFIXES = frozenset(
    {"auth", "chat", "community", "embed", "federation", "file", "img", "llm", "market", "ocr", "rag", "rerank", "stt", "trans"}
    | {"tts"}
)
EXPERIMENTAL = "experimental"


_LONGEST = 512  # of what is looked up here
_match_name = lru_cache(maxsize=1024)(NAME.fullmatch)


def check_name(name: object) -> str:
    """The name, if it is one of a capability; a BusError bad_request if not."""
    if not isinstance(name, str) or len(name) > _LONGEST or not _match_name(name):
        raise BusError("bad_request", f"{str(name)[:100]!r} is no name of a capability, such as rag.query")
    return name


def parse_version(text: object) -> Version:
    """(1, 0) of "1.0" or ">=1.0"; a BusError bad_request for anything else."""
    version = _match_version(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if version is None:
        raise BusError("bad_request", f"{str(text)[:100]!r} is no version, such as 1.0")
    return version


@lru_cache(maxsize=1024)
def _match_version(text: str) -> Version | None:
    match = _VERSION.fullmatch(text)
    return match and (int(match[1]), int(match[2]))


def parse_reference(text: object) -> tuple[str, Version]:
    """The name and the version of "rag.query@1.0"."""
    name, at, version = text.partition("@") if isinstance(text, str) else ("", "", "")
    if not at:
        raise BusError("bad_request", f"{str(text)[:100]!r} is no capability with its version, such as rag.query@1.0")
    return check_name(name), parse_version(version)


def parse_target(capability: object, version: object = None) -> tuple[str, Version]:
    """The name and the version of "rag.query@1.0", or of "rag.query" whose version, "1.0" or [1, 0], is given beside it."""
    if version is None or not isinstance(capability, str):
        return parse_reference(capability)
    beside = parse_version(".".join(map(str, cast(list[Json], version))) if isinstance(version, list) else version)
    name, within = parse_reference(capability) if "@" in capability else (check_name(capability), beside)
    if within != beside:
        raise BusError("bad_request", f"{capability[:100]!r} is of another version than {write_version(beside)}")
    return name, beside


def write_version(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def write_reference(name: str, version: Version) -> str:
    return f"{name}@{version[0]}.{version[1]}"


def satisfies(offered: Version, requested: Version) -> bool:
    """Whether a provider of the one version may answer a call of the other."""
    return offered[0] == requested[0] and offered[1] >= requested[1]


WINDOW = 16  # frames of an answer that may be under way, where nothing else is agreed upon
_LONGEST_ID = 128
_MOST_PATTERNS = 256


_Id = Annotated[str, Meta(max_length=_LONGEST_ID)]


class Envelope(Struct, frozen=True, rename={"sender": "from"}):
    """A call as it is sent from one node to another. `sender` is a node, `to` the node that is meant, if one is.

    `seconds` is how long the sender waits for the answer. `via`, `subject`, `trace_id` and `depth` are the lineage of the call;
    a receiver believes of them what the signature and the token bear out. `trust` and `capabilities` are how far the sender's own
    caller may go: a receiver goes no further. `window` is how many frames of the answer that the sender has not acknowledged may
    be under way at most; `WINDOW` of them always may.
    """

    capability: str
    version: Version
    body: Mapping[str, Json] = field(default_factory=dict[str, Json])
    request_id: _Id = ""
    sender: _Id = ""
    to: _Id = ""
    community: _Id = ""
    timestamp: Annotated[float, Meta(ge=0, le=1e308)] = 0.0
    session_id: _Id = ""
    seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    stream: bool = False
    token: str = ""
    subject: _Id = ""
    via: Annotated[tuple[_Id, ...], Meta(max_length=16)] = ()
    trace_id: _Id = ""
    depth: Annotated[int, Meta(ge=0)] = 0
    trust: Trust = "self"
    capabilities: Annotated[tuple[_Id, ...], Meta(max_length=_MOST_PATTERNS)] = EVERYTHING
    window: Annotated[int, Meta(ge=1)] = WINDOW


_KEYS = Envelope.__struct_encode_fields__
_UNSAID = astuple(Envelope("", (0, 0)))


def write_envelope(envelope: Envelope) -> dict[str, Json]:
    """The envelope as JSON; what is empty is left out."""
    fields: dict[str, Json] = {
        key: list(cast(tuple[str, ...], value)) if isinstance(value, tuple) else value
        for key, value, unsaid in zip(_KEYS, astuple(envelope), _UNSAID, strict=True)
        if value != unsaid and (value or key == "capabilities")
    }
    return {**fields, "version": write_version(envelope.version), "body": dict(envelope.body)}


def _id(fields: Fields, key: str) -> str:
    value = fields.data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _LONGEST_ID or not value.isprintable():
        raise fields.error(key, f"must be at most {_LONGEST_ID} printable characters")
    return value


def _read_via(fields: Fields, key: str) -> tuple[str, ...]:
    via = fields.texts(key)
    if len(via) > 16 or any(len(item) > _LONGEST_ID or not item.isprintable() for item in via):
        raise fields.error(key, "must be at most 16 nodes")
    return via


# What an envelope may say: the key, the field, and what reads it. Most envelopes say little of it.
_OPTIONAL: tuple[tuple[str, str, Callable[[Fields, str], Any]], ...] = (
    *((name, name, _id) for name in ("request_id", "to", "community", "session_id", "subject", "trace_id")),
    ("from", "sender", _id),
    ("timestamp", "timestamp", lambda fields, key: fields.number(key) or 0.0),
    ("seconds", "seconds", lambda fields, key: fields.number(key, 86_400.0)),
    ("stream", "stream", lambda fields, key: fields.flag(key) or False),
    ("token", "token", lambda fields, key: fields.text(key) or ""),
    ("via", "via", _read_via),
    ("depth", "depth", lambda fields, key: fields.integer(key, 0) or 0),
    ("window", "window", lambda fields, key: fields.integer(key, 1) or WINDOW),
    ("trust", "trust", lambda fields, _: _read_trust(fields)),
    ("capabilities", "capabilities", lambda fields, _: _read_patterns(fields)),
)


def read_envelope(value: Json) -> Envelope:
    """The envelope in this JSON; a BusError bad_request says what is wrong with it."""
    try:
        fields = Fields.of(value, "")
        optional = {name: read(fields, key) for key, name, read in _OPTIONAL if key in fields.data}
        return Envelope(
            check_name(fields.get("capability")),
            parse_version(fields.get("version")),
            fields.required_object("body").data,
            **optional,
        )
    except UsageError as error:
        raise BusError("bad_request", str(error)) from error


class _PlainEnvelope(Envelope, frozen=True, omit_defaults=True):
    """An envelope in its usual spelling. Whatever it has in another one is read by `read_envelope`."""

    version: str  # pyright: ignore[reportIncompatibleVariableOverride]
    body: dict[str, Any]  # pyright: ignore[reportGeneralTypeIssues]  (required here)


def plain_envelope(
    envelope: Envelope,
    *,
    request_id: str,
    timestamp: float,
    window: int,
    community: str = "",
    to: str | None = None,
    token: str = "",
) -> Struct:
    """An envelope with what a transport adds to it, as msgspec writes it like `write_envelope`, and `decode_envelope` reads it,
    quickly."""
    return _PlainEnvelope(
        envelope.capability,
        write_version(envelope.version),
        envelope.body,  # pyright: ignore[reportArgumentType]
        request_id,
        envelope.sender,
        envelope.to if to is None else to,
        community,
        timestamp,
        envelope.session_id,
        envelope.seconds,
        envelope.stream,
        token,
        envelope.subject,
        envelope.via,
        envelope.trace_id,
        envelope.depth,
        envelope.trust,
        envelope.capabilities,
        window,
    )


_decoder = msgspec_json.Decoder(_PlainEnvelope)


def decode_envelope(data: bytes) -> Envelope | None:
    """The envelope in these bytes, quickly; None if it takes `read_envelope` to read it, or to say what is wrong with it."""
    try:
        sent = _decoder.decode(data)
    except (MsgspecError, UnicodeError, RecursionError):
        return None
    ids = (sent.request_id, sent.sender, sent.to, sent.community, sent.session_id, sent.subject, sent.trace_id)
    if not "".join((*ids, *sent.via, *sent.capabilities)).isprintable():
        return None
    capability, version, *optional = astuple(sent)
    return Envelope(check_name(capability), parse_version(version), *optional)


def _read_trust(fields: Fields) -> Trust:
    text = fields.text("trust")
    try:
        return "self" if text is None else read_trust(text)
    except ValueError as error:
        raise fields.error("trust", str(error)) from None


def _read_patterns(fields: Fields) -> tuple[str, ...]:
    if fields.get("capabilities") is None:
        return EVERYTHING
    patterns = fields.texts("capabilities")
    if len(patterns) > _MOST_PATTERNS or any(len(pattern) > _LONGEST_ID or not pattern.isprintable() for pattern in patterns):
        raise fields.error("capabilities", f"must be at most {_MOST_PATTERNS} patterns")
    return patterns


SIGNED = ("capability", "version", "request_id", "from", "community", "timestamp", "body")


def signed_bytes(envelope: Mapping[str, Json]) -> bytes:
    """What the signature of an envelope is made of: its fields of `SIGNED`, and whatever else it has, as canonical JSON."""
    return canonical({**{name: envelope.get(name) for name in SIGNED}, **envelope})


def canonical(value: Json) -> bytes:
    """Canonical JSON: sorted keys, no spaces, no trailing zeros, UTF-8. A BusError for what JSON cannot say."""
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BusError("bad_request", f"this cannot be written as canonical JSON: {type(error).__name__}") from error


def _plain(value: Json) -> Json:
    """The value with whole numbers written as such: 1.0 is 1."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in cast(Mapping[str, Json], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in cast(list[Json], value)]
    if isinstance(value, float) and isfinite(value) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
