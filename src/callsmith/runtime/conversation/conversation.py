"""Conversation: turn after turn with a model that has tools; saved, resumed, forked, and paused where a person has to be asked.

    conversation = Conversation(model, Confirmed(Functions(send_mail)), journal="talk.json")
    reply = await conversation.send("Tell Ada that I am late.")
    for asked in reply.pending:  # ConfirmationNeeded: the tool, its arguments, the reason
        reply = await conversation.decide(asked.call.id, Approved())

With a journal, the conversation is on disk after every step, and a program that was killed goes on with
`Conversation.load("talk.json", model, tools, journal="talk.json")` and `resume()`: no call with side effects is run twice.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack
from uuid import uuid4

from callsmith.core.approval import Approved, Decision, Policy
from callsmith.core.capability.origin import Origin
from callsmith.core.choice import is_first_hop
from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.events import ConfirmationNeeded, RunEvent, StopReason, ToolFinished, TurnEnded, answer_value
from callsmith.core.ports import Context, Model
from callsmith.core.serialize import Saved
from callsmith.core.types.field_checks import check_argument, check_items, check_keywords
from callsmith.core.values import Call, Choice, ChoicePolicy, Message, Output, Request, Result, Sampling, Tool, Usage
from callsmith.runtime.conversation.journal import (
    NO_DECISIONS,
    FileStorage,
    Journal,
    answer_interrupted,
    expired_result,
    read_journal,
    write_journal,
)
from callsmith.runtime.conversation.pausable_run import PausableRun
from callsmith.runtime.deferred import GivenTools, split_tools
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.jobs.background import BackgroundTools, calls_for_results
from callsmith.runtime.jobs.job import Job
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.runtime.loop import check_parts
from callsmith.runtime.sync import collect

File: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a turn has come to: the model's answer, or what has to be done before there is one.

    `pending` are calls a person must be asked about (`decide`), `calls` those the caller runs itself (`submit_results`). `value`
    is the text as the conversation's `output` wants it: `Output(Person)` gives a `Person`.
    """

    text: str
    reason: StopReason = "stop"
    calls: tuple[Call, ...] = ()
    pending: tuple[ConfirmationNeeded, ...] = ()
    usage: Usage = Usage()
    output: Output | None = None

    @property
    def value(self) -> Any:
        """The answer parsed as the output says; a ModelError if it does not fit, or if there is none yet."""
        return answer_value(self.output, self.text, self.reason)


class ConversationOptions(TypedDict, total=False):
    """How a conversation is led. Not saved with it: it is given again when the conversation is loaded.

    `output` is what every answer must be, `external` are tools the caller runs itself, `tighten` what is added to the policy of
    the tools, `guards` the model's safety net (None: the one it is known to need), `depth` how many conversations this one is
    nested in, `jobs` where calls of background tools go on (else in jobs of its own, which end with the program).
    """

    choice: Choice
    policy: ChoicePolicy | None
    call_bias: float | None
    sampling: Sampling
    output: Output | None
    limits: Limits
    external: Sequence[Tool]
    tighten: Policy | None
    guards: Sequence[str] | None
    depth: int
    jobs: Jobs


