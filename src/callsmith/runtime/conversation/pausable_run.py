"""A run whose every step is journaled before it is reported, so that it can pause and be resumed.

Conversations, servers and capabilities run this. The history and all that was decided come from the journal; what happens goes
there.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from callsmith.core.approval import Decision
from callsmith.core.closing import closing
from callsmith.core.errors import StoreUnavailable
from callsmith.core.events import CallDeferred, CallEvent, ConfirmationNeeded, RunEvent, ToolFinished, ToolProgress, TurnEnded
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.types.field_checks import replace
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool, Usage
from callsmith.runtime.conversation.journal import Journal, join_messages
from callsmith.runtime.deferred import DeferredTools
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import after_a_call, run


@dataclass(frozen=True, slots=True)
class PauseAnswer:
    """What a paused run is resumed with: results of calls, and decisions by call id.

    `reports_results`: the results are events of the run. `may_call` false: the model has to answer without further calls.
    """

    results: Sequence[Result] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    reports_results: bool = False
    may_call: bool = True


Questions: TypeAlias = tuple[ConfirmationNeeded, ...]
StoreQuestions: TypeAlias = Callable[[Questions], Awaitable[Questions]]
AnswerPause: TypeAlias = Callable[[Questions, tuple[Call, ...]], Awaitable[PauseAnswer | None]]


@dataclass(frozen=True, slots=True)
class PausableRun:
    """Runs a model with tools from the state of the journal. The caller runs calls of the `deferred` ones.

    `preface` goes before the messages and is not journaled. Where the run pauses, `answer_pause` is given the questions and the
    calls that the caller runs, and returns what the run is resumed with, or None: then it ends there. With `store_questions`,
    questions are reported only once that has stored them, and as it returns them.
    """

    model: Model
    toolset: Toolset | None
    journal: Journal
    deferred: Sequence[Tool] = ()
    limits: Limits = STANDARD_LIMITS
    preface: tuple[Message, ...] = ()
    store_questions: StoreQuestions | None = None
    answer_pause: AnswerPause | None = None

    async def events(self, request: Request, context: Context, *, has_called: bool = False) -> AsyncIterator[RunEvent]:
        """Everything up to the end of the turn, or to where it pauses; each event is in the journal before it is reported.

        `has_called`: the turn was resumed after a call, so that a call the request requires is not required once more.
        """
        messages, usage = tuple[Message, ...](), Usage()
        while True:
            questions, calls, ended = list[ConfirmationNeeded](), list[Call](), TurnEnded((), "stop")
            async with closing(self._run_until_pause(request, context, has_called)) as events:
                async for event in events:
                    if not self.journal.add_piece(event):  # most events are pieces
                        await self.journal.note(event)
                        match event:
                            case TurnEnded():
                                ended = event
                                continue
                            case ConfirmationNeeded():
                                questions.append(event)
                                if self.store_questions:
                                    continue
                            case CallDeferred(call):
                                calls.append(call)
                            case _:
                                pass
                    yield event
            messages, usage = join_messages(messages, ended.messages), usage + ended.usage
            pending = tuple(questions)
            if pending and self.store_questions:
                pending = await self.store_questions(pending)
                for question in pending:
                    yield question
            answer = await self.answer_pause(pending, tuple(calls)) if self.answer_pause and (pending or calls) else None
            if answer is None:
                break
            await self.journal.resume(answer.results, answer.decisions)
            for result in answer.results if answer.reports_results else ():
                yield ToolFinished(result)
            has_called = True
            if not answer.may_call:
                request = replace(request, choice=Choice("none"))
        yield replace(ended, messages=messages, usage=usage)

    def _run_until_pause(self, request: Request, context: Context, has_called: bool) -> AsyncIterator[RunEvent]:
        saved = self.journal.saved
        choice = after_a_call(request.choice) if has_called and request.choice.mode == "required" else request.choice
        request = replace(request, messages=(*self.preface, *saved.messages), choice=choice)
        # Without questions there are only decisions that came along with the history: nobody knows what was asked.
        offered = self.journal.asked if saved.pending else None
        context = replace(context, decisions=self.journal.decisions, asked=offered, granted=saved.granted)
        journaled = None if self.toolset is None else _Journaled(self.toolset, self.journal)
        toolset = DeferredTools(journaled, self.deferred) if self.deferred or journaled is None else journaled
        return run(self.model, toolset, request, limits=self.limits, context=context)


@dataclass(slots=True)
class _Journaled:
    """A toolset whose calls are journaled before they run, and their outcomes at once: whoever reads the events may be slow."""

    toolset: Toolset
    journal: Journal
    known: Mapping[str, Tool] = field(default_factory=dict[str, Tool])

    async def tools(self) -> Sequence[Tool]:
        tools = await self.toolset.tools()
        self.known = {tool.name: tool for tool in tools}
        return tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        tool = self.known.get(call.name)
        await self.journal.start(call, repeatable=tool is not None and (tool.idempotent or not tool.side_effects))
        context = replace(context, checkpoint=self.journal.checkpoint(call))
        async with closing(self.toolset.call(call, context)) as items:
            async for item in items:
                match item:
                    case Result():
                        if not context.cancelled():  # else the call was given up, and has a result
                            with suppress(StoreUnavailable):  # no failure of the tool; the run enters the result once more
                                await self.journal.note(ToolFinished(replace(item, call_id=call.id, name=call.name)))
                    case ConfirmationNeeded():
                        item = self.journal.as_asked(replace(item, call=call))
                        await self.journal.note(item)
                    case CallDeferred():
                        await self.journal.note(CallDeferred(call))
                    case ToolProgress():
                        pass
                    case _:
                        assert_never(item)
                yield item
