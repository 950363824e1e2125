"""What every dialect of the server serves: models by name, tools of the server's own, and one way to answer a request.

| the request brings tools | the server has tools | who runs the calls |
|---|---|---|
| no | no | nobody: there is only text |
| yes | no, or yes | the client: the answer ends with its calls |
| no | yes | the server: the answer is one text |
| yes, and asks for `mixed` | yes | each its own: the answer ends where the client has something to run |

A request may want only some of the server's tools (`Wish.wanted`): then those are on, beside its own.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace

from starlette.exceptions import HTTPException

from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName
from callsmith.core.events import ModelEvent
from callsmith.core.ports import Context, Model, Toolset, model_info
from callsmith.core.values import Call, Request, Tool
from callsmith.runtime.discovery.find_tools import Costs, lazily
from callsmith.runtime.telemetry.trace import Several, Trace
from callsmith.runtime.telemetry.turns import Asked, Recorder, watched
from callsmith.server.approvals.approvals import Approvals, PausedRun
from callsmith.server.approvals.pausable_run import PausableRun, Work
from callsmith.server.http.admission import AdmissionGate, within
from callsmith.server.http.keys import matches
from callsmith.server.http.request_context import caller, current_request
from callsmith.server.settings import EVERYTHING, Llm, Settings
from callsmith.server.store import SqliteStore, Store
from callsmith.server.tools.mixed import HiddenRounds, WithClientTools, setting_aside
from callsmith.server.tools.one_answer import AnswerEvent, model_events, one_answer
from callsmith.server.tools.tool_selection import DEFAULT_OPTIONS, NO_RULES, ToolOptions, ToolSource, added_policy, check_sources
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Confirmed, Filtered, Merged

__all__ = ["DEFAULT_OPTIONS", "Service", "Settings", "ToolOptions", "ToolSource", "own_tools"]


@dataclass(frozen=True, slots=True)
class Service:
    """The models, the server's own tools, the settings, what is remembered, and the trace of what was asked and done."""

    models: Mapping[str, Model]
    tools: Toolset | None
    settings: Settings
    trace: Trace = field(default_factory=Trace)
    store: Store = field(default_factory=SqliteStore)
    gate: AdmissionGate = field(default_factory=AdmissionGate)
    hidden_rounds: HiddenRounds = field(default_factory=HiddenRounds)
    costs: Costs = field(default_factory=Costs)
    mcp: McpHost | None = None

    @property
    def configured(self) -> Mapping[str, str]:
        """The MCP servers that are configured, whether they run or not: label → url."""
        return self.mcp.addresses if self.mcp else {}

    def visible_models(self) -> list[str]:
        """The names of the models that are open to whoever asks."""
        exchange = current_request()
        return [name for name in self.models if exchange is None or matches(name, exchange.models)]

    def model(self, name: str) -> Model:
        """The model of that name, if it is open to whoever asks."""
        if name not in self.models:
            raise UnknownName("model", name, self.visible_models(), field="model")
        if name not in self.visible_models():
            raise HTTPException(403, f"this key does not open the model {name!r}")
        return self.models[name]

    def answer(self, model: Model, request: Request, wish: ToolOptions = DEFAULT_OPTIONS) -> AsyncIterator[ModelEvent]:
        """The answer, as one model would give it: `happening` without what the tools did."""
        return model_events(self.events(model, request, wish))

    def events(self, model: Model, request: Request, wish: ToolOptions = DEFAULT_OPTIONS) -> AsyncIterator[AnswerEvent]:
        """The answer and what the server's own tools did for it.

        A run that waits for a person's word ends with a `ConfirmationNeeded`, unless the request wants to wait: what waits is in
        the store, and `resumed` goes on with it.
        """
        exchange = current_request()
        request = replace(request, session=wish.session)
        if self.runs_no_tools(request, wish):
            asked = Asked(self._name(model), request.tools, request.choice, external=True)
            return self._admitted(_direct(model, request, self._recorder(), asked))
        subject, session = (exchange.subject, wish.session or exchange.id) if exchange else ("", wish.session)
        work = Work(model, self._open_tools(wish), request, Context(conversation=session, subject=subject), wish)
        return self._admitted(self._inside(work))

    def resume(self, paused: PausedRun) -> AsyncIterator[AnswerEvent]:
        """What comes after a pause, now that a person has said something. Whoever calls this holds the run."""
        saved, wish = paused.saved, replace(paused.wish, shows_tool_items=True)
        request = replace(paused.request, messages=saved.messages, session=paused.wish.session)
        context = Context(conversation=saved.id, subject=saved.subject)
        work = Work(self.model(paused.model), self._open_tools(wish), request, context, wish)
        return self._admitted(self._inside(work, paused))

    def approvals(self) -> Approvals:
        """The approvals of whoever asks."""
        return Approvals(self.store, caller(), self.settings.approval_seconds)

    async def count(self, model: Model, request: Request, wish: ToolOptions = DEFAULT_OPTIONS) -> int | None:
        """How many tokens such a request is, with the tools the model would be shown first; None if the model cannot tell."""
        count = model_info(model).count
        if count is None or self.runs_no_tools(request, wish):
            return None if count is None else await count(request)
        work = await _narrowed(Work(model, self._open_tools(wish), request, Context(), wish), self.configured)
        shown, own = await self._lazily(work)
        offered = await _offered(WithClientTools(own, request.tools) if request.tools else own, request.tools)
        count = model_info(shown).count
        return None if count is None else await count(replace(request, tools=offered))

    def runs_no_tools(self, request: Request, wish: ToolOptions) -> bool:
        """Whether nothing runs here: there is only the model, and perhaps tools of the client's."""
        mixed = bool(wish.sources) or (wish.mode or self.settings.llm.tool_mode) == "mixed"
        return (self.tools is None and not wish.sources) or (bool(request.tools) and not mixed)

    def _admitted(self, shown: AsyncIterator[AnswerEvent]) -> AsyncIterator[AnswerEvent]:
        timed = shown if self.settings.request_seconds is None else within(shown, self.settings.request_seconds)
        return self.gate.admit(timed, self.settings.queue)

    def _recorder(self) -> Recorder:
        exchange = current_request()
        return Several(self.trace, *self.settings.recorders, *([exchange] if exchange else []))

    def _name(self, model: Model) -> str:
        return next((name for name, one in self.models.items() if one is model), "")

    async def offered(self, wish: ToolOptions = DEFAULT_OPTIONS) -> tuple[Tool, ...]:
        """Those of the server's own tools that such a request is offered."""
        tools = await self._open_tools(wish).tools()
        check_sources(wish.sources, tools, self.configured)
        return tuple(tool for tool in tools if not wish.sources or any(one.covers(tool) for one in wish.sources))

    def _open_tools(self, wish: ToolOptions) -> Toolset:
        """The tools that are open to whoever asks."""
        exchange, tools = current_request(), self.tools or Merged()
        tools = Filtered(tools, allow=exchange.tools) if exchange and exchange.tools != EVERYTHING else tools
        return tools if wish.allowed is None else Filtered(tools, allow=wish.allowed)

    async def _inside(self, work: Work, paused: PausedRun | None = None) -> AsyncIterator[AnswerEvent]:
        """A run here, of the server's tools and perhaps with the client's beside them."""
        work = await _narrowed(work, self.configured)
        request, clients, subject = work.request, work.request.tools, work.context.subject
        model, own = await self._lazily(work)
        tools, aside = WithClientTools(own, clients) if clients else own, list[Call]()
        offered = await _offered(tools, clients)
        history, context = request.messages, work.context
        hides = (
            bool(clients) and paused is None and not work.wish.shows_tool_items
        )  # the client does not see what runs here meanwhile
        if hides:
            history, session = self.hidden_rounds.restored(subject, history)
            context = replace(context, conversation=work.wish.session or session or context.conversation)
        work = replace(
            work,
            model=model,
            tools=tools,
            request=replace(request, messages=history, tools=offered),
            context=context,
            name=self._name(work.model),
            limits=self.settings.limits,
            clients=frozenset(tool.name for tool in clients),
            sources={tool.name: tool.source for tool in offered},
        )
        events = PausableRun(work, self.approvals(), paused).events()
        if clients:
            events = setting_aside(events, clients, aside)
        if hides:
            events = self.hidden_rounds.remembering(events, (subject, context.conversation), request.messages, aside)
        asked = Asked(work.name, offered, request.choice)
        async with closing(one_answer(watched(events, self._recorder(), asked), aside, told=work.wish.shows_tool_items)) as shown:
            async for event in shown:
                yield event

    async def _lazily(self, work: Work) -> tuple[Model, Toolset]:
        """The model with its guards, and the server's tools: where they are too many to be shown, the model finds them."""
        budget, guards = self.settings.llm.tools_budget, None if self.settings.guards else ()
        pinned = [tool.name for tool in work.request.tools]
        return await lazily(work.model, work.tools, self.costs, budget, pinned=pinned, guards=guards)