class Conversation:
    """A model, tools and all that has been said. Any number of them may share a model; each runs one turn at a time."""

    def __init__(
        self,
        model: Model,
        tools: GivenTools | None = None,
        *,
        instructions: str = "",
        id: str = "",
        subject: str = "",
        messages: Iterable[Message] = (),
        journal: File | None = None,
        **settings: Unpack[ConversationOptions],
    ) -> None:
        earlier = check_items("messages", messages, Message)
        check_argument("instructions", instructions, str)
        saved = Saved(id or uuid4().hex, earlier, subject, instructions)
        self._set_up(saved, model, tools, _new(journal), settings)

    @classmethod
    def load(
        cls,
        path: File,
        model: Model,
        tools: GivenTools | None = None,
        *,
        journal: File | None = None,
        **settings: Unpack[ConversationOptions],
    ) -> "Conversation":
        """The conversation of a file. If `unfinished`, `resume` goes on with it; with a journal (the same file will do) it is
        saved at every step.
        """
        own = Path(path) if journal is not None and Path(journal).resolve() == Path(path).resolve() else _new(journal)
        return cls._of(answer_interrupted(read_journal(Path(path))), model, tools, own, settings)

    @classmethod
    def _of(
        cls, saved: Saved, model: Model, tools: GivenTools | None, journal: Path | None, settings: ConversationOptions
    ) -> "Conversation":
        conversation = cls.__new__(cls)
        conversation._set_up(saved, model, tools, journal, settings)
        return conversation

    def _set_up(
        self, saved: Saved, model: Model, tools: GivenTools | None, journal: Path | None, settings: ConversationOptions
    ) -> None:
        check_keywords(ConversationOptions, settings)
        self._limits = settings.get("limits", STANDARD_LIMITS)
        check_parts(model, tools, self._limits)
        self._model = model
        self._guarded = guard_model(model, settings.get("guards"))
        self._tools, deferred = split_tools(tools)
        self._jobs = settings.get("jobs") or Jobs(result_characters=self._limits.result_characters)
        external = (*deferred, *settings.get("external", ()))
        self._settings: ConversationOptions = {**settings, "jobs": self._jobs, "external": external}
        self._journal = Journal(saved, None if journal is None else FileStorage(journal), self._limits)
        self._busy = False

    @property
    def id(self) -> str:
        return self._journal.saved.id

    @property
    def instructions(self) -> str:
        """The instructions the model gets before the conversation."""
        return self._journal.saved.instructions

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that has been said, without the instructions."""
        return self._journal.saved.messages

    @property
    def pending(self) -> tuple[ConfirmationNeeded, ...]:
        """The calls that wait for a person's decision."""
        return self._journal.pending

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that wait for the caller's results."""
        external = {tool.name for tool in self._settings.get("external", ())}
        return tuple(call for call in self._journal.open_calls if call.name in external)

    @property
    def unfinished(self) -> bool:
        """Whether the model still owes an answer: the last turn waits, or was interrupted."""
        last = self.messages[-1:]
        return bool(last) and (last[0].role in ("user", "tool") or bool(self._journal.open_calls))

    async def send(self, text: str) -> Reply:
        """Say something; the turn runs to its end, or to where somebody has to be asked."""
        return await self._reply(self.stream(text))

    def send_sync(self, text: str) -> Reply:
        """`send`, in a program that has no event loop."""
        return self._reply_of(collect(self.stream(text))[-1])

    async def resume(self, decisions: Mapping[str, Decision] = NO_DECISIONS) -> Reply:
        """Go on with a turn that waits or was interrupted, with a person's decisions by call id."""
        return await self._reply(self.stream_resume(decisions))

    async def decide(self, call_id: str, decision: Decision) -> Reply:
        """Decide on one call and go on; others may still wait."""
        return await self.resume({call_id: decision})

    async def submit_results(self, results: Iterable[Result]) -> Reply:
        """Answer calls the caller has run itself, and go on."""
        return await self._reply(self.stream_results(results))

    async def jobs(self) -> tuple[Job, ...]:
        """The calls of this conversation that go on in the background, or did, the oldest first."""
        saved = self._journal.saved
        return tuple(job for job in await self._jobs.list(saved.subject) if job.conversation == saved.id)

    async def wait_for_jobs(self) -> Reply | None:
        """Wait until a job has ended, and go on with its result, as if the model had asked for it; None if no job is left.

        Without this the result comes into the conversation with the next thing that is said.
        """
        while not await self._due_calls():
            running = [job for job in await self.jobs() if job.status == "running"]
            if not running:
                return None
            await self._jobs.wait_for_one(running)
        return await self._reply(self._go(self._begin))

    def stream(self, text: str) -> AsyncGenerator[RunEvent, None]:
        """`send`, as events. Closing the iterator stops the turn: every call then has a result, `cancelled` if no other."""
        return self._go(lambda: self._begin(Message.user(text)))

    def stream_resume(self, decisions: Mapping[str, Decision] = NO_DECISIONS) -> AsyncGenerator[RunEvent, None]:
        """`resume`, as events."""
        return self._go(lambda: self._take_up(decisions))

    def stream_results(self, results: Iterable[Result]) -> AsyncGenerator[RunEvent, None]:
        """`submit_results`, as events."""
        return self._go(lambda: self._answer(results))

    async def rewind(self) -> str:
        """Forget the last turn, finished or not, and return what the user had said. What its calls have done stays done."""
        with self._turn():
            message = await self._journal.rewind()
        if message is None:
            raise UsageError("there is no turn to take back: nothing was said yet")
        return message.content

    async def instruct(self, instructions: str) -> None:
        """Change the instructions the model gets before the conversation, from the next turn on."""
        check_argument("instructions", instructions, str)
        with self._turn():
            await self._journal.instruct(instructions)

    def fork(self, *, journal: File | None = None) -> "Conversation":
        """Another conversation with the same past. Who has approved a call here has not approved it there."""
        with self._turn():
            saved = replace(self._journal.saved, id=uuid4().hex, decisions={})
            return self._of(saved, self._model, self._tools, _new(journal), self._settings)

    def save(self, path: File) -> None:
        """The conversation as one JSON file, written whole or not at all."""
        write_journal(Path(path), self._journal.saved)

    @contextmanager
    def _turn(self) -> Generator[None, None, None]:
        if self._busy:
            raise UsageError("a turn of this conversation is still running: wait for its end, or close its stream")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    async def _begin(self, message: Message | None = None) -> Sequence[RunEvent]:
        """Begin a turn with what the user says, if anything, and the results of jobs that have ended."""
        if waiting := [call.name for call in self._journal.open_calls]:
            raise UsageError(f"calls are waiting ({', '.join(waiting)}): decide, resume or submit_results comes first")
        await self._journal.begin(message, await self._due_calls())
        return ()

    async def _due_calls(self) -> tuple[Call, ...]:
        """Calls for the results of jobs that have ended since."""
        saved = self._journal.saved
        return await calls_for_results(self._jobs, saved.subject, saved.id, saved.messages)

    async def _answer(self, results: Iterable[Result]) -> Sequence[RunEvent]:
        open_names = {call.id: call.name for call in self._journal.open_calls}
        answers = tuple(results)
        for result in answers:
            if result.call_id not in open_names:
                raise UnknownName("open call", result.call_id, open_names)
        await self._journal.resume([replace(result, name=open_names[result.call_id]) for result in answers])
        return [ToolFinished(result) for result in answers]

    async def _take_up(self, decisions: Mapping[str, Decision]) -> Sequence[RunEvent]:
        """Enter a person's decisions. An approval that comes too late is answered at once."""
        if not self.unfinished:
            raise UsageError("there is nothing to go on with: the last turn has ended")
        questions = {question.call.id: question for question in self.pending}
        for call_id, decision in decisions.items():
            if call_id not in questions:
                raise UnknownName("call that waits for a decision", call_id, questions)
            check_argument("decision", decision, Decision)
        late = {call_id for call_id, decision in decisions.items() if _too_late(questions[call_id], decision)}
        answers = [expired_result(questions[call_id].call) for call_id in decisions if call_id in late]
        await self._journal.resume(answers, {call_id: decision for call_id, decision in decisions.items() if call_id not in late})
        return [ToolFinished(result) for result in answers]

    async def _go(self, begin: Callable[[], Awaitable[Sequence[RunEvent]]]) -> AsyncGenerator[RunEvent, None]:
        """A turn: begun, and run from the history as it is."""
        with self._turn():
            for event in await begin():
                yield event
            ended = False
            try:
                async with closing(self._events()) as events:
                    async for event in events:
                        ended = isinstance(event, TurnEnded)
                        yield event
            except (asyncio.CancelledError, GeneratorExit):
                if not ended:
                    await self._journal.cut_off()
                raise
            except BaseException:
                await self._journal.take_back()
                raise

    async def _reply(self, events: AsyncGenerator[RunEvent, None]) -> Reply:
        last: RunEvent | None = None
        async with closing(events):
            async for event in events:
                last = event
        return self._reply_of(last)

    def _reply_of(self, ended: RunEvent | None) -> Reply:
        assert isinstance(ended, TurnEnded)  # a turn ends in nothing else
        return Reply(ended.text, ended.reason, self.calls, self.pending, ended.usage, ended.output)

    def _events(self) -> AsyncIterator[RunEvent]:
        saved, settings = self._journal.saved, self._settings
        preface = (Message.system(saved.instructions),) if saved.instructions else ()
        request = Request(
            (),
            choice=settings.get("choice", Choice()),
            sampling=settings.get("sampling", Sampling()),
            output=settings.get("output"),
            policy=settings.get("policy"),
            call_bias=settings.get("call_bias"),
            origin=Origin(saved.id),
        )
        context = Context(
            conversation=saved.id,
            subject=saved.subject,
            depth=settings.get("depth", 0),
            tighten=settings.get("tighten"),
        )
        deferred, has_called = settings.get("external", ()), not is_first_hop(saved.messages)
        tools = None if self._tools is None else BackgroundTools(self._tools, self._jobs)
        run = PausableRun(self._guarded, tools, self._journal, deferred, self._limits, preface)
        return run.events(request, context, has_called=has_called)


def _new(journal: File | None) -> Path | None:
    """The file of a new journal; one that exists already is refused."""
    if journal is not None and Path(journal).exists():
        raise UsageError(f"{journal} is there already: Conversation.load goes on with it", field="journal")
    return None if journal is None else Path(journal)


def _too_late(question: ConfirmationNeeded, decision: Decision) -> bool:
    return isinstance(decision, Approved) and question.expires is not None and time.time() >= question.expires
