"""Which model is meant when none is named: the one of the catalogue, or a better one of the hub if the user wants it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from callsmith.core.errors import CallsmithError
from callsmith.core.options import DefaultModel
from callsmith.core.types.quantities import write_size
from callsmith.engines.memory import ROOM
from callsmith.models.weights.catalogue import default_model
from callsmith.models.weights.fetch import locate
from callsmith.models.weights.hub import parse, plan_first
from callsmith.models.weights.hub_models import HubModel, hub_models

HUB_SECONDS: Final = 2.0  # how long the hub may take to answer
_SHARE: Final = 2  # a model is only fetched if the free memory is this many times its size

AskHub: TypeAlias = Callable[[Sequence[HubModel]], Mapping[str, int] | None]  # sizes of those to be had; None: no answer


@dataclass(frozen=True, slots=True)
class DefaultChoice:
    """The model that was chosen, and why; without a reason there was nothing to choose. `size` is what would be fetched for it,
    and only if the user says yes where `is_question`."""

    name: str
    reason: str = ""
    size: int = 0
    is_question: bool = False


def choose_default(
    policy: DefaultModel, *, installed: Collection[str], room: int | None, can_ask: bool, ask_hub: AskHub
) -> DefaultChoice:
    """The model to take. `installed` are those on this machine, `room` is the free memory in bytes (None: not known), `can_ask`
    whether the user can be asked. What is on this machine wins, and the hub is asked only if it could make a difference."""
    own = default_model()
    if policy == "embedded" or (policy == "ask" and own in installed):
        return DefaultChoice(own)
    offered = _offered()
    for model in offered:
        if model.name in installed and (room is None or model.size * ROOM <= room):
            return DefaultChoice(model.name, "it is on this machine")
    if policy == "ask" and not can_ask:
        return DefaultChoice(own)
    if room is None:
        return DefaultChoice(own, "how much memory is free is not known here")
    fitting = [model for model in offered if _may_fetch(model.size, room)]
    if not fitting:
        return DefaultChoice(own, f"no better one fits into half of the free memory, {write_size(room)}")
    sizes = ask_hub(fitting)
    if sizes is None:
        return DefaultChoice(own, f"the hub has not answered within {HUB_SECONDS:g} seconds")
    for model in fitting:
        if model.name in sizes and _may_fetch(sizes[model.name], room):
            size = sizes[model.name]
            reason = f"the best of the hub that fits into half of the free memory, {write_size(room)}; it was not tried here"
            return DefaultChoice(model.name, reason, size, is_question=policy == "ask")
    return DefaultChoice(own, "the hub has no better one that fits and is open to everybody")


def ask_hub(models: Sequence[HubModel]) -> Mapping[str, int] | None:
    """The first of these that everybody may fetch from the hub, with its size; None if the hub does not answer in time."""
    named = {name: model for model in models if (name := parse(model.hub))}
    plan, has_answered = plan_first(list(named), HUB_SECONDS)
    if plan is None:
        return {} if has_answered else None
    return {named[plan.name].name: plan.size}


def find_candidates() -> set[str]:
    """The models on this machine that may be the default."""
    return {name for name in (default_model(), *(model.name for model in _offered())) if _is_here(name)}


def _offered() -> list[HubModel]:
    return [model for model in hub_models().values() if model.offered and model.is_open]


def _may_fetch(size: int, room: int) -> bool:
    return size * _SHARE <= room


def _is_here(name: str) -> bool:
    try:
        locate(name)
    except CallsmithError:
        return False
    return True
