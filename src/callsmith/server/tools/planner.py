"""Which tools a request gets, and who runs their calls.

| the request brings tools | the server has tools | who runs the calls |
|---|---|---|
| no | no | nobody: there is only text |
| yes | no, or yes | the client: the answer ends with its calls |
| no | yes | the server: the answer is one text |
| yes, and asks for `mixed` | yes | each its own: the answer ends where the client has something to run |

A request may ask for only some of the server's tools (`ToolOptions.sources`): then it gets those, besides its own.
The `RunPlan` is how a request is answered where the server runs tools, decided once, before the run begins.

In mixed mode a client's tools and the server's own are offered together. The server's calls run here. A call of the client's ends
the answer, once the server's calls beside it have run, and goes back to the client. The client does not see the rounds that ran
here, so they are remembered (`HiddenRounds`) and put back into the history it sends next.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from callsmith.core.capability.authority import Authority
from callsmith.core.choice import JOB_RESULT
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.engines.lru import LRU
from callsmith.runtime.discovery import ToolCosts, limit_shown_tools
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.jobs.background import BackgroundTools, calls_for_results
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.runtime.loop import list_unanswered
from callsmith.server.http.request_context import caller, current_request, request_id
from callsmith.server.network.origins import is_loopback
from callsmith.server.settings import EVERYTHING, Settings
from callsmith.server.tools.tool_selection import select_tools
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Filtered, Limited, ListedOnce, Merged
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

    `background` is what among the tools knows of jobs. `client_tools` are the client's own, as it describes them: the server does
    not run their calls. `seen` are the calls in the history that the model made here.
    """

    model_name: str
    model: Model
    tools: Toolset
    background: BackgroundTools
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
            context=replace(
                self.context, conversation=self.request.origin.session or hidden.conversation or self.context.conversation
            ),
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
        if not messages or messages[-1].role not in ("user", "tool") or list_unanswered(messages):
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
        for call in list_unanswered(self.request.messages):
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

    def source_of(self, question: ConfirmationNeeded) -> str:
        """Where the tool of a question comes from."""
        tool = question.tool or next((tool for tool in self.request.tools if tool.name == question.call.name), None)
        return tool.source if tool else ""


