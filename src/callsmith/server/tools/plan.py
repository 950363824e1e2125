"""RunPlan: how a request is answered where the server runs tools, decided once, before the run begins.

In mixed mode a client's tools and the server's own are offered together. The server's calls run here. A call of the client's ends
the answer, once the server's calls beside it have run, and goes back to the client. The client does not see the rounds that ran
here, so they are remembered (`HiddenRounds`) and put back into the history it sends next.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from callsmith.core.choice import JOB_RESULT
from callsmith.core.errors import UsageError
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.engines.lru import LRU
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.jobs.background import calls_for_results
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.runtime.loop import unanswered
from callsmith.wire.extensions import DEFAULT_OPTIONS, ToolOptions

# Of each caller: answers whose hidden rounds are remembered, and characters in them.
_MOST = 1_000
_MOST_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HiddenRound:
    """What a run added before calls went back to the client: messages, the approvals that wait, and the conversation it is of.

    `calls` are those in the messages that the model is known to have made.
    """

    messages: tuple[Message, ...]
    approvals: tuple[str, ...] = ()
    conversation: str = ""
    calls: tuple[Call, ...] = ()


class HiddenRounds:
    """The rounds that ran on the server before calls went back to a client, found again by the history up to those calls."""

    def __init__(self) -> None:
        self._known: dict[str, LRU[HiddenRound]] = {}  # by caller

    def remember(self, subject: str, history: Sequence[Message], calls: Sequence[Call], hidden: HiddenRound) -> None:
        """Remember what a run of this caller added, which ended with these calls for the client."""
        digest = sha256(subject.encode())
        for message in history:
            digest.update(_trait(message))
        digest.update(_calls(calls))
        weight = max(_MOST_CHARACTERS // _MOST, sum(message.size for message in hidden.messages))
        self._known.setdefault(subject, LRU(_MOST_CHARACTERS)).set(digest.hexdigest(), hidden, weight)

    def restore(self, subject: str, history: Sequence[Message]) -> HiddenRound:
        """The history as the model knows it, with the approvals and the conversation of the latest hidden round."""
        restored, calls, latest = list[Message](), list[Call](), HiddenRound(())
        own, digest = self._known.get(subject, LRU[HiddenRound](0)), sha256(subject.encode())
        for message in history:
            known: tuple[Message, ...] = (message,)
            if message.calls:
                up_to_calls = digest.copy()
                up_to_calls.update(_calls(message.calls))
                if hidden := own.get(up_to_calls.hexdigest()):
                    known, latest = hidden.messages, hidden
                    calls += (call for restored_message in known for call in restored_message.calls)
            digest.update(_trait(message))
            restored += known
        return replace(latest, messages=tuple(restored), calls=tuple(calls))


def _trait(message: Message) -> bytes:
    """What is the same of a message whenever it is sent. Reasoning is not: many clients leave it out."""
    return json.dumps([message.role, message.content, message.call_id]).encode() + _calls(message.calls)


def _calls(calls: Iterable[Call]) -> bytes:
    return json.dumps([[call.id, call.name, call.arguments] for call in calls], sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The model with its guards, the tools, the request with all the model is offered, and for whom it runs.

    `client_tools` are the client's own, as it describes them: the server does not run their calls. `seen` are the calls in the
    history that the model made here.
    """

    model_name: str
    model: Model
    tools: Toolset
    request: Request
    context: Context
    options: ToolOptions = DEFAULT_OPTIONS
    limits: Limits = STANDARD_LIMITS
    client_tools: tuple[Tool, ...] = ()
    seen: tuple[Call, ...] = ()

    def restore(self, hidden: HiddenRound) -> "RunPlan":
        """The same with the rounds put back that the client does not know of."""
        return replace(
            self,
            request=replace(self.request, messages=hidden.messages),
            context=replace(self.context, conversation=self.request.session or hidden.conversation or self.context.conversation),
            options=replace(self.options, approvals=(*self.options.approvals, *hidden.approvals)),
            seen=hidden.calls,
        )

    async def calls_for_results(self, jobs: Jobs) -> tuple[Call, ...]:
        """Calls for the results of jobs that have ended since the conversation was last continued, where it has room for them:
        behind what the user says, or what the client's tools have answered."""
        messages = self.request.messages
        is_own = JOB_RESULT not in {tool.name for tool in self.client_tools}
        if not is_own or all(tool.name != JOB_RESULT for tool in self.request.tools):
            return ()
        if not messages or messages[-1].role not in ("user", "tool") or unanswered(messages):
            return ()
        return await calls_for_results(jobs, self.context.subject, self.context.conversation, messages)

    def add_calls(self, added: Sequence[Message]) -> "RunPlan":
        """The same with calls at the end of the history that the model seems to have made."""
        request = replace(self.request, messages=(*self.request.messages, *added))
        return replace(self, request=request, seen=(*self.seen, *(call for message in added for call in message.calls)))

    def check_open_calls(self, asked_about: Iterable[Call]) -> None:
        """Raise a UsageError if the history ends in a call of the server's tools that the model did not make here.

        A client must not call them in the model's name, nor under the id of a call that a person was asked about.
        """
        seen, mine = {call.id: call for call in (*self.seen, *asked_about)}, {tool.name for tool in self.client_tools}
        for call in unanswered(self.request.messages):
            if seen.pop(call.id, None) != call and call.name not in mine:
                raise UsageError(
                    f"messages: the history ends in a call of {call.name!r} (id {call.id!r}) without its result, and this server "
                    "has not seen the model make it; calls of the server's tools are made by the model only",
                    field="messages",
                )

    @property
    def deferred(self) -> tuple[Tool, ...]:
        """The client's tools as the run sees them: what their calls look like is the client's business and not checked here."""
        return tuple(replace(tool, parameters={}) for tool in self.client_tools)

    @property
    def sources(self) -> Mapping[str, str]:
        return {tool.name: tool.source for tool in self.request.tools}


def offered_tools(own: Sequence[Tool], client_tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """What the model is shown: the client's tools, then the server's whose names the client does not use."""
    names = {tool.name for tool in client_tools}
    return (*client_tools, *(tool for tool in own if tool.name not in names))
