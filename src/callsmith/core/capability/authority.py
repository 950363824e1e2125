"""Authority: on whose behalf something runs, and how far that goes. It is inherited by every call that is made for it."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, cast

from callsmith.core.types.field_checks import check_fields

# How far a caller is trusted, from the least to the most; "self" is the node itself.
Trust: TypeAlias = Literal["unknown", "member", "trusted", "anchor", "self"]

_WILD = frozenset("*?[")
_LEVELS: dict[str, int] = {"unknown": 0, "member": 1, "trusted": 2, "anchor": 3, "self": 4}


def read_trust(text: str) -> Trust:
    """The level of this name; a ValueError if it is none."""
    if text not in _LEVELS:
        raise ValueError(f"expected one of {', '.join(_LEVELS)}")
    return cast(Trust, text)


def is_trusted(trust: Trust, required: Trust) -> bool:
    """Whether this level of trust is at least the required one."""
    return _LEVELS[trust] >= _LEVELS[required]


def least_trust(one: Trust, other: Trust) -> Trust:
    """The lower of two levels."""
    return one if _LEVELS[one] <= _LEVELS[other] else other


EVERYTHING = ("*",)  # the pattern of all capabilities


@check_fields
@dataclass(frozen=True, slots=True)
class Authority:
    """On whose behalf a call is made.

    `subject` is the user or node it began with, `via` are the nodes that passed it on, in their order. `trust` is the least trust
    that any of them has. `token` is the capability token that was presented, if any: its scope, and that of the tokens it was
    made from, bounds everything done with this authority. `capabilities` are patterns of the names of those that may be called
    with it, by whoever calls them. `trace_id` is that of the first call, `depth` how many calls this one is nested in, and
    `max_depth` how many it may be, where whoever began it here has said so: it is not sent to other nodes, which have their own.
    """

    subject: str = ""
    via: tuple[str, ...] = ()
    trust: Trust = "self"
    token: str = ""
    trace_id: str = ""
    depth: int = 0
    capabilities: tuple[str, ...] = EVERYTHING
    max_depth: int | None = None

    def may_call(self, capability: str) -> bool:
        """Whether a capability of this name is among those that may be called."""
        return "*" in self.capabilities or _fits(capability, self.capabilities)

    def narrow(self, trust: Trust, capabilities: tuple[str, ...]) -> "Authority":
        """This authority, as far as such trust and such patterns go as well."""
        if trust == "self" and capabilities == EVERYTHING:
            return self
        return replace(
            self, trust=least_trust(self.trust, trust), capabilities=_intersect_patterns(self.capabilities, capabilities)
        )

    def deeper(self, trace_id: str) -> "Authority":
        """The authority of calls that are made by the call with this trace id."""
        trace_id, depth = self.trace_id or trace_id, self.depth + 1
        return Authority(self.subject, self.via, self.trust, self.token, trace_id, depth, self.capabilities, self.max_depth)


def _intersect_patterns(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns of names that fit both; where that is unknown of a pattern, it is left out."""
    if "*" in one or "*" in other:
        return other if "*" in one else one
    pairs = ((one, other), (other, one))
    names = [name for these, those in pairs for name in these if not _WILD & set(name) and _fits(name, those)]
    return tuple(dict.fromkeys([*(pattern for pattern in one if pattern in other), *names]))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


SELF = Authority()
