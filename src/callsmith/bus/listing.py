"""Descriptors as JSON: how nodes tell each other, and clients, what is offered."""

from dataclasses import fields
from typing import Any

from callsmith.bus.descriptor import Descriptor
from callsmith.core.errors import CallsmithError
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import parse_version, write_version
from callsmith.wire.capability.errors import BusError
from callsmith.wire.fields import Fields

_NAMES = tuple(one.name for one in fields(Descriptor))


def write_descriptor(descriptor: Descriptor) -> dict[str, Json]:
    """All that a descriptor says."""
    written = {name: getattr(descriptor, name) for name in _NAMES}
    return {**written, "version": write_version(descriptor.version), "params": dict(descriptor.params)}


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
