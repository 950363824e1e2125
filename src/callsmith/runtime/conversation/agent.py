"""Agent: who is asked. A name, instructions, tools and manners, ready to be talked to through any model.

    researcher = Agent("researcher", "Finds things out.", "Look things up before you answer.", Functions(search))
    reply = await researcher.conversation(model).send("Who built the first bridge over the Rhine at Bonn?")

An agent is a tool too: `Merged(functions, researcher.as_toolset(model))` gives another agent somebody to ask.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Unpack

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.closing import closing
from callsmith.core.events import CallEvent, ConfirmationNeeded, RunEvent, ToolProgress, ToolStarted
from callsmith.core.failures import make_failure, unknown_tool
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.types.field_checks import check_fields
from callsmith.core.values import Call, ChoicePolicy, Result, Tool
from callsmith.runtime.conversation.conversation import Conversation, ConversationOptions, File
from callsmith.runtime.deferred import GivenTools, toolset_of
from callsmith.runtime.execute import STANDARD_LIMITS, Limits

TASK = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What is to be done, with all that must be known to do it."}},
    "required": ["task"],
}
AGENT_SECONDS = 300.0  # that one may take as a tool of another, if its limits have no deadline
NOBODY_TO_ASK = "it needs a person's approval, and nobody can be asked from here: do without it"


@check_fields
@dataclass(frozen=True, slots=True)
class Agent:
    """A model's part in a conversation. `guards` are the names of `runtime.guards`; None: those the model is known to need."""

    name: str
    description: str = ""
    instructions: str = ""
    tools: GivenTools | None = None
    policy: ChoicePolicy | None = None
    guards: tuple[str, ...] | None = None
    limits: Limits = STANDARD_LIMITS

    def conversation(
        self,
        model: Model,
        *,
        id: str = "",
        subject: str = "",
        journal: File | None = None,
        **settings: Unpack[ConversationOptions],
    ) -> Conversation:
        """Begin to talk to it; what the settings say goes before what the agent says."""
        whole: ConversationOptions = {"policy": self.policy, "limits": self.limits, "guards": self.guards, **settings}
        return Conversation(model, self.tools, instructions=self.instructions, id=id, subject=subject, journal=journal, **whole)

    def load(
        self, path: File, model: Model, *, journal: File | None = None, **settings: Unpack[ConversationOptions]
    ) -> Conversation:
        """Go on with a saved conversation."""
        whole: ConversationOptions = {"policy": self.policy, "limits": self.limits, "guards": self.guards, **settings}
        return Conversation.load(path, model, self.tools, journal=journal, **whole)

    def as_toolset(self, model: Model, *, folder: File | None = None) -> Toolset:
        """The agent as one tool, which takes a task and gives the agent's answer.

        With a folder its unfinished work is kept there: it can then ask a person through whoever called it, and survives the
        end of the program. Without one, calls of its own that need approval are denied.
        """
        return _AsTool(self, model, None if folder is None else Path(folder))


class _AsTool:
    """A toolset of one agent. Its tool has side effects if any tool of the agent has."""

    def __init__(self, agent: Agent, model: Model, folder: Path | None) -> None:
        self._agent = agent
        self._model = model
        self._folder = folder

    async def tools(self) -> Sequence[Tool]:
        inner = await toolset_of(self._agent.tools).tools()
        acts = any(tool.side_effects for tool in inner)
        return [
            Tool(
                self._agent.name,
                self._agent.description,
                TASK,
                side_effects=acts,
                idempotent=acts and self._folder is not None,  # the same call again is taken up where it stopped
                timeout=self._agent.limits.deadline or AGENT_SECONDS,
                source="agent",
            )
        ]

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        if call.name != self._agent.name:
            yield unknown_tool(call, [self._agent.name])
            return
        await context.starting()
        path, paused = self._path(call, context), False
        try:
            conversation = self._conversation(call, context, path)
            events, denials = _start_or_resume(conversation, call, context), self._agent.limits.iterations
            while events is not None:
                async with closing(events):
                    async for event in events:
                        if isinstance(event, ToolStarted):
                            yield ToolProgress(call.id, f"{self._agent.name}: {event.call.name} {event.call.text}")
                events = None
                if conversation.pending and path is not None:
                    paused = True
                    yield self._forward_question(conversation.pending[0], call)
                    return
                if conversation.pending and denials > 0:  # each begins a run, and with it the rounds, anew
                    denials -= 1
                    denied = {question.call.id: Denied(NOBODY_TO_ASK) for question in conversation.pending}
                    events = conversation.stream_resume(denied)
            yield _answer(conversation, call)
        finally:
            if path is not None and not paused:
                path.unlink(missing_ok=True)

    def _path(self, call: Call, context: Context) -> Path | None:
        if self._folder is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        whose = json.dumps([self._agent.name, context.conversation, call.id, call.arguments], sort_keys=True)
        return self._folder / f"{sha256(whose.encode()).hexdigest()[:32]}.json"

    def _conversation(self, call: Call, context: Context, path: Path | None) -> Conversation:
        settings: ConversationOptions = {"tighten": context.tighten, "depth": context.depth}
        if path is not None and path.exists():
            return self._agent.load(path, self._model, journal=path, **settings)
        id = f"{context.conversation}/{call.id}"
        return self._agent.conversation(self._model, id=id, subject=context.subject, journal=path, **settings)

    def _forward_question(self, question: ConfirmationNeeded, call: Call) -> ConfirmationNeeded:
        """The agent's question, as one about the call it works for."""
        reason = f"{self._agent.name} wants to call {question.call.name} with {question.call.text}"
        reason = f"{reason}: {question.reason}" if question.reason else reason
        return ConfirmationNeeded(question.id, call, reason, question.expires)


def _start_or_resume(conversation: Conversation, call: Call, context: Context) -> AsyncGenerator[RunEvent, None] | None:
    """The task, or what is left of it. A word is taken only under the id of the very question it answers: one on the agent's
    call as such says nothing about the calls the agent makes.
    """
    if not conversation.messages:
        return conversation.stream(call.arguments["task"])
    if not conversation.unfinished:
        return None
    decisions = {question.call.id: context.decisions.get(question.id) for question in conversation.pending}
    answers = {call_id: _deny_other_arguments(decision) for call_id, decision in decisions.items() if decision is not None}
    return conversation.stream_resume(answers)


def _deny_other_arguments(word: Decision) -> Decision:
    """Arguments a person has changed are those of the agent's call; what it calls itself has others."""
    if isinstance(word, Approved) and word.arguments is not None:
        return Denied(f"a person wants it done differently: {json.dumps(dict(word.arguments), ensure_ascii=False)}")
    return word


def _answer(conversation: Conversation, call: Call) -> Result:
    last = conversation.messages[-1]
    if last.role != "assistant" or not last.content:
        return make_failure(call, "internal_error", f"{call.name} gave no answer")
    return Result(call.id, call.name, last.content)
