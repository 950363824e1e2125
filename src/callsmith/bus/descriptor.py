"""Descriptor: what a capability is, what it takes and gives, and for whom."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Literal

from callsmith.core.capability.authority import Trust
from callsmith.core.errors import CallsmithError, UnsupportedSchema
from callsmith.core.schema import Complaint, check_schema, validate
from callsmith.core.types.field_checks import check_fields
from callsmith.core.values import Json, Schema
from callsmith.wire.capability.envelopes import (
    EXPERIMENTAL,
    PREFIXES,
    canonical,
    check_name,
    parse_version,
    write_reference,
    write_version,
)
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from callsmith.wire.fields import Fields


@check_fields
@dataclass(frozen=True, slots=True)
class Descriptor:
    """A capability that is offered. It streams if it has a `stream_schema`, which its frames' data fit.

    `params` is what this provider has (`{"corpus": ["village"]}`), by which calls find one that can answer them. `trust_required`
    is how far a caller must be trusted. A call that takes longer than `timeout_seconds` has failed. Only calls of an `idempotent`
    capability are repeated elsewhere when it is not known whether they ran. `description` and `side_effects` are for those who
    make a tool of it.
    """

    name: str
    version: tuple[int, int] = (1, 0)
    request_schema: Schema = field(default_factory=dict[str, Json])
    response_schema: Schema | None = None
    stream_schema: Schema | None = None
    description: str = ""
    stability: Literal["stable", "beta", "experimental", "deprecated"] = "stable"
    params: Mapping[str, Json] = field(default_factory=dict[str, Json])
    max_concurrent: int = 16
    trust_required: Trust = "member"
    timeout_seconds: float = 30.0
    idempotent: bool = False
    side_effects: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        prefix = self.name.partition(".")[0]
        if prefix not in PREFIXES and prefix != EXPERIMENTAL:
            raise BusError(
                "namespace_violation", f"{self.name}: names begin with {EXPERIMENTAL}., or one of {', '.join(sorted(PREFIXES))}"
            )
        for what in ("request_schema", "response_schema", "stream_schema"):
            try:
                check_schema(getattr(self, what) or {}, what)
            except UnsupportedSchema as error:
                raise BusError("schema_invalid", f"{self.name}: {what}: {error}") from error
        if self.max_concurrent < 1 or self.timeout_seconds <= 0:
            raise BusError("bad_request", f"{self.name}: max_concurrent and timeout_seconds must be positive")

    @property
    def reference(self) -> str:
        return write_reference(self.name, self.version)

    @property
    def schema_hash(self) -> str:
        """What tells these schemas from others: providers whose hashes are equal can answer for each other."""
        definition = {"name": self.name, "version": list(self.version), "request_schema": self.request_schema}
        definition |= {"response_schema": self.response_schema, "stream_schema": self.stream_schema}
        return f"sha256:{sha256(canonical(definition)).hexdigest()}"

    def check_request(self, body: Mapping[str, Json]) -> None:
        if self.request_schema and (complaints := validate(self.request_schema, body)):
            raise _mismatch(f"the body for {self.name}", complaints)

    def check_response(self, answer: Mapping[str, Json]) -> None:
        if self.response_schema and (complaints := validate(self.response_schema, answer)):
            raise _mismatch(f"the answer of {self.name}", complaints)

    def check_frame(self, frame: Frame) -> None:
        if self.stream_schema and (complaints := validate(self.stream_schema, {"event": frame.event, "data": frame.data})):
            raise _mismatch(f"the frame {frame.event!r} of {self.name}", complaints)


def _mismatch(what: str, complaints: Iterable[Complaint]) -> BusError:
    return BusError("schema_mismatch", f"{what} does not fit its schema: {'; '.join(map(str, complaints))}")


def offers_params(offered: Mapping[str, Json], requested: Mapping[str, Json]) -> bool:
    """Whether a provider has what a call asks for: where it says what it has of a parameter, that must be among it."""
    for name, value in requested.items():
        known = offered.get(name)
        if isinstance(known, list):
            if value not in known:
                return False
        elif known is not None and known != value:
            return False
    return True


_NAMES = tuple(item.name for item in fields(Descriptor))


def write_descriptor(descriptor: Descriptor) -> dict[str, Json]:
    """All that a descriptor says."""
    values = {name: getattr(descriptor, name) for name in _NAMES}
    return {**values, "version": write_version(descriptor.version), "params": dict(descriptor.params)}


def read_descriptor(value: Json) -> Descriptor:
    """The descriptor in this JSON; what it says besides is passed over. A BusError says what is wrong with it."""
    try:
        data = Fields.of(value, "").data
        known: dict[str, Any] = {name: data[name] for name in _NAMES if name in data}
        seconds: Json = known.get("timeout_seconds")
        if isinstance(seconds, int) and not isinstance(seconds, bool):
            known["timeout_seconds"] = float(seconds)
        known["version"] = parse_version(known.get("version"))
        return Descriptor(**known)
    except BusError:
        raise
    except (CallsmithError, TypeError, ValueError) as error:
        raise BusError("bad_request", f"this is no descriptor of a capability: {error}") from error
