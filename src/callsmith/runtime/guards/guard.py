"""What all guards are, a model around a model; plug-in guards are entry points in the group `callsmith.guards`, or names.

    guards = ["small", "polite", "mypackage.guards:Polite"]      # in a preset

Either is a callable that makes a model of a model, such as a subclass of `Guard`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, cast

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent
from callsmith.core.ports import Model, ModelInfo, model_info
from callsmith.core.values import Request

GuardFactory: TypeAlias = Callable[[Model], Model]

GROUP = "callsmith.guards"


class Guard:
    """A model around a model, of which the same is known but that it needs no guards any more. By itself it guards nothing."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def info(self) -> ModelInfo:
        return replace(model_info(self._model), guards=())

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        return self._model.stream(request)


@cache
def installed_guards() -> Mapping[str, EntryPoint]:
    """The guards that packages offer, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def is_plugin_guard(name: str) -> bool:
    """Whether this names a guard that does not come with callsmith."""
    return ":" in name or name in installed_guards()


def load_plugin_guard(name: str) -> GuardFactory:
    """The guard of this name; a UsageError says why there is none."""
    entry = installed_guards().get(name) or EntryPoint(name, name, GROUP)
    try:
        factory: Any = entry.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"the guard {name!r} cannot be loaded: {error}", field="guards") from error
    if not callable(factory):
        raise UsageError(
            f"the guard {name!r} is a {type(factory).__name__}, and not a callable that takes a model", field="guards"
        )
    return cast(GuardFactory, factory)
