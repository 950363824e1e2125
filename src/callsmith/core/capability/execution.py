"""Execution: the record of a tool or a capability that runs for somebody. Audit logs are made of them."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from callsmith.core.types.json_types import Json


@dataclass(frozen=True, slots=True)
class Execution:
    """What runs, for whom, and its outcome: `outcome` is empty while it runs, then "ok" or the code of the failure.

    `id` is the same in the record of the start and in that of the end. `digest` is that of the tool's definition, `arguments` a
    hash of what it runs with (`hash_arguments`): the arguments themselves are not recorded. `subject` is the caller, `via` are
    the nodes that passed the call on. `approved`: a person had to agree and did, `approved_by` is who, where that is known.
    `began` is in seconds since the epoch. `bound_…` is the capability that a tool is bound to, `target_…` the one that
    llm.tools.call was to call, each with its version, as in "1.0".
    """

    id: str
    kind: Literal["tool", "capability"]
    name: str
    arguments: str
    began: float
    source: str = ""
    digest: str = ""
    side_effects: bool = False
    subject: str = ""
    via: tuple[str, ...] = ()
    conversation: str = ""
    trace_id: str = ""
    approved: bool = False
    approved_by: str = ""
    outcome: str = ""
    seconds: float | None = None
    bound_capability: str = ""
    bound_version: str = ""
    target_capability: str = ""
    target_version: str = ""


# Called for every execution: right before it starts, and once it has ended. It starts when this returns, and not if this raises.
Audit: TypeAlias = Callable[[Execution], Awaitable[None]]


def hash_arguments(arguments: Json) -> str:
    """A hash of arguments, the same for the same JSON whatever the order of its keys."""
    return sha256(json.dumps(arguments, sort_keys=True, default=dict).encode("utf-8", "surrogatepass")).hexdigest()
