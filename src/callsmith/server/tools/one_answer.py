"""A run as one answer: what is said between the calls becomes one text, and what the tools did is shown with it."""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from callsmith.core.closing import closing
from callsmith.core.events import (
    CallArguments,
    CallDeferred,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    ModelEvent,
    Notice,
    Report,
    RunEvent,
    Started,
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
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Call
from callsmith.runtime.jobs.background import JOB_ID
from callsmith.runtime.jobs.jobs import ACCEPTED
from callsmith.runtime.results import result_message
from callsmith.wire.extensions import CallDraft, ToolEvent

AnswerEvent: TypeAlias = ModelEvent | ToolEvent

# Why one answer ended, where a run has ended in a way of its own.
_ONE_ANSWER: Mapping[StopReason, StopReason] = {"limit": "length", "confirmation": "stop"}
_WAITS = "({} has not been run: it has to be confirmed first, {}. Approval: {}. To answer it, POST {} to /v1/approvals/{})"
_OPERATOR = " (Started with --mcp-allow={}, this server runs it at once.)"
_GOES_ON = "{}({} goes on in the background: {}.)"
_ANSWER = '{"approve": true} or {"approve": false}'

_MOST_IN_ONE = 200_000  # characters of a prompt, a grammar or a text
_MOST = 2_000_000  # of all of them together
_LEAST = 200  # that are shown of each, whatever came before
_MOST_STEPS = 64


class OneAnswer:
    """Turns the events of a run into those of one answer. Calls the client has to run are at its end (`deferred`).

    A call that needs approval is also announced in the text, and so is the id of one that goes on in the background, by which a
    later request finds its result; unless the dialect has items for what tools do (`shows_tool_items`): then every call is shown
    with its start, even one that is refused before it runs. With `shows_drafts`, calls are shown while the model writes them.
    """

    def __init__(self, *, shows_tool_items: bool = False, shows_drafts: bool = False) -> None:
        self.deferred: list[Call] = []
        self.waiting: list[str] = []  # the ids of approvals that are asked for
        self._shows_tool_items = shows_tool_items
        self._shows_drafts = shows_drafts
        self._drafts: dict[int, str] = {}  # the names of calls that are being written
        self._made: dict[str, Call] = {}
        self._said = ""  # the end of what was said before the tools ran: the next words must not stick to it
        self._pause = False
        self._started = False
        self._jobs: dict[str, str] = {}  # what goes on in the background: ids and tools
        self._said_since = ""
        self._report, self._matched = Report(), ""

    def add(self, event: RunEvent) -> Iterator[AnswerEvent]:
        """What is shown for this event."""
        match event:
            case Text(text) | Unreadable(text):
                if self._pause and self._said.strip() and not self._said.endswith("\n"):
                    yield Text("\n\n")
                self._pause, self._said = False, text or self._said
                if self._jobs:
                    self._said_since += text
                yield Text(text) if isinstance(event, Unreadable) else event
            case Stopped():
                self._pause, self._report, self._matched = True, self._report + event.report, event.matched
            case ConfirmationNeeded():
                self.waiting.append(event.id)
                if not self._shows_tool_items:
                    yield Text(self._announcement(event))
                yield event
            case CallDeferred(call):
                self.deferred.append(call)
            case ToolStarted(call):
                self._made.pop(call.id, None)
                yield event
            case ToolFinished(result):
                if result.code == ACCEPTED:
                    self._jobs |= dict.fromkeys(JOB_ID.findall(result.text), result.name)
                if self._shows_tool_items and result.call_id in self._made and result.code != "denied":
                    yield ToolStarted(self._made.pop(result.call_id))
                yield event
            case Started():
                if not self._started:
                    yield event
                self._started = True
                self._report += Report(decision=event.decision)
            case Thought() | ToolProgress() | Notice():
                yield event
            case TurnEnded(_, reason, usage):
                for id, name in self._jobs.items():
                    if not self._shows_tool_items and id not in self._said_since and not self.deferred:
                        yield Text(_GOES_ON.format("\n\n" if self._said.strip() else "", name, id))
                for index, call in enumerate(self.deferred):
                    yield CallReady(index, call)
                ended = "calls" if self.deferred else _ONE_ANSWER.get(reason, reason)
                yield Stopped(ended, usage, self._report, self._matched)
            case CallReady(call=call):
                self._made[call.id] = call
            case CallStarted(index, name) if self._shows_drafts:
                self._drafts[index] = name
                yield CallDraft(index, name)
            case CallArguments(index, text) if self._shows_drafts:
                yield CallDraft(index, self._drafts.get(index, ""), text)
            case CallStarted() | CallArguments():
                pass  # the client sees what a tool did, if anything, and not how it was called for
            case _:
                assert_never(event)

    def _announcement(self, question: ConfirmationNeeded) -> str:
        apart = "\n\n" if self._said.strip() else ""
        self._said = _WAITS.format(question.call.name, question.reason or "whatever it does", question.id, _ANSWER, question.id)
        if question.tool is not None and question.tool.source.startswith("mcp:"):
            self._said += _OPERATOR.format(question.call.name)
        return apart + self._said


async def as_model_reads(answer: AsyncIterator[AnswerEvent], most: int) -> AsyncIterator[AnswerEvent]:
    """What happens, with results as the model has read them: they come back with the history."""
    async with closing(answer) as events:
        async for event in events:
            if isinstance(event, ToolFinished):
                yield ToolFinished(replace(event.result, content=result_message(event.result, most)[0].content))
            else:
                yield event


class StepLog:
    """Gathers the steps of an answer. Long texts are cut, and of very many steps the first ones are shown."""

    def __init__(self) -> None:
        self.steps: list[ModelStep] = []
        self._left = _MOST

    def add(self, step: ModelStep) -> None:
        if len(self.steps) < _MOST_STEPS:
            self.steps.append(
                replace(step, prompt=self._cut(step.prompt), text=self._cut(step.text), grammar=self._cut(step.grammar))
            )

    async def attach_steps(self, answer: AsyncIterator[AnswerEvent]) -> AsyncIterator[AnswerEvent]:
        """The answer, with the steps in its report."""
        async with closing(answer) as events:
            async for event in events:
                if isinstance(event, Stopped):
                    event = replace(event, report=replace(event.report, steps=tuple(self.steps)))
                yield event

    def _cut(self, text: str) -> str:
        excerpt = cut_text(text, max(_LEAST, min(_MOST_IN_ONE, self._left)))
        self._left -= len(excerpt)
        return excerpt
