"""A model of ours, asked as frameworks ask: in the words of OpenAI's chat completions, which all of them can write."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from callsmith.core.closing import closing
from callsmith.core.errors import TimedOut, UsageError
from callsmith.core.events import ModelEvent
from callsmith.core.ports import Model, ModelInfo, OpenedModel, model_info
from callsmith.core.types.field_checks import check_argument
from callsmith.core.types.json_types import Json
from callsmith.models.opening import Options, describe_model, open_model
from callsmith.runtime.deadline import DeadlinePassed, with_deadline
from callsmith.runtime.guards.guards import guard_model
from callsmith.wire.openai.chat import read_request

_CHOICES = ("auto", "none", "required", "any")


def write_choice(choice: str | bool | Mapping[str, Any], names: Sequence[str]) -> Any:
    """A tool choice as chat completions spell it; frameworks also name the tool alone, or say whether there must be a call."""
    if isinstance(choice, bool):
        return "required" if choice else "none"
    if isinstance(choice, str) and (choice in names or choice not in _CHOICES):
        return {"type": "function", "function": {"name": choice}}
    return choice


class AskedModel:
    """A model, or the spec of one, which is opened when it is first asked. Requests may name another spec under `model`."""

    def __init__(self, model: Model | str, options: Options = Options()) -> None:
        check_argument("model", model, Model | str, "a spec like 'qwen2.5-coder-1.5b', or what open_model('…') returns")
        self._model = model
        self._options = check_argument("options", options, Options)
        self._opened: dict[str, OpenedModel] = {}
        self._lock = threading.Lock()

    def of(self, model: Model | str, options: Options) -> "AskedModel":
        """This model, or the one that somebody has put in its place; the two share what is open, if it is opened alike."""
        if options == self._options and (model is self._model or (isinstance(model, str) and model == self._model)):
            return self
        other = AskedModel(model, options)
        if options == self._options:
            other._opened, other._lock = self._opened, self._lock
        return other

    def __deepcopy__(self, memo: object) -> "AskedModel":
        return self  # a copy asks what is open

    @property
    def name(self) -> str:
        """What the model is called."""
        return self._model if isinstance(self._model, str) else model_info(self._model).name or type(self._model).__name__

    @property
    def info(self) -> ModelInfo:
        """What is known of the model. Nothing is opened for it."""
        if not isinstance(self._model, str):
            return model_info(self._model)
        opened = self._opened.get(self._model)
        return describe_model(self._model, self._options) if opened is None else opened.info

    async def stream(self, body: Mapping[str, Json], *, seconds: float | None = None) -> AsyncIterator[ModelEvent]:
        """The answer to the body of a chat completion. A UsageError names the field that is wrong.

        The guards that the model is known to need are those it has behind the server. After `seconds`, it is a `TimedOut`.
        """
        chat = read_request(body)
        model = await asyncio.to_thread(self._open, chat.model)
        events = guard_model(model).stream(chat.request)
        if seconds is not None:
            events = with_deadline(events, asyncio.get_running_loop().time() + seconds)
        try:
            async with closing(events) as running:
                async for event in running:
                    yield event
        except DeadlinePassed:
            raise TimedOut(f"{self.name} has not answered within {seconds:g} s") from None

    async def count(self, body: Mapping[str, Json]) -> int:
        """The tokens of the prompt that such a body becomes."""
        chat = read_request(body)
        count = model_info(await asyncio.to_thread(self._open, chat.model)).count
        if count is None:
            raise UsageError(f"{self.name} cannot count tokens")
        return await count(chat.request)

    async def close(self) -> None:
        """Close what was opened here; a model that was given stays open."""
        with self._lock:
            opened = list(self._opened.values())
            self._opened.clear()
        for model in opened:
            await model.close()

    def _open(self, spec: str = "") -> Model:
        """The model of this spec; without one, the model that is asked."""
        if not isinstance(self._model, str) and spec in ("", self.name):
            return self._model
        spec = spec or self.name
        with self._lock:
            if spec not in self._opened:
                self._opened[spec] = open_model(spec, self._options)
            return self._opened[spec]
