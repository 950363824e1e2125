"""What every dialect of the server serves: models by name, tools of the server's own, and one way to answer a request.

| the request brings tools | the server has tools | who runs the calls |
|---|---|---|
| no | no | nobody: there is only text |
| yes | no, or yes | the client: the answer ends with its calls |
| no | yes | the server: the answer is one text |
| yes, and asks for `mixed` | yes | each its own: the answer ends where the client has something to run |

A request may ask for only some of the server's tools (`ToolOptions.sources`): then those are on, beside its own.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

from starlette.exceptions import HTTPException

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.port import Authenticator
from callsmith.core.capability.authority import Authority
from callsmith.core.capability.prompt_cache import cache_salt
from callsmith.core.choice import JOB_RESULT
from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.events import ModelEvent, RunEvent, TurnEnded
from callsmith.core.ports import Context, Model, Toolset, model_info
from callsmith.core.values import Completion, Message, Request, Tool
from callsmith.models.router import Aliases, in_use, model_status
from callsmith.runtime.discovery.find_tools import ToolCosts, limit_shown_tools
from callsmith.runtime.guards.guards import guarded
from callsmith.runtime.jobs.background import BackgroundTools
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.runtime.telemetry.trace import CombinedRecorder, Trace
from callsmith.runtime.telemetry.turns import Recorder, TurnInfo, recording
from callsmith.server.approvals.approval_run import ApprovalRun
from callsmith.server.approvals.approvals import Approvals, PausedRun
from callsmith.server.http.body_reader import BodyReader
from callsmith.server.http.keys import matches
from callsmith.server.http.request_context import caller, client, client_session, current_request, request_id
from callsmith.server.http.sockets import OpenSockets
from callsmith.server.http.streams import EventStream
from callsmith.server.limits.admission import AdmissionGate, Place
from callsmith.server.limits.rate_limits import RateLimits, TokenCounter
from callsmith.server.network.origins import is_loopback
from callsmith.server.recent_turns import RecentTurns
from callsmith.server.settings import EVERYTHING, CallerLimits, Settings, merged_limits
from callsmith.server.store import AuditLog, SqliteStore, Store
from callsmith.server.tools.mixed import HiddenRound, HiddenRounds
from callsmith.server.tools.one_answer import AnswerEvent, OneAnswer
from callsmith.server.tools.plan import ListedOnce, RunPlan, offered_tools
from callsmith.server.tools.step_log import StepLog
from callsmith.server.tools.tool_selection import select_tools
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Filtered, Merged
from callsmith.wire.extensions import DEFAULT_OPTIONS, TOOL_EVENTS, ToolOptions
from callsmith.wire.model_lists.listed_model import ListedModel

DEFAULT_MODEL = "default"  # another name for the first model, unless an alias says otherwise


@dataclass(frozen=True, slots=True)
class Service:
    """The models, the server's own tools, the settings, what is remembered, and what was asked and done.

    `bus` has the capabilities that can be called; `authenticator` checks signatures and tokens of calls, if they are taken.
    `starter` are tools for requests that ask for them, where the server was given none. `on_shutdown` is what is left to be
    done when the server ends.
    """

    models: Mapping[str, Model]
    tools: Toolset | None
    settings: Settings
    trace: Trace = field(default_factory=Trace)
    turns: RecentTurns = field(default_factory=RecentTurns)
    store: Store = field(default_factory=SqliteStore)
    audit: AuditLog | None = None
    gate: AdmissionGate = field(default_factory=AdmissionGate)
    rates: RateLimits = field(default_factory=RateLimits)
    hidden_rounds: HiddenRounds = field(default_factory=HiddenRounds)
    costs: ToolCosts = field(default_factory=ToolCosts)
    jobs: Jobs = field(default_factory=Jobs)
    mcp: McpHost | None = None
    starter: Toolset | None = None
    bodies: BodyReader = field(default_factory=BodyReader)
    bus: CapabilityBus = field(default_factory=CapabilityBus)
    authenticator: Authenticator | None = None
    sockets: OpenSockets = field(default_factory=OpenSockets)
    aliases: Aliases = field(default_factory=Aliases)
    began: int = field(default_factory=lambda: int(time.time()))
    on_shutdown: list[Callable[[], Awaitable[None]]] = field(default_factory=list[Callable[[], Awaitable[None]]])

    @property
    def configured(self) -> Mapping[str, str]:
        """The MCP servers that are configured, whether they run or not: label → url."""
        return self.mcp.urls if self.mcp else {}

    def for_request(self) -> "Service":
        """The same service for one request, in which the tools are listed only once."""
        return self if self.tools is None else replace(self, tools=ListedOnce(self.tools))

    def visible_models(self) -> list[str]:
        """The names of the models that the caller may use."""
        http = current_request()
        return [name for name in self.models if http is None or matches(name, http.models)]

    def visible_aliases(self) -> dict[str, str]:
        """The aliases of those models, each with the model it means; patterns are not among them."""
        visible = set(self.visible_models())
        return {alias: name for alias, name in self.aliases.exact.items() if name in visible}

    def model_name(self, name: str) -> str:
        """The name of the model that is meant, perhaps by an alias: without one, or by `default`, the first that the caller may
        use. A name that means none for the caller is returned as it is."""
        if name in self.models:
            return name
        found = self.aliases.find(name or DEFAULT_MODEL)
        if found is not None and found in self.visible_models():
            return found
        return name if name not in ("", DEFAULT_MODEL) else next(iter(self.visible_models()), DEFAULT_MODEL)

    def model(self, name: str) -> Model:
        """The model of that name, if the caller may use it."""
        if name not in self.models:
            raise UnknownName("model", name, [*self.visible_models(), *self.visible_aliases()], field="model")
        if name not in self.visible_models():
            raise HTTPException(403, f"this key does not open the model {name!r}")
        return self.models[name]

    def listed_models(self) -> list[ListedModel]:
        """The models that the caller may use, and their aliases."""
        return [self.listed_model(name) for name in (*self.visible_models(), *self.visible_aliases())]

    def listed_model(self, name: str) -> ListedModel:
        """A model, by its name or by another, as lists have it."""
        meant = self.model_name(name)
        model = self.model(meant)
        alias = meant if name in self.aliases.exact else ""
        status = model_status(model)
        expires = None if status.expires_in is None else time.time() + status.expires_in
        return ListedModel(name if alias else meant, self.began, model_info(model), status.state == "loaded", alias, expires)

    def answer(self, model: Model, request: Request, options: ToolOptions = DEFAULT_OPTIONS) -> AsyncIterator[ModelEvent]:
        """The answer as one model would give it: `events` without what the tools did."""
        return _model_events(self.events(model, request, options))

    def events(self, model: Model, request: Request, options: ToolOptions = DEFAULT_OPTIONS) -> AsyncIterator[AnswerEvent]:
        """The answer, and what the server's own tools did for it.

        A run that waits for a person ends with a `ConfirmationNeeded`, unless the request wants to wait: what waits is in the
        store, and `resume` continues it.
        """
        request = replace(
            request,
            cache_salt=self._salt(request.cache_salt),
            caller=client(),
            affinity=request.affinity or client_session(),
        )
        if options.explains and request.explain is None:
            log = StepLog()
            return log.attached(self.events(model, replace(request, explain=log.add), options))
        if self.runs_no_tools(request, options):
            return self._pipeline(lambda admitted: self._ask_model(admitted, model, request))
        return self._pipeline(lambda admitted: self._run_tools(admitted.place, model, request, options))

    def complete(self, model: Model, completion: Completion) -> AsyncIterator[ModelEvent]:
        """The continuation of a plain text."""
        completion = replace(completion, cache_salt=self._salt(completion.cache_salt), caller=client())
        return _model_events(self._pipeline(lambda admitted: self._continue_text(admitted, model, completion)))

    def resume(self, paused: PausedRun) -> AsyncIterator[AnswerEvent]:
        """What comes after a pause, now that a person has decided. The caller has the lease on the run."""
        options = replace(paused.options, shows_tool_items=True)
        request = replace(paused.request, messages=paused.saved.messages)
        return self._pipeline(
            lambda admitted: self._run_tools(admitted.place, self.model(paused.model), request, options, paused)
        )

    async def load(self, model: Model) -> None:
        """Have a model loaded, as its first request would; it is admitted like one."""
        async with self.admission() as place, AsyncExitStack() as until_end:
            await place.deadline.wait_for(until_end.enter_async_context(in_use(model)))

    async def _pipeline(self, prepare: "Callable[[_Admitted], Awaitable[_Answering]]") -> AsyncIterator[AnswerEvent]:
        """The way of every request: admitted, prepared, answered under a deadline, recorded, and shown as one answer."""
        async with self.admission() as place, AsyncExitStack() as until_end:
            deadline = place.deadline
            answering = await deadline.wait_for(prepare(_Admitted(place, until_end)))
            with recording(self.recorder(), answering.asked) as turn, deadline:
                async with closing(answering.events) as events:
                    async for event in events:
                        deadline.pass_on()
                        turn.see(event)
                        for shown in answering.show(event):
                            yield shown
                        deadline.go_on()

    def admission(self) -> AbstractAsyncContextManager[Place]:
        """A place for an answer, as far as the caller may have one."""
        http, limits = current_request(), self.caller_limits()
        if http is not None:
            http.headers |= self.rates.admit(http.client, limits)
        return self.gate.admit(self.settings.queue, client(), limits, self.settings.request_seconds)

    def caller_limits(self) -> CallerLimits:
        """What the caller may use: the limits of their key, and for the others those that all have."""
        key, common = self.settings.keys.get(caller()), self.settings.callers
        return common if key is None else merged_limits(key, common)

    def stream(self, frames: AsyncIterator[bytes], failure: Callable[[BaseException], bytes], **options: Any) -> EventStream:
        """The response of these frames."""
        settings = self.settings
        return EventStream(frames, failure, keep_alive=settings.keep_alive, stalled=settings.stalled_seconds, **options)

    async def _ask_model(self, admitted: "_Admitted", model: Model, request: Request) -> "_Answering":
        """Nothing runs here: the model is asked, and its calls go back to the client."""
        request.choice.among(request.tools)
        asked = TurnInfo(self._name(model), request.tools, request.choice, external=True)
        opened = await admitted.until_end.enter_async_context(in_use(model))
        events = guarded(opened, None if self.settings.guards else ()).stream(request)
        return _Answering(events, asked, _unchanged)

    async def _continue_text(self, admitted: "_Admitted", model: Model, completion: Completion) -> "_Answering":
        opened = await admitted.until_end.enter_async_context(in_use(model))
        complete = model_info(opened).complete
        if complete is None:
            raise UsageError("this model answers messages only, it does not continue a text", field="model")
        return _Answering(complete(completion), TurnInfo(self._name(model), external=True), _unchanged)

    async def _run_tools(
        self, place: Place, model: Model, request: Request, options: ToolOptions, paused: PausedRun | None = None
    ) -> "_Answering":
        """The server runs its own tools, and calls of the client's go back."""
        client_tools, caller_id = request.tools, caller()
        async with in_use(model):  # and then whenever it is asked: tools, and persons, may take long
            plan = await self._plan(model, request, options, paused)
        shows_items = options.shows_tool_items
        answer = OneAnswer(shows_tool_items=shows_items, shows_drafts=shows_items and options.shows_events)
        # The client does not see what runs here before its own calls come back: it is put back into what it sends next.
        hides = bool(client_tools) and paused is None and not options.shows_tool_items
        if hides:
            plan = plan.restored(self.hidden_rounds.restore(caller_id, request.messages))
        due = () if paused else await plan.calls_for_results(self.jobs)
        added = (Message.assistant(calls=due),) if due else ()
        plan = plan.calling(added)

        def show(event: RunEvent) -> Iterable[AnswerEvent]:
            if hides and isinstance(event, TurnEnded) and answer.deferred:
                hidden = HiddenRound((*added, *event.messages), tuple(answer.waiting), plan.context.conversation)
                self.hidden_rounds.remember(caller_id, request.messages, answer.deferred, hidden)
            return answer.add(event)

        events = ApprovalRun(plan, self.approvals(), paused, place.wait_for_person).events()
        return _Answering(events, TurnInfo(plan.model_name, plan.request.tools, request.choice), show)

    async def _plan(self, model: Model, request: Request, options: ToolOptions, paused: PausedRun | None = None) -> RunPlan:
        """Which tools the request gets, and for whom they run."""
        available = self.open_tools(options) if self._offers_own(request, options) else Merged()
        selected, tighten = await select_tools(ListedOnce(available), options.sources, self.configured)
        listed = BackgroundTools(selected, self.jobs, self.settings.llm.tools_background)
        hidden, guards = self._hidden_tools(request), None if self.settings.guards else ()
        hidden_names = {tool.name for tool in hidden}
        pinned = [JOB_RESULT, *(tool.name for tool in request.tools if tool.name not in hidden_names)]
        shown, own = await limit_shown_tools(
            model, listed, self.costs, self.settings.llm.tools_budget, pinned=pinned, hidden=hidden, guards=guards
        )
        if paused is None:
            http = current_request()
            conversation, subject = request.session or (http.id if http else ""), caller()
        else:
            conversation, subject = paused.saved.id, paused.saved.subject
        return RunPlan(
            self._name(model),
            shown,
            own,
            replace(request, tools=offered_tools(await own.tools(), request.tools)),
            Context(conversation=conversation, subject=subject, tighten=tighten, authority=self.authority_of(subject)),
            options,
            self.settings.limits,
            request.tools,
        )

    def authority_of(self, subject: str) -> Authority:
        """What a caller's key allows on the bus: nothing, if it is gone. Where no keys are needed: whoever is at this machine is
        trusted like its operator."""
        if self.settings.keys:
            key = self.settings.keys.get(subject)
            return Authority(subject, trust=key.trust if key else "unknown", capabilities=key.capabilities if key else ())
        return Authority(subject, trust="trusted" if is_loopback(self.settings.host) else "member")

    def approvals(self) -> Approvals:
        """The approvals of the caller."""
        return self.approvals_of(caller())

    def approvals_of(self, subject: str) -> Approvals:
        """The approvals of any caller."""
        return Approvals(self.store, subject, self.settings.approval_seconds)

    def visible_callers(self) -> tuple[str, ...]:
        """The caller, and those on whose calls the caller may decide."""
        http = current_request()
        key, own = (http.key, http.subject) if http else (None, "")
        if key is None or "approver" not in key.scopes:
            return (own,)
        return (own, *(name for name in self.settings.keys if name != own and matches(name, key.approves_for)))

    async def count(self, model: Model, request: Request, options: ToolOptions = DEFAULT_OPTIONS) -> int | None:
        """How many tokens such a request is, with the tools the model would be shown first; None if the model cannot tell."""
        async with self.admission() as place:
            return await place.deadline.wait_for(self._count(model, request, options))

    async def _count(self, model: Model, request: Request, options: ToolOptions) -> int | None:
        async with in_use(model):
            if model_info(model).count is None:
                return None
            if not self.runs_no_tools(request, options):
                plan = await self._plan(model, request, options)
                model, request = plan.model, plan.request
            count = model_info(model).count
            return None if count is None else await count(request)

    def runs_no_tools(self, request: Request, options: ToolOptions) -> bool:
        """Whether nothing runs here: there is only the model, and perhaps tools of the client's that are all shown."""
        return not self._offers_own(request, options) and not self._hidden_tools(request)

    def _offers_own(self, request: Request, options: ToolOptions) -> bool:
        """Whether the model is offered tools of the server's own."""
        mixed = bool(options.sources) or (options.mode or self.settings.llm.tool_mode) == "mixed"
        return (self.own_tools(options) is not None or bool(options.sources)) and (mixed or not request.tools)

    def _hidden_tools(self, request: Request) -> tuple[Tool, ...]:
        """The client's tools that the model has to find: those that are deferred, or all of them where they are too many."""
        if request.choice.mode == "none":
            return ()
        most = self.settings.llm.client_tools_shown
        return tuple(tool for tool in request.tools if tool.deferred or (most is not None and len(request.tools) > most))

    def _salt(self, given: str) -> str:
        """Who may reuse what is cached of a prompt: the same key, and of its requests those with the same `cache_salt`."""
        return cache_salt("" if self.settings.llm.share_prompt_cache else caller(), given)

    def recorder(self) -> Recorder:
        """What records the turns of the request that is being answered."""
        http = current_request()
        of_request = [http, TokenCounter(self.rates, http.client, self.caller_limits())] if http else []
        recent = self.turns.recorder(caller(), request_id())
        return CombinedRecorder(self.trace, recent, *self.settings.recorders, *of_request)

    def _name(self, model: Model) -> str:
        return next((name for name, one in self.models.items() if one is model), "")

    async def offered(self, options: ToolOptions = DEFAULT_OPTIONS) -> tuple[Tool, ...]:
        """Those of the server's own tools that such a request is offered."""
        selected, _ = await select_tools(self.open_tools(options), options.sources, self.configured)
        return tuple(await selected.tools())

    async def visible_tools(self) -> Sequence[Tool]:
        """The server's tools that the caller may use."""
        return await self.open_tools().tools()

    def own_tools(self, options: ToolOptions) -> Toolset | None:
        """The tools that the server was given; where there are none, the starter tools, if the request asks for them."""
        return self.starter if self.tools is None and options.starter else self.tools

    def open_tools(self, options: ToolOptions = DEFAULT_OPTIONS) -> Toolset:
        """The server's tools that the caller may use."""
        http, tools = current_request(), self.own_tools(options) or Merged()
        tools = Filtered(tools, allow=http.tools) if http and http.tools != EVERYTHING else tools
        return tools if options.allowed is None else Filtered(tools, allow=options.allowed)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A request that is answered now: its place, and what is released at the end of its answer."""

    place: Place
    until_end: AsyncExitStack


@dataclass(frozen=True, slots=True)
class _Answering:
    """An answer about to be given: its events, what is recorded of it, and what the client is shown of each event."""

    events: AsyncIterator[RunEvent]
    asked: TurnInfo
    show: Callable[[RunEvent], Iterable[AnswerEvent]]


def _unchanged(event: RunEvent) -> Iterable[AnswerEvent]:
    return (cast(ModelEvent, event),)  # a model's own events


async def _model_events(events: AsyncIterator[AnswerEvent]) -> AsyncIterator[ModelEvent]:
    """The answer without what the tools did."""
    async with closing(events):
        async for event in events:
            if not isinstance(event, TOOL_EVENTS):
                yield event
