"""What all guards are: a model around a model."""

from collections.abc import AsyncIterator
from dataclasses import replace

from callsmith.core.events import ModelEvent
from callsmith.core.ports import Model, ModelInfo, model_info
from callsmith.core.values import Request


class Guard:
    """A model around a model, of which the same is known but that it needs no guards any more. By itself it guards nothing."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def info(self) -> ModelInfo:
        return replace(model_info(self._model), guards=())

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        return self._model.stream(request)