def offered_tools(own: Sequence[Tool], client_tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """What the model is shown: the client's tools, then the server's whose names the client does not use."""
    names = {tool.name for tool in client_tools}
    return (*client_tools, *(tool for tool in own if tool.name not in names))


@dataclass(frozen=True, slots=True)
class ToolPlanner:
    """The server's tools, and what a request gets of them.

    `toolset` are the tools that the server was given, `starter` those for requests that ask for them where it was given none.
    `mcp` are the MCP servers among them, and `jobs` the calls that go on in the background.
    """

    settings: Settings
    toolset: Toolset | None = None
    starter: Toolset | None = None
    mcp: McpHost | None = None
    jobs: Jobs = field(default_factory=Jobs)
    costs: ToolCosts = field(default_factory=ToolCosts)

    @property
    def configured(self) -> Mapping[str, str]:
        """The MCP servers that are configured, whether they run or not: label → url."""
        return self.mcp.urls if self.mcp else {}

    def why_down(self, label: str) -> str:
        """Why an MCP server does not run; empty if it does, or is not known."""
        states = self.mcp.status() if self.mcp else ()
        return next(
            (server.error or f"it is {server.state}" for server in states if server.name == label and server.state != "ready"), ""
        )

    def for_request(self) -> "ToolPlanner":
        """The same for one request, in which the tools are listed only once."""
        return self if self.toolset is None else replace(self, toolset=ListedOnce(self.toolset))

    def limit_calls(self, most: int | None, options: ToolOptions) -> "ToolPlanner":
        """The same with at most so many calls of the server's tools in a conversation; None: any number."""
        toolset = self.server_tools(options)
        return self if toolset is None or most is None else replace(self, toolset=Limited(toolset, budgets={"*": most}))

    def server_tools(self, options: ToolOptions) -> Toolset | None:
        """The tools that the server was given; where there are none, the starter tools, if the request asks for them."""
        return self.starter if self.toolset is None and options.starter else self.toolset

    def open_tools(self, options: ToolOptions = DEFAULT_OPTIONS) -> Toolset:
        """The server's tools that the caller may use."""
        http, tools = current_request(), self.server_tools(options) or Merged()
        tools = Filtered(tools, allow=http.tools) if http and http.tools != EVERYTHING else tools
        return tools if options.allowed is None else Filtered(tools, allow=options.allowed)

    async def list_offered(self, options: ToolOptions = DEFAULT_OPTIONS) -> tuple[Tool, ...]:
        """Those of the server's own tools that such a request is offered."""
        selected, _ = await select_tools(self.open_tools(options), options.sources, self.configured)
        return tuple(await selected.tools())

    def runs_no_tools(self, request: Request, options: ToolOptions) -> bool:
        """Whether nothing runs here: there is only the model, and perhaps tools of the client's that are all shown."""
        return not self._offers_server_tools(request, options) and not self._hidden_tools(request)

    async def plan(self, name: str, model: Model, request: Request, options: ToolOptions, saved: Saved | None = None) -> RunPlan:
        """Which tools the request gets, and for whom they run.

        `name` is the model's; `saved` is the run that is resumed, if one is.
        """
        available = self.open_tools(options) if self._offers_server_tools(request, options) else Merged()
        selected, tighten = await select_tools(ListedOnce(available), options.sources, self.configured)
        listed = BackgroundTools(self._as_code(selected), self.jobs, self.settings.llm.tools_background)
        hidden, guards = self._hidden_tools(request), None if self.settings.guards else ()
        hidden_names = {tool.name for tool in hidden}
        pinned = [JOB_RESULT, *(tool.name for tool in request.tools if tool.name not in hidden_names)]
        budget = 0 if self.settings.llm.tools_code else self.settings.llm.tools_budget  # of code there is only one tool to show
        narrowed_model, server_tools = await limit_shown_tools(
            model, listed, self.costs, budget, pinned=pinned, hidden=hidden, guards=guards
        )
        conversation, subject = (saved.id, saved.subject) if saved else (request.origin.session or request_id(), caller())
        return RunPlan(
            name,
            narrowed_model,
            server_tools,
            listed,
            replace(request, tools=offered_tools(await server_tools.tools(), request.tools)),
            Context(conversation=conversation, subject=subject, tighten=tighten, authority=self.authority_of(subject)),
            options,
            self.settings.limits,
            request.tools,
        )

    def authority_of(self, subject: str) -> Authority:
        """What a caller's key allows of capabilities: nothing, if it is gone. Where no keys are needed: whoever is at this
        machine is trusted like its operator."""
        if self.settings.keys:
            key = self.settings.keys.get(subject)
            return Authority(subject, trust=key.trust if key else "unknown", capabilities=key.capabilities if key else ())
        return Authority(subject, trust="trusted" if is_loopback(self.settings.host) else "member")

    def _as_code(self, tools: Toolset) -> Toolset:
        """The tools as functions of the code that the model writes, where the settings want that."""
        if not self.settings.llm.tools_code:
            return tools
        from callsmith.code import CodeTools  # has a library of its own

        return CodeTools(tools, call_limits=self.settings.limits)

    def _offers_server_tools(self, request: Request, options: ToolOptions) -> bool:
        """Whether the model is offered tools of the server's own."""
        mixed = bool(options.sources) or (options.mode or self.settings.llm.tool_mode) == "mixed"
        return (self.server_tools(options) is not None or bool(options.sources)) and (mixed or not request.tools)

    def _hidden_tools(self, request: Request) -> tuple[Tool, ...]:
        """The client's tools that the model has to find: those that are deferred, or all of them where they are too many."""
        if request.choice.mode == "none":
            return ()
        most = self.settings.llm.client_tools_shown
        return tuple(tool for tool in request.tools if tool.deferred or (most is not None and len(request.tools) > most))
