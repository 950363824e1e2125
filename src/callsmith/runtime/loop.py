"""The run: ask the model, run the calls it makes, tell it the results, ask again, until it answers without calling.

    async for event in run(model, toolset, "What is the weather in Bonn?"):
        ...

Messages are the only state: a history that ends in unanswered calls is taken up where it stopped.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import assert_never

from callsmith.core.choice import FIND_TOOLS, JOB_RESULT
from callsmith.core.closing import closing
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Notice,
    RunEvent,
    Started,
    Stopped,
    StopReason,
    Text,
    Thought,
    ToolFinished,
    TurnEnded,
    Unreadable,
)
from callsmith.core.failures import is_failure
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.types.call_ids import CallIds
from callsmith.core.types.field_checks import check_argument, replace, replacer
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool, Usage
from callsmith.runtime.deadline import DeadlinePassed, with_deadline
from callsmith.runtime.deferred import GivenTools, toolset_of
from callsmith.runtime.execute import NO_CONTEXT, STANDARD_LIMITS, Limits, Round
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.nesting import nested_context

LIMIT_TEXT = "iteration limit reached; finalise your answer"
SPENT_TEXT = "limit_reached: {}; the call was not run"
NO_USAGE = Usage()
_replace_request: Callable[..., Request] = replacer(Request)


async def run(
    model: Model,
    toolset: GivenTools | None,
    request: Request | str,
    *,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
    guards: Iterable[str] | None = None,
) -> AsyncIterator[RunEvent]:
    """Everything that happens until the model has answered; the last event is TurnEnded.

    A text is a request of one message, a list of functions a toolset. The model is offered `request.tools`, or all the toolset
    has when there are none. After `limits.iterations` rounds of calls, further calls are answered with a limit and the model is
    asked a last time, without tools. When tokens or time are spent, calls are answered alike and the run ends ("limit"). Where a
    call needs a person's approval the run ends without its result ("confirmation"), and where only the caller's own calls are
    left, with those ("calls"). `guards` names the guards of the model (`runtime.guards`); without, it has those it is known to
    need.
    """
    check_parts(model, toolset, limits)
    check_argument("context", context, Context)
    request = _request_of(request)
    toolset = toolset_of(toolset)
    model = guard_model(model, guards)
    context = nested_context(context, limits.iterations, limits.depth)
    own = {tool.name: tool for tool in await toolset.tools()}
    offered = request.tools or tuple(own.values())
    request.choice.among(offered)
    # Whatever a request says of a tool, a call is held to what the toolset says of it: its schema, its side effects.
    turn = _RunState(replace(request, tools=offered), {tool.name: own.get(tool.name, tool) for tool in offered}, limits)
    calls = list_unanswered(request.messages)
    while turn.reason is None:
        if calls and (refused := turn.refuse(calls, context)):
            for event in refused:
                yield event
        elif calls:
            work = turn.begin_round(calls, toolset)
            events = work.run(context, turn.until)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
            for event in turn.end_round(work, context):
                yield event
        # Decisions are on calls of the history. One on an id that is not there yet must not approve a later call of that id.
        if context.decisions:
            context = replace(context, decisions={}, asked=None)
        if turn.reason is None:
            async with closing(turn.ask(model)) as model_events:
                async for model_event in model_events:
                    for event in turn.hear(model_event):
                        yield event
            for event in turn.end_answer(context):
                yield event
            calls = turn.calls
    yield TurnEnded(tuple(turn.added), turn.reason, turn.usage, request.output)


def check_parts(model: Model, toolset: GivenTools | None, limits: Limits) -> None:
    """Raise a UsageError if these are not what a run is made of."""
    check_argument("model", model, Model, "open_model('…') opens one")
    check_argument("toolset", toolset, GivenTools | None, "[get_weather] will do")
    check_argument("limits", limits, Limits)


def _request_of(request: Request | str) -> Request:
    return Request((Message.user(request),)) if isinstance(request, str) else check_argument("request", request, Request | str)


class _RunState:
    """What a run has come to so far. `calls` are those of the last answer, `reason` says why it has ended, once it has, and
    `until` when it must."""

    def __init__(self, request: Request, tools: Mapping[str, Tool], limits: Limits) -> None:
        self._asked = request
        self._tools = tools
        self._limits = limits
        self.until = None if limits.deadline is None else asyncio.get_running_loop().time() + limits.deadline
        self._rounds = 0
        self._ids = UniqueCallIds(request.messages)
        self._answer = AnswerBuilder()
        self.added: list[Message] = []
        self.usage = Usage()
        self.calls: tuple[Call, ...] = ()
        self.reason: StopReason | None = None

    def refuse(self, calls: Sequence[Call], context: Context) -> list[RunEvent]:
        """Answer the calls without running them where a limit is reached; nothing where none is."""
        if spent := self._spent(context):
            self.reason = "limit"
            notice, text = spent, SPENT_TEXT.format(spent)
        elif self._rounds >= self._limits.iterations:
            self._asked = replace(self._asked, choice=Choice("none"))
            notice, text = f"the limit of {self._limits.iterations} rounds of tool calls is reached", LIMIT_TEXT
        else:
            return []
        results = [Result(call.id, call.name, text, ok=False, code="limit_reached") for call in calls]
        self.added += map(Message.tool, results)
        return [Notice(notice), *map(ToolFinished, results)]

    def begin_round(self, calls: Sequence[Call], toolset: Toolset) -> Round:
        """The calls as work to be done; `end_round` takes down what has come of it."""
        return Round(calls, self._tools, toolset, self._limits, self._find_earlier)

    def end_round(self, work: Round, context: Context) -> Iterable[RunEvent]:
        self._rounds += 1
        if self._asked.choice.mode == "required" and any(call.name not in (FIND_TOOLS, JOB_RESULT) for call in work.calls):
            self._asked = replace(self._asked, choice=after_a_call(self._asked.choice))
        self.added += (messages := work.messages)
        if len(messages) < len(work.calls):
            self.reason = "confirmation" if work.waiting else "calls"
        elif spent := self._spent(context):
            self.reason = "limit"
            yield Notice(spent)

    def ask(self, model: Model) -> AsyncIterator[ModelEvent]:
        """Ask the model; each event of its answer goes to `hear`, and then the answer is ended."""
        self._answer = AnswerBuilder()
        self._ids.begin_answer()
        stream = model.stream(_replace_request(self._asked, messages=(*self._asked.messages, *self.added)))
        return stream if self.until is None else _until(stream, self.until)

    def hear(self, model_event: ModelEvent) -> Iterable[RunEvent]:
        """Take down what the model says; the events to pass on."""
        event = self._ids.with_fresh_id(model_event)
        self._answer.add(event)
        notices = event.report.notices if isinstance(event, Stopped) else ()
        return (event, *map(Notice, notices)) if notices else (event,)

    def end_answer(self, context: Context) -> Iterable[RunEvent]:
        """The answer is complete: what it calls, or why the run ends with it."""
        answer = self._answer
        self.usage += answer.usage
        # A model that must not call may still try: the calls are left out, so that none stays without its result.
        self.calls = () if self._asked.choice.mode == "none" else tuple(answer.calls)
        self.added.append(answer.message(self.calls))
        if not self.calls:
            self.reason = "stop" if answer.reason == "calls" else answer.reason
        if answer.reason == "limit" and not self.calls and (spent := self._spent(context)):
            yield Notice(spent)

    def _find_earlier(self, call: Call) -> str | None:
        return find_earlier((*self._asked.messages, *self.added), call)

    def _spent(self, context: Context) -> str:
        """Which budget of the run is spent; empty while none is."""
        used = self.usage.prompt + self.usage.completion
        if self._limits.tokens is not None and used >= self._limits.tokens:
            return f"the limit of {self._limits.tokens:,} tokens is reached"
        if self.until is not None and asyncio.get_running_loop().time() >= self.until:
            return f"the limit of {self._limits.deadline:g} s is reached"
        # In a thread, this run may be part of a tool that was given up long ago.
        return "nobody waits for the answer any more" if context.cancelled() else ""


class AnswerBuilder:
    """One answer of the model, put together from its events."""

    __slots__ = ("calls", "reason", "text", "thought", "usage")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thought: list[str] = []
        self.calls: list[Call] = []
        self.reason: StopReason = "stop"
        self.usage = NO_USAGE

    def add(self, event: ModelEvent) -> None:
        match event:
            case Text(text) | Unreadable(text):  # what could not be read as a call is kept as what was said
                self.text.append(text)
            case Thought(text):
                self.thought.append(text)
            case CallReady(call=call):
                self.calls.append(call)
            case Stopped(reason, usage):
                self.reason, self.usage = reason, usage
            case Started() | CallStarted() | CallArguments():
                pass
            case _:
                assert_never(event)

    def message(self, calls: Iterable[Call]) -> Message:
        return Message.assistant("".join(self.text), reasoning="".join(self.thought), calls=calls)


class UniqueCallIds:
    """Gives every call of a conversation an id of its own, where the model gave none or one that is taken."""

    def __init__(self, history: Sequence[Message] = ()) -> None:
        self._ids = CallIds(call.id for message in history for call in message.calls)
        self._begun: dict[int, str] = {}

    def begin_answer(self) -> None:
        """The calls of the next answer are numbered anew."""
        self._begun.clear()

    def with_fresh_id(self, event: ModelEvent) -> ModelEvent:
        match event:
            case CallStarted(index, id=id) if id:
                fresh = self._begun[index] = self._ids.claim(id)
                return event if fresh == id else replace(event, id=fresh)
            case CallReady(index, call):
                fresh = self._begun.pop(index, "") or self._ids.claim(call.id or f"{call.name}_{index}")
                return event if fresh == call.id else replace(event, call=replace(call, id=fresh))
            case _:
                return event


def list_unanswered(messages: Sequence[Message]) -> tuple[Call, ...]:
    """The calls at the end of a history that no tool message answers yet."""
    answers = Counter[str]()
    for message in reversed(messages):
        if message.role != "tool":
            return tuple(call for call in message.calls if not _taken(call.id, answers))
        answers[message.call_id] += 1
    return ()


def find_earlier(messages: Sequence[Message], call: Call) -> str | None:
    """The latest result of an identical call since the last message of the user that did not fail."""
    results: dict[str, str] = {}  # by call id
    for message in reversed(messages):
        if message.role == "user":
            return None
        if message.role == "tool" and not is_failure(message.content):
            results.setdefault(message.call_id, message.content)
        for made in reversed(message.calls):
            result = results.pop(made.id, None)
            if result is not None and made.name == call.name and _canonical(made) == _canonical(call):
                return result
    return None


def _canonical(call: Call) -> str:
    """The arguments as text that is the same for the same ones."""
    return json.dumps(call.arguments, sort_keys=True, default=dict)


def _taken(id: str, answers: Counter[str]) -> bool:
    """Whether there is an answer to this id; each answers one call, should two have the same id."""
    if not answers[id]:
        return False
    answers[id] -= 1
    return True


def after_a_call(choice: Choice) -> Choice:
    """A call that was demanded has been made; demanding it again would go on for ever. A list of allowed tools stays."""
    return Choice("auto", choice.names if len(choice.names) > 1 else ())


async def _until(events: AsyncIterator[ModelEvent], deadline: float) -> AsyncIterator[ModelEvent]:
    """The events of an answer, cut off at a time of the event loop's clock."""
    try:
        async with closing(with_deadline(events, deadline)) as items:
            async for event in items:
                yield event
    except DeadlinePassed:
        yield Stopped("limit")
