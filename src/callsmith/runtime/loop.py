"""The run: ask the model, run the calls it makes, tell it the results, ask again, until it answers without calling.

    async for event in run(model, toolset, Request((Message.user("What is the weather in Bonn?"),))):
        ...

Messages are the only state: a history that ends in unanswered calls is taken up where it stopped.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Notice,
    RunEvent,
    Stopped,
    StopReason,
    Text,
    Thought,
    ToolFinished,
    TurnEnded,
    Unreadable,
)
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.values import Call, Choice, Message, Request, Result, Usage
from callsmith.runtime.closing import closing
from callsmith.runtime.execute import STANDARD_LIMITS, Limits, Round

NO_CONTEXT = Context()
LIMIT_TEXT = "iteration limit reached; finalise your answer"


async def run(
    model: Model, toolset: Toolset, request: Request, *, limits: Limits = STANDARD_LIMITS, context: Context = NO_CONTEXT
) -> AsyncIterator[RunEvent]:
    """Everything that happens until the model has answered; the last event is TurnEnded.

    The model is offered `request.tools`, or all the toolset has when there are none. After `limits.iterations` rounds of
    calls, further calls are answered with a limit and the model is asked a last time, without tools.
    """
    offered = request.tools or tuple(await toolset.tools())
    request.choice.among(offered)
    asked = replace(request, tools=offered)
    tools = {tool.name: tool for tool in offered}
    added: list[Message] = []
    usage = Usage()
    rounds = 0
    calls = unanswered(request.messages)
    while True:
        if calls:
            over = rounds >= limits.iterations
            work = _Refusal(calls, limits) if over else Round(calls, tools, toolset, limits)
            async with closing(work.run(context)) as happenings:
                async for happening in happenings:
                    yield happening
            added += map(Message.tool, work.results)
            asked = replace(asked, choice=Choice("none") if over else _next_choice(asked.choice))
            rounds += 1
        answer = Answer()
        async with closing(model.stream(replace(asked, messages=(*request.messages, *added)))) as events:
            async for event in events:
                answer.add(event)
                yield event
        usage += answer.usage
        # Told not to call, a model may still try: the calls are left out, so that none stays without its result.
        final = asked.choice.mode == "none"
        added.append(answer.message(() if final else answer.calls))
        calls = () if final else tuple(answer.calls)
        if not calls:
            reason: StopReason = "stop" if answer.reason == "calls" else answer.reason
            yield TurnEnded(tuple(added), reason, usage)
            return


@dataclass(slots=True)
class Answer:
    """One answer of the model, put together from its events."""

    text: list[str] = field(default_factory=list[str])
    thought: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    reason: StopReason = "stop"
    usage: Usage = field(default_factory=Usage)

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
            case CallStarted() | CallArguments():
                pass
            case _:
                assert_never(event)

    def message(self, calls: Iterable[Call]) -> Message:
        return Message.assistant("".join(self.text), reasoning="".join(self.thought), calls=calls)


def unanswered(messages: Sequence[Message]) -> tuple[Call, ...]:
    """The calls at the end of a history that no tool message answers yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.call_id)
        else:
            return tuple(call for call in message.calls if call.id not in answered)
    return ()


def _next_choice(choice: Choice) -> Choice:
    """A call that was demanded has been made; demanding it again would go on for ever. A list of allowed tools stays."""
    if choice.mode != "required":
        return choice
    return Choice("auto", choice.names if len(choice.names) > 1 else ())


class _Refusal:
    """Stands in for a Round when the limit is reached: every call is answered, none is run."""

    def __init__(self, calls: Sequence[Call], limits: Limits) -> None:
        self._limit = limits.iterations
        self.results = [Result(call.id, call.name, LIMIT_TEXT, ok=False, code="limit_reached") for call in calls]

    async def run(self, _: Context) -> AsyncIterator[Notice | ToolFinished]:
        yield Notice(f"the limit of {self._limit} rounds of tool calls is reached")
        for result in self.results:
            yield ToolFinished(result)
