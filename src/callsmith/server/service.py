"""What every dialect of the server serves: models by name, tools of the server's own, and one way to answer a request."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from callsmith.core.errors import UnknownName
from callsmith.core.events import (
    ConfirmationNeeded,
    ModelEvent,
    Report,
    RunEvent,
    Stopped,
    StopReason,
    Text,
    Thought,
    TurnEnded,
    Unreadable,
)
from callsmith.core.ports import Model, Toolset
from callsmith.core.values import Request
from callsmith.runtime.closing import closing
from callsmith.runtime.execute import Limits
from callsmith.runtime.guards import guarded
from callsmith.runtime.loop import run
from callsmith.runtime.telemetry import Asked, Recorder, watched
from callsmith.runtime.trace import Several, Trace
from callsmith.server.store import SqliteStore, Store


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server behaves, whatever it serves."""

    largest_body: int = 32 * 1024 * 1024  # bytes
    keep_alive: float = 15.0  # seconds of silence after which a stream sends a comment
    limits: Limits = field(default_factory=Limits)
    guards: bool = True  # around models that need them, where their calls are run here
    recorders: tuple[Recorder, ...] = ()  # who takes down turns besides the trace


@dataclass(frozen=True, slots=True)
class Service:
    """The models, the server's own tools, the settings, what is remembered, and the trace of what was asked and done."""

    models: Mapping[str, Model]
    tools: Toolset | None
    settings: Settings
    trace: Trace = field(default_factory=Trace)
    store: Store = field(default_factory=SqliteStore)

    def model(self, name: str) -> Model:
        if name not in self.models:
            raise UnknownName("model", name, self.models, field="model")
        return self.models[name]

    def answer(self, model: Model, request: Request) -> AsyncIterator[ModelEvent]:
        """The answer, as one model would give it.

        A request that brings tools gets its calls back, to run them itself. One that brings none has the server's own tools
        run here and sees only what is said, as a single answer.
        """
        name = next((name for name, one in self.models.items() if one is model), "")
        recorder, asked = Several(self.trace, *self.settings.recorders), Asked(name, request.tools, request.choice)
        if request.tools or self.tools is None:
            return _direct(model, request, recorder, replace(asked, external=True))
        guarding = guarded(model) if self.settings.guards else model
        return _seamless(_run(guarding, self.tools, request, self.settings.limits, recorder, asked))


# Why one answer ended, where a run has ended in a way of its own.
_ONE_ANSWER: Mapping[StopReason, StopReason] = {"limit": "length", "confirmation": "stop"}


async def _direct(model: Model, request: Request, recorder: Recorder, asked: Asked) -> AsyncIterator[ModelEvent]:
    request.choice.among(request.tools)
    async with closing(watched(model.stream(request), recorder, asked)) as events:
        async for event in events:
            yield event


async def _run(
    model: Model, tools: Toolset, request: Request, limits: Limits, recorder: Recorder, asked: Asked
) -> AsyncIterator[RunEvent]:
    offered = tuple(await tools.tools())
    happening = run(model, tools, replace(request, tools=offered), limits=limits)
    async with closing(watched(happening, recorder, replace(asked, tools=offered))) as events:
        async for event in events:
            yield event


async def _seamless(happening: AsyncIterator[RunEvent]) -> AsyncIterator[ModelEvent]:
    """A run as one answer."""
    said = ""  # the end of what was said before the tools ran: the next words must not stick to it
    pause, report = False, Report()
    async with closing(happening) as events:
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
                    pause, report = True, report + event.report
                case ConfirmationNeeded(call=call):
                    yield Text(f"\n\n({call.name} has not been run: it has to be confirmed first, and here nobody can be asked.)")
                case TurnEnded(_, reason, usage):
                    yield Stopped(_ONE_ANSWER.get(reason, reason), usage, report)
                case _:
                    pass  # the tools at work: not part of this dialect's answer
