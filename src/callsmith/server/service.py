"""What every dialect of the server serves: models by name, tools of the server's own, and one way to answer a request.

| the request brings tools | the server has tools | who runs the calls |
|---|---|---|
| no | no | nobody: there is only text |
| yes | no, or yes | the client: the answer ends with its calls |
| no | yes | the server: the answer is one text |
| yes, and asks for `mixed` | yes | each its own: the answer ends where the client has something to run |
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from starlette.exceptions import HTTPException

from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName
from callsmith.core.events import ModelEvent, RunEvent
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.values import Call, Request, Tool
from callsmith.runtime.guards import guarded
from callsmith.runtime.loop import run
from callsmith.runtime.telemetry import Asked, Recorder, watched
from callsmith.runtime.trace import Several, Trace
from callsmith.server.admission import Door, in_time
from callsmith.server.exchange import current
from callsmith.server.keys import matches
from callsmith.server.mixed import Hidden, WithClients, setting_aside
from callsmith.server.seamless import Shown, only_said, seamless
from callsmith.server.settings import EVERYTHING, Llm, Settings
from callsmith.server.store import SqliteStore, Store
from callsmith.tools.wrap import Confirmed, Filtered
from callsmith.wire.tool_events import ToolMode

__all__ = ["STANDARD_WISH", "Service", "Settings", "Wish", "own_tools"]


@dataclass(frozen=True, slots=True)
class Wish:
    """How a request wants tools to be dealt with, where it says so. `session`: the conversation it is a part of."""

    mode: ToolMode | None = None
    session: str = ""


STANDARD_WISH = Wish()


@dataclass(frozen=True, slots=True)
class Service:
    """The models, the server's own tools, the settings, what is remembered, and the trace of what was asked and done."""

    models: Mapping[str, Model]
    tools: Toolset | None
    settings: Settings
    trace: Trace = field(default_factory=Trace)
    store: Store = field(default_factory=SqliteStore)
    door: Door = field(default_factory=Door)
    hidden: Hidden = field(default_factory=Hidden)

    def visible(self) -> list[str]:
        """The names of the models that are open to whoever asks."""
        exchange = current()
        return [name for name in self.models if exchange is None or matches(name, exchange.models)]

    def model(self, name: str) -> Model:
        """The model of that name, if it is open to whoever asks."""
        if name not in self.models:
            raise UnknownName("model", name, self.visible(), field="model")
        if name not in self.visible():
            raise HTTPException(403, f"this key does not open the model {name!r}")
        return self.models[name]

    def answer(self, model: Model, request: Request, wish: Wish = STANDARD_WISH) -> AsyncIterator[ModelEvent]:
        """The answer, as one model would give it: `happening` without what the tools did."""
        return only_said(self.happening(model, request, wish))

    def happening(self, model: Model, request: Request, wish: Wish = STANDARD_WISH) -> AsyncIterator[Shown]:
        """The answer and what the server's own tools did for it.

        A run that waits for a person's word ends with a `ConfirmationNeeded`. Whoever is to keep what waits watches the events of
        the run, as the trace does.
        """
        exchange = current()
        name = next((name for name, one in self.models.items() if one is model), "")
        recorder = Several(self.trace, *self.settings.recorders, *([exchange] if exchange else []))
        asked = Asked(name, request.tools, request.choice)
        mixed = (wish.mode or self.settings.llm.tool_mode) == "mixed"
        if self.tools is None or (request.tools and not mixed):
            shown = _direct(model, request, recorder, replace(asked, external=True))
        else:
            tools = Filtered(self.tools, allow=exchange.tools) if exchange and exchange.tools != EVERYTHING else self.tools
            subject, session = (exchange.subject, wish.session or exchange.id) if exchange else ("", wish.session)
            work = _Work(model, tools, request, Context(conversation=session, subject=subject))
            shown = self._inside(work, recorder, asked)
        timed = shown if self.settings.request_seconds is None else in_time(shown, self.settings.request_seconds)
        return self.door.admitted(timed, self.settings.queue)

    async def _inside(self, work: "_Work", recorder: Recorder, asked: Asked) -> AsyncIterator[Shown]:
        """A run here, of the server's tools and perhaps with the client's beside them."""
        request, clients, subject = work.request, work.request.tools, work.context.subject
        tools, aside = WithClients(work.tools, clients) if clients else work.tools, list[Call]()
        offered = await _offered(tools, clients)
        history = self.hidden.restored(subject, request.messages) if clients else request.messages
        events: AsyncIterator[RunEvent] = run(
            guarded(work.model) if self.settings.guards else work.model,
            tools,
            replace(request, messages=history, tools=offered),
            limits=self.settings.limits,
            context=work.context,
        )
        if clients:
            events = self.hidden.remembering(setting_aside(events, clients, aside), subject, request.messages, aside)
        async with closing(seamless(watched(events, recorder, replace(asked, tools=offered)), aside)) as shown:
            async for event in shown:
                yield event


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be run, and for whom."""

    model: Model
    tools: Toolset
    request: Request
    context: Context


def own_tools(tools: Toolset | None, llm: Llm) -> Toolset | None:
    """The server's own tools as the settings want them. A toolset that already asks before it acts is left to its own policy."""
    if tools is None or not llm.tools_enabled:
        return None
    chosen = tools if llm.tools_default_set == EVERYTHING else Filtered(tools, allow=llm.tools_default_set)
    asks = isinstance(tools, Confirmed) or not llm.tools_require_confirmation_for_side_effects
    return chosen if asks else Confirmed(chosen)


async def _offered(tools: Toolset, clients: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """What the model is told of: the client's tools as the client describes them, and the server's."""
    described = {tool.name: tool for tool in clients}
    return tuple(described.get(tool.name, tool) for tool in await tools.tools())


async def _direct(model: Model, request: Request, recorder: Recorder, asked: Asked) -> AsyncIterator[ModelEvent]:
    request.choice.among(request.tools)
    async with closing(watched(model.stream(request), recorder, asked)) as events:
        async for event in events:
            yield event
