"""Scope: which calls a capability token allows.

{"capabilities": ["rag.query@1.0"], "params_constraints": {"corpus": ["village"]}, "rate_limit_per_minute": 60,
 "max_calls_total": 100}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Version, canonical, parse_reference, satisfies, write_reference
from callsmith.wire.capability.errors import BusError

SCOPE_FIELDS = ("capabilities", "params_constraints", "rate_limit_per_minute", "max_calls_total")
_MOST = 2**53 - 1


@dataclass(frozen=True)
class Scope:
    """What a token allows: these capabilities, and of each parameter that is constrained only the values listed.

    `rag.query@1.2` allows calls of providers of 1.2 and later minor versions, as a call that asks for 1.2 would be answered by
    them. `rate_limit_per_minute` and `max_calls_total` bound how often the token is used; None: they do not.
    """

    capabilities: tuple[str, ...]
    params_constraints: Mapping[str, tuple[Json, ...]] = field(default_factory=dict[str, tuple[Json, ...]])
    rate_limit_per_minute: int | None = None
    max_calls_total: int | None = None

    def __post_init__(self) -> None:
        if not self.capabilities:
            raise BusError("bad_request", "a scope has at least one capability, such as rag.query@1.0")
        for name in ("rate_limit_per_minute", "max_calls_total"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= _MOST):  # a bool is no number here
                raise BusError("bad_request", f"{name} of a scope is a whole number from 1 on")
        _ = self._granted, self._allowed  # whatever is wrong with them is wrong now

    @cached_property
    def _granted(self) -> Mapping[str, tuple[Version, ...]]:
        """The versions granted of each capability."""
        granted: dict[str, tuple[Version, ...]] = {}
        for text in self.capabilities:
            name, version = parse_reference(text)
            if write_reference(name, version) != text:
                raise BusError("bad_request", f"{text!r} in a scope: write it as {write_reference(name, version)}")
            granted[name] = (*granted.get(name, ()), version)
        return granted

    @cached_property
    def _allowed(self) -> Mapping[str, frozenset[bytes]]:
        """The values allowed of each parameter, as canonical JSON: 1 and 1.0 are the same, 1 and true are not."""
        return {name: frozenset(map(canonical, values)) for name, values in self.params_constraints.items()}

    def covers(self, capability: str, version: Version, params: Mapping[str, Json]) -> bool:
        """Whether a call is allowed. A constrained parameter that the call leaves out is not."""
        return self.grants(capability, version) and all(
            name in params and canonical(params[name]) in allowed for name, allowed in self._allowed.items()
        )

    def grants(self, capability: str, version: Version) -> bool:
        """Whether calls of a capability are allowed, with some params at least."""
        return any(satisfies(version, granted) for granted in self._granted.get(capability, ()))

    def is_within(self, other: "Scope") -> bool:
        """Whether everything that this scope allows is allowed by the other one too."""
        return (
            all(other.grants(name, version) for name, versions in self._granted.items() for version in versions)
            and all(name in self._allowed and self._allowed[name] <= allowed for name, allowed in other._allowed.items())
            and _is_at_most(self.rate_limit_per_minute, other.rate_limit_per_minute)
            and _is_at_most(self.max_calls_total, other.max_calls_total)
        )


def _is_at_most(value: int | None, most: int | None) -> bool:
    return most is None or (value is not None and value <= most)


def write_scope(scope: Scope) -> dict[str, Json]:
    """The scope as JSON; what bounds nothing is left out."""
    constraints = {name: list(values) for name, values in scope.params_constraints.items()}
    fields: dict[str, Json] = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    fields |= {"capabilities": list(scope.capabilities), "params_constraints": constraints}
    return {name: value for name, value in fields.items() if value}


def read_scope(value: Json) -> Scope:
    """The scope in this JSON; a BusError bad_request for anything else, also for bounds that are not known here."""
    if not isinstance(value, dict) or not (entries := cast(dict[str, Json], value)).keys() <= {*SCOPE_FIELDS}:
        raise BusError("bad_request", f"a scope is an object with {', '.join(sorted(SCOPE_FIELDS))}")
    capabilities, constraints = entries.get("capabilities"), entries.get("params_constraints")
    if not isinstance(capabilities, list) or not isinstance(constraints, dict | None):
        raise BusError("bad_request", "of a scope capabilities is an array, and params_constraints an object of arrays")
    allowed = cast(dict[str, Json], constraints or {})
    if not all(isinstance(values, list) for values in allowed.values()):
        raise BusError("bad_request", "params_constraints of a scope has an array of allowed values for each parameter")
    return Scope(
        tuple(cast(list[str], capabilities)),
        {name: tuple(cast(list[Json], values)) for name, values in allowed.items()},
        entries.get("rate_limit_per_minute"),
        entries.get("max_calls_total"),
    )
