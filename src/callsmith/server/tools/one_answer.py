"""A run as one answer: what is said between the calls becomes one text, and what the tools did stands beside it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeAlias, assert_never

from callsmith.core.closing import closing
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    ModelEvent,
    Notice,
    Report,
    RunEvent,
    Stopped,
    StopReason,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.values import Call
from callsmith.wire.extensions import TOOL_EVENTS, ToolEvent

AnswerEvent: TypeAlias = ModelEvent | ToolEvent

# Why one answer ended, where a run has ended in a way of its own.
_ONE_ANSWER: Mapping[StopReason, StopReason] = {"limit": "length", "confirmation": "stop"}
_WAITS = "({} has not been run: it has to be confirmed first, {}. Approval: {}. To answer it, POST {} to /v1/approvals/{})"
_ANSWER = '{"approve": true} or {"approve": false}'


async def one_answer(
    happening: AsyncIterator[RunEvent], aside: Sequence[Call] = (), *, told: bool = False
) -> AsyncIterator[AnswerEvent]:
    """A run as one answer. Calls that were put aside for the client stand at its end.

    A call that waits for a person's word is told in words, too, unless whoever asked is `told` otherwise: then every call is
    told with its beginning, also one that is refused before it runs.
    """
    made: dict[str, Call] = {}
    said = ""  # the end of what was said before the tools ran: the next words must not stick to it
    pause, report, matched = False, Report(), ""
    async with closing(happening) as events:
        async for event in events:
            match event:
                case Text(text) | Unreadable(text):
                    if pause and said.strip() and not said.endswith("\n"):
                        yield Text("\n\n")
                    pause, said = False, text or said
                    yield Text(text)
                case Stopped():
                    pause, report, matched = True, report + event.report, event.matched
                case ConfirmationNeeded(id, call, reason):
                    if not told:
                        apart = "\n\n" if said.strip() else ""
                        said = _WAITS.format(call.name, reason or "whatever it does", id, _ANSWER, id)
                        yield Text(apart + said)
                    yield event
                case ToolStarted(call):
                    made.pop(call.id, None)
                    yield event
                case ToolFinished(result):
                    if told and result.call_id in made and result.code != "denied":
                        yield ToolStarted(made.pop(result.call_id))
                    yield event
                case Thought() | ToolProgress() | Notice():
                    yield event
                case TurnEnded(_, reason, usage):
                    for index, call in enumerate(aside):
                        yield CallReady(index, call)
                    yield Stopped("calls" if aside else _ONE_ANSWER.get(reason, reason), usage, report, matched)
                case CallReady(call=call):
                    made[call.id] = call
                case CallStarted() | CallArguments():
                    pass  # whoever asked sees what a tool did, if anything, and not how it was called for
                case _:
                    assert_never(event)


async def model_events(shown: AsyncIterator[AnswerEvent]) -> AsyncIterator[ModelEvent]:
    """The answer without what the tools did."""
    async with closing(shown) as events:
        async for event in events:
            if not isinstance(event, TOOL_EVENTS):
                yield event