async def _narrowed(work: Work, configured: Iterable[str]) -> Work:
    """The work with those tools that are wanted, and with the rules the request adds for them."""
    wanted = work.wish.sources
    if not wanted:
        return work
    tools = await work.tools.tools()
    check_sources(wanted, tools, configured)
    chosen: Toolset = Filtered(work.tools, allow=lambda tool: any(one.covers(tool) for one in wanted))
    tighten = added_policy(wanted, tools)
    if tighten is not None:
        chosen = Confirmed(chosen, NO_RULES)  # the operator's own may stand under other names, or there is none
    return replace(work, tools=chosen, context=replace(work.context, tighten=tighten))


def own_tools(tools: Toolset | None, llm: Llm, mcp: McpHost | None = None) -> Toolset | None:
    """The server's own tools as the settings want them. A toolset that already asks before it acts is left to its own policy."""
    if not llm.tools_enabled:
        return None
    ask = llm.tools_require_confirmation_for_side_effects
    if tools is not None and ask and not isinstance(tools, Confirmed):
        tools = Confirmed(tools)
    if mcp is not None:
        servers = Confirmed(mcp, mcp.policy if ask else replace(mcp.policy, side_effects="auto"))
        tools = servers if tools is None else Merged(("functions", tools), ("mcp", servers))
    if tools is None or llm.tools_default_set == EVERYTHING:
        return tools
    return Filtered(tools, allow=llm.tools_default_set)


async def _offered(tools: Toolset, clients: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """What the model is told of: the client's tools as the client describes them, and the server's."""
    described = {tool.name: tool for tool in clients}
    return tuple(described.get(tool.name, tool) for tool in await tools.tools())


async def _direct(model: Model, request: Request, recorder: Recorder, asked: Asked) -> AsyncIterator[ModelEvent]:
    request.choice.among(request.tools)
    async with closing(watched(model.stream(request), recorder, asked)) as events:
        async for event in events:
            yield event
