"""ToolExecutor: a chat with tools over a bus. The model is `llm.chat` of some node, the tools are capabilities of others.

    executor = ToolExecutor(bus, [search_corpus, translate])
    message = await executor.run_chat_with_tools({"params": {}, "input": {"messages": [{"role": "user", "content": "…"}]}})

It is a face of the runtime: the loop, its limits, validation and approvals are those of `PausableRun` and `Dispatcher`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.reach import CapabilityTools
from callsmith.core.approval import Decision, Policy
from callsmith.core.capability.authority import Authority
from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName
from callsmith.core.events import ConfirmationNeeded, ModelEvent, TurnEnded
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Json, Message, Request, Result, Tool
from callsmith.runtime.conversation.journal import Journal
from callsmith.runtime.conversation.pausable_run import PausableRun, PauseAnswer, Questions
from callsmith.runtime.deferred import DeferredTools
from callsmith.runtime.dispatch import Dispatcher
from callsmith.runtime.execute import Limits
from callsmith.tools.functions import Function, Functions, Tools, as_toolset
from callsmith.tools.wrap import Confirmed, Merged
from callsmith.wire.capability.chat import NAME, read_chat, write_bound_tool, write_chat, write_flat_tool, write_message
from callsmith.wire.capability.chat_frames import ChatFrameReader, ChatFrameWriter, write_confirmation
from callsmith.wire.capability.frames import Frame, error_frame

StreamTo: TypeAlias = Callable[[dict[str, Json]], Awaitable[None]]  # gets {"event": …, "data": …, "seq": …}
Decide: TypeAlias = Callable[[ConfirmationNeeded], Awaitable[Decision]]


class BusModel:
    """A model of any node of a bus, as a `Model`; what goes wrong is raised as a BusError.

    It is asked with the authority that is given here, or else with that of the call being handled.
    """

    def __init__(self, bus: CapabilityBus, name: str = "", *, authority: Authority | None = None) -> None:
        self._bus = bus
        self._name = name
        self._authority = authority

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events, of which the last is `Stopped`."""
        reader = ChatFrameReader()
        body = write_chat(self._name, request)
        frames = self._bus.stream(NAME, (2, 0), body, session_id=request.origin.session, authority=self._authority)
        async with closing(frames) as items:
            async for frame in items:
                for event in reader.read(frame):
                    yield event


class ToolExecutor:
    """Runs tools, most of them bound to capabilities, and chats whose model calls them.

    `tools` are bound to capabilities (`bound_tool`), or Python functions; one that is neither is run by whoever asks: the chat
    ends with its calls. `others` is a toolset of any other kind, beside them. A tool with side effects needs a person's word,
    unless `confirm_side_effects` is false. Everything is done with the given authority, or with that of the call being handled.
    """

    def __init__(
        self,
        bus: CapabilityBus,
        tools: Iterable[Tool | Function | Callable[..., Any]],
        *,
        max_iterations: int = 6,
        per_tool_timeout_seconds: float = 30,
        max_parallel: int = 4,
        confirm_side_effects: bool = True,
        others: Tools | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._bus = bus
        known = [tool if isinstance(tool, Tool | Function) else Function.of(tool) for tool in tools]
        self._tools = tuple(tool.tool if isinstance(tool, Function) else tool for tool in known)
        bound = CapabilityTools(bus, [tool for tool in known if isinstance(tool, Tool) and tool.binding])
        functions = Functions(*(tool for tool in known if isinstance(tool, Function)))
        policy = Policy(side_effects="ask" if confirm_side_effects else "auto")
        toolset = Confirmed(Merged(bound, functions, *(() if others is None else (as_toolset(others),))), policy)
        self._unbound = {tool.name: tool for tool in known if isinstance(tool, Tool) and not tool.binding}
        self._toolset = DeferredTools(toolset, self._unbound.values())
        self._limits = Limits(iterations=max_iterations, parallel=max_parallel, seconds=per_tool_timeout_seconds)
        self._context = Context(authority=authority, subject=authority.subject if authority else "")
        self._authority = authority
        self._dispatcher = Dispatcher(self._toolset, limits=self._limits, context=self._context)

    @property
    def native_definitions(self) -> list[dict[str, Json]]:
        """The tools as `input.tools` of llm.chat has them: flat. Whoever sends them runs them."""
        return [write_flat_tool(tool) for tool in self._tools]

    @property
    def bound_definitions(self) -> list[dict[str, Json]]:
        """The same with the capabilities that run them: the model's node calls these, on the authority of whoever sends them."""
        return [write_bound_tool(tool) for tool in self._tools]

    async def dispatch(self, call: Call) -> Result:
        """Run a call. Failures are results with `ok` false; one that needs a person's word raises ConfirmationRequired."""
        if call.name in self._unbound:
            return make_failure(call, "not_implemented", f"{call.name} is bound to no capability: whoever asks runs it")
        return await self._dispatcher.dispatch(call)

    async def dispatch_confirmed(self, call: Call, arguments: Mapping[str, Json] | None = None) -> Result:
        """Run a call that a person has approved, with the person's arguments if given."""
        return await self._dispatcher.dispatch_confirmed(call, arguments)

    async def run_chat_with_tools(
        self, body: Mapping[str, Json], *, stream_to: StreamTo | None = None, decide: Decide | None = None
    ) -> dict[str, Json]:
        """Ask the model, run what it calls, and ask again, until it answers or the limit is reached; returns its last message.

        The model is offered all tools, or those of them that the body names (`native_definitions`).
        `stream_to` gets every frame, the last of which is "done" or "error". A call that needs a person's word is streamed as
        "confirmation_required"; `decide` is asked about it. Without `decide` the message comes back with the calls that wait,
        under `confirmations`; the chat goes on when it is run again with the results of `dispatch_confirmed` in its messages.
        """
        chat = read_chat(dict(body))
        own = {tool.name: tool for tool in await self._toolset.tools()}
        for tool in chat.request.tools:
            if tool.name not in own:
                raise UnknownName("tool", tool.name, own, field="input.tools")
        request = replace(chat.request, tools=tuple(own[tool.name] for tool in chat.request.tools))
        writer, seq = ChatFrameWriter(), count(1)
        journal = Journal(Saved("", request.messages, decisions=chat.decisions), limits=self._limits)

        async def send(frame: Frame) -> None:
            if stream_to is not None:
                await stream_to({"event": frame.event, "data": dict(frame.data), "seq": next(seq)})

        async def answer(questions: Questions, calls: tuple[Call, ...]) -> PauseAnswer | None:
            if decide is None or not questions:
                return None
            return PauseAnswer(decisions={question.call.id: await decide(question) for question in questions})

        model = BusModel(self._bus, chat.model, authority=self._authority)
        run = PausableRun(model, self._toolset, journal, limits=self._limits, answer_pause=answer)
        ended: TurnEnded | None = None
        try:
            async with closing(run.events(request, self._context)) as events:
                async for event in events:
                    for frame in writer.write(event):
                        await send(frame)
                    ended = event if isinstance(event, TurnEnded) else None
        except Exception as error:  # passed on: whoever reads the stream has to see that it has ended
            await send(error_frame(error))
            raise
        assert ended is not None  # the last event of every run
        await send(writer.end(chat.model, ended.reason, 0))
        return _final_message(ended, journal.pending)


def _final_message(ended: TurnEnded, questions: Sequence[ConfirmationNeeded]) -> dict[str, Json]:
    last = next((message for message in reversed(ended.messages) if message.role == "assistant"), Message.assistant())
    message = write_message(last)
    if questions:
        message["confirmations"] = [write_confirmation(question) for question in questions]
    return message
