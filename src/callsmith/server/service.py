"""What every dialect of the server serves: models by name, tools of the server's own, and one way to answer a request."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from callsmith.core.errors import UnknownName
from callsmith.core.events import ModelEvent, Stopped, Text, Thought, TurnEnded, Unreadable
from callsmith.core.ports import Model, Toolset
from callsmith.core.values import Request
from callsmith.runtime.closing import closing
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server behaves, whatever it serves."""

    largest_body: int = 32 * 1024 * 1024  # bytes
    keep_alive: float = 15.0  # seconds of silence after which a stream sends a comment
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Service:
    """The models, the server's own tools, and the settings."""

    models: Mapping[str, Model]
    tools: Toolset | None
    settings: Settings

    def model(self, name: str) -> Model:
        if name not in self.models:
            raise UnknownName("model", name, self.models, field="model")
        return self.models[name]

    def answer(self, model: Model, request: Request) -> AsyncIterator[ModelEvent]:
        """The answer, as one model would give it.

        A request that brings tools gets its calls back, to run them itself. One that brings none has the server's own tools
        run here and sees only what is said, as a single answer.
        """
        if request.tools or self.tools is None:
            return _direct(model, request)
        return _seamless(model, self.tools, request, self.settings.limits)


async def _direct(model: Model, request: Request) -> AsyncIterator[ModelEvent]:
    request.choice.among(request.tools)
    async with closing(model.stream(request)) as events:
        async for event in events:
            yield event


async def _seamless(model: Model, tools: Toolset, request: Request, limits: Limits) -> AsyncIterator[ModelEvent]:
    said = ""  # the end of what was said before the tools ran: the next words must not stick to it
    pause = False
    async with closing(run(model, tools, request, limits=limits)) as events:
        async for event in events:
            match event:
                case Text(text) | Unreadable(text):
                    if pause and said.strip() and not said.endswith("\n"):
                        yield Text("\n\n")
                    pause, said = False, text or said
                    yield Text(text)
                case Thought():
                    yield event
                case Stopped():
                    pause = True
                case TurnEnded(_, reason, usage):
                    yield Stopped(reason, usage)
                case _:
                    pass  # the tools at work: not part of this dialect's answer
