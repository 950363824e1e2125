"""The pipeline of every answer: admitted, prepared, given under a deadline, recorded, and shown as one answer."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import cast

from callsmith.core.capability.origin import Origin, cache_salt
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, RunEvent, TurnEnded
from callsmith.core.ports import Model, model_info
from callsmith.core.values import Completion, Message, Request
from callsmith.models.router import in_use
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.telemetry.trace import Trace
from callsmith.runtime.telemetry.turns import Recorder, TurnInfo, TurnRecord, recording
from callsmith.server.admission import AdmissionGate, Place, RateLimits
from callsmith.server.approvals.approval_run import ApprovalRun
from callsmith.server.approvals.approvals import Approvals, PausedRun
from callsmith.server.http.request_context import RequestContext, caller, client, client_session, current_request
from callsmith.server.served_models import ServedModels
from callsmith.server.settings import CallerLimits, Settings, merged_limits
from callsmith.server.store import Store
from callsmith.server.store.sqlite import SqliteStore
from callsmith.server.tools.one_answer import AnswerEvent, OneAnswer, StepLog
from callsmith.server.tools.planner import HiddenRound, HiddenRounds, ToolPlanner
from callsmith.wire.extensions import DEFAULT_OPTIONS, TOOL_EVENTS, ToolOptions


@dataclass(frozen=True, slots=True)
class CallerTurn:
    """A turn, whose it was, and the id of the request."""

    turn: TurnRecord
    caller: str
    request: str


class RecentTurns:
    """The latest turns of each caller, in memory: in rings of their own, so that nobody's turns make room for another's."""

    def __init__(self, size: int = 1_000) -> None:
        self._size = max(0, size)
        self._rings: dict[str, deque[CallerTurn]] = {}

    def add(self, turn: CallerTurn) -> None:
        self._rings.setdefault(turn.caller, deque(maxlen=self._size)).append(turn)

    def latest(self, callers: Iterable[str] | None = None) -> list[CallerTurn]:
        """The turns of these callers, or of all, the latest first."""
        wanted = self._rings.keys() if callers is None else callers
        turns = [turn for caller in wanted for turn in self._rings.get(caller, ())]
        return sorted(turns, key=lambda turn: turn.turn.when, reverse=True)


@dataclass(frozen=True, slots=True)
class AnswerPipeline:
    """Answers requests with the models and the tools of the server, as far as the caller may use them.

    `gate` and `rates` say who is answered, `trace` counts turns, `turns` has the latest, and `store` the runs that wait for a
    person.
    """

    settings: Settings
    models: ServedModels
    tools: ToolPlanner
    store: Store = field(default_factory=SqliteStore)
    gate: AdmissionGate = field(default_factory=AdmissionGate)
    rates: RateLimits = field(default_factory=RateLimits)
    trace: Trace = field(default_factory=lambda: Trace(0))  # its counters only: `turns` has the records
    turns: RecentTurns = field(default_factory=RecentTurns)
    hidden_rounds: HiddenRounds = field(default_factory=HiddenRounds)

    def with_tools(self, tools: ToolPlanner) -> "AnswerPipeline":
        return replace(self, tools=tools)

    def answer(self, model: Model, request: Request, options: ToolOptions = DEFAULT_OPTIONS) -> AsyncIterator[ModelEvent]:
        """The answer as one model would give it: `events` without what the tools did."""
        return _model_events(self.events(model, request, options))

    def events(self, model: Model, request: Request, options: ToolOptions = DEFAULT_OPTIONS) -> AsyncIterator[AnswerEvent]:
        """The answer, and what the server's own tools did for it.

        A run that waits for a person ends with a `ConfirmationNeeded`, unless the request wants to wait: what waits is in the
        store, and `resume` continues it.
        """
        request = replace(request, origin=self._origin(request.origin))
        if options.explains and request.explain is None:
            log = StepLog()
            return log.attach_steps(self.events(model, replace(request, explain=log.add), options))
        if self.tools.runs_no_tools(request, options):
            return self._pipeline(lambda _, until_end: self._ask_model(until_end, model, request))
        return self._pipeline(lambda place, _: self._run_tools(place, model, request, options))

    def complete(self, model: Model, completion: Completion) -> AsyncIterator[ModelEvent]:
        """The continuation of a plain text."""
        completion = replace(completion, origin=self._origin(completion.origin))
        return _model_events(self._pipeline(lambda _, until_end: self._continue_text(until_end, model, completion)))

    def resume(self, paused: PausedRun) -> AsyncIterator[AnswerEvent]:
        """What comes after a pause, now that a person has decided. The caller has the lease on the run."""
        options = replace(paused.options, shows_tool_items=True)
        request = replace(paused.request, messages=paused.saved.messages)
        return self._pipeline(lambda place, _: self._run_tools(place, self.models.get(paused.model), request, options, paused))

    async def load(self, model: Model) -> None:
        """Have a model loaded, as its first request would; it is admitted like one."""
        async with self.admission() as place, AsyncExitStack() as until_end:
            await place.deadline.wait_for(until_end.enter_async_context(in_use(model)))

    async def count(self, model: Model, request: Request, options: ToolOptions = DEFAULT_OPTIONS) -> int | None:
        """How many tokens such a request is, with the tools the model would be shown first; None if the model cannot tell."""
        async with self.admission() as place:
            return await place.deadline.wait_for(self._count(model, request, options))

    async def _count(self, model: Model, request: Request, options: ToolOptions) -> int | None:
        async with in_use(model):
            if model_info(model).count is None:
                return None
            if not self.tools.runs_no_tools(request, options):
                plan = await self.tools.plan(self.models.name_of(model), model, request, options)
                model, request = plan.model, plan.request
            count = model_info(model).count
            return None if count is None else await count(request)

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

    def approvals(self, subject: str | None = None) -> Approvals:
        """The approvals of a caller; None: of whoever is being answered."""
        return Approvals(self.store, caller() if subject is None else subject, self.settings.approval_seconds)

    def recorder(self) -> Recorder:
        """What records the turns of the request that is being answered."""
        return _RequestRecorder(self, current_request(), self.caller_limits())

    async def _pipeline(self, prepare: "Callable[[Place, AsyncExitStack], Awaitable[_Answering]]") -> AsyncIterator[AnswerEvent]:
        """The answer that `prepare` is about to give in its place; what it puts on the stack is released at the end."""
        async with self.admission() as place, AsyncExitStack() as until_end:
            deadline = place.deadline
            answering = await deadline.wait_for(prepare(place, until_end))
            with recording(self.recorder(), answering.turn) as turn, deadline:
                async with closing(answering.events) as events:
                    async for event in events:
                        deadline.pass_on()
                        turn.see(event)
                        for answer_event in answering.show(event):
                            yield answer_event
                        deadline.go_on()

    async def _ask_model(self, until_end: AsyncExitStack, model: Model, request: Request) -> "_Answering":
        """Nothing runs here: the model is asked, and its calls go back to the client."""
        request.choice.among(request.tools)
        turn_info = TurnInfo(self.models.name_of(model), request.tools, request.choice, external=True)
        opened = await until_end.enter_async_context(in_use(model))
        events = guard_model(opened, None if self.settings.guards else ()).stream(request)
        return _Answering(events, turn_info, _show_model_event)

    async def _continue_text(self, until_end: AsyncExitStack, model: Model, completion: Completion) -> "_Answering":
        opened = await until_end.enter_async_context(in_use(model))
        complete = model_info(opened).complete
        if complete is None:
            raise UsageError("this model answers messages only, it does not continue a text", field="model")
        return _Answering(complete(completion), TurnInfo(self.models.name_of(model), external=True), _show_model_event)

    async def _run_tools(
        self, place: Place, model: Model, request: Request, options: ToolOptions, paused: PausedRun | None = None
    ) -> "_Answering":
        """The server runs its own tools, and calls of the client's go back."""
        client_tools, caller_id = request.tools, caller()
        async with in_use(model):  # and then whenever it is asked: tools, and persons, may take long
            plan = await self.tools.plan(self.models.name_of(model), model, request, options, paused and paused.saved)
        shows_items = options.shows_tool_items
        answer = OneAnswer(shows_tool_items=shows_items, shows_drafts=shows_items and options.shows_events)
        # The client does not see what runs here before its own calls come back: it is put back into what it sends next.
        hides = bool(client_tools) and paused is None and not options.shows_tool_items
        if hides:
            plan = plan.restore(self.hidden_rounds.restore(caller_id, request.messages))
        due = () if paused else await plan.calls_for_results(self.tools.jobs)
        added = (Message.assistant(calls=due),) if due else ()
        plan = plan.add_calls(added)

        def show(event: RunEvent) -> Iterable[AnswerEvent]:
            if hides and isinstance(event, TurnEnded) and answer.deferred:
                hidden = HiddenRound((*added, *event.messages), tuple(answer.waiting), plan.context.conversation)
                self.hidden_rounds.remember(caller_id, request.messages, answer.deferred, hidden)
            return answer.add(event)

        events = ApprovalRun(plan, self.approvals(), paused, place.wait_for_person).events()
        return _Answering(events, TurnInfo(plan.model_name, plan.request.tools, request.choice), show)

    def _origin(self, claimed: Origin) -> Origin:
        """Where the request really comes from. Who may reuse what is cached of a prompt: the same key, and of its requests those
        with the same `cache_salt`."""
        salt = cache_salt("" if self.settings.llm.share_prompt_cache else caller(), claimed.cache_salt)
        return Origin(claimed.session, salt, claimed.affinity or client_session(), client())


@dataclass(frozen=True, slots=True)
class _Answering:
    """An answer about to be given: its events, what is recorded of it, and what the client is shown of each event."""

    events: AsyncIterator[RunEvent]
    turn: TurnInfo
    show: Callable[[RunEvent], Iterable[AnswerEvent]]


@dataclass(frozen=True, slots=True)
class _RequestRecorder:
    """Records the turns of one request: counted, among the caller's latest, and as used by the caller."""

    answers: AnswerPipeline
    http: RequestContext | None
    limits: CallerLimits

    def add(self, turn: TurnRecord) -> None:
        answers, http = self.answers, self.http
        answers.turns.add(CallerTurn(turn, http.subject, http.id) if http else CallerTurn(turn, "", ""))
        for recorder in (answers.trace, *answers.settings.recorders):
            recorder.add(turn)
        if http:
            http.add(turn)
            answers.rates.use_tokens(http.client, self.limits, turn.usage.prompt + turn.usage.completion)


def _show_model_event(event: RunEvent) -> Iterable[AnswerEvent]:
    return (cast(ModelEvent, event),)  # a model's own events


async def _model_events(events: AsyncIterator[AnswerEvent]) -> AsyncIterator[ModelEvent]:
    """The answer without what the tools did."""
    async with closing(events):
        async for event in events:
            if not isinstance(event, TOOL_EVENTS):
                yield event
