"""LlmService: models of this node as capabilities, `llm.chat@2.0` (and 1.0), and `llm.tools.call@1.0`.

A tool that a request brings is run by the caller: its call comes as a frame, and the result as `{"type": "tool_result", …}` on
the same connection, or in the messages of the next call. A tool that names its capability runs from here, on the caller's
authority. Where a request brings no tools, those of this node are offered to the model, if it has some.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypeAlias

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import Answer, CapabilityCall
from callsmith.bus.reach import CapabilityTools
from callsmith.core.approval import Decision
from callsmith.core.capability.origin import Origin, cache_salt
from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName
from callsmith.core.events import CallReady, CallStarted, ModelEvent, StopReason, TurnEnded
from callsmith.core.ports import Context, Model, Toolset, model_info
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Json, Request, Result
from callsmith.models.router import in_use
from callsmith.runtime.conversation.journal import Journal
from callsmith.runtime.conversation.pausable_run import PausableRun, PauseAnswer, Questions
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import LIMIT_TEXT
from callsmith.runtime.telemetry.trace import Trace
from callsmith.runtime.telemetry.turns import Recorder, TurnInfo, recording
from callsmith.tools.wrap import Confirmed
from callsmith.wire.capability.chat import (
    MOST_TOOLS,
    NAME,
    REQUEST_SCHEMA,
    RESPONSE_SCHEMA,
    STREAM_SCHEMA,
    TOOLS_CALL,
    TOOLS_CALL_SCHEMA,
    VERSIONS,
    ChatBody,
    read_chat,
    read_reply,
    read_target,
    reply_id,
)
from callsmith.wire.capability.chat_frames import ChatFrameWriter
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

Admission: TypeAlias = Callable[[CapabilityCall], AbstractAsyncContextManager[object]]

CHAT_SECONDS = 120.0  # that a model may be silent
SIGN_OF_LIFE_SECONDS = 15.0  # after which its caller is notified that it still works


def _always(_: CapabilityCall) -> AbstractAsyncContextManager[object]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class LlmService:
    """Offers models on a bus. `tools` are this node's own; `admission` gives every answer its place, and `recorder` what records
    its turns. `shares_prompt_cache`: what is cached of prompts is reused for all callers, who can find out what others ask."""

    bus: CapabilityBus
    models: Mapping[str, Model]
    _: KW_ONLY
    tools: Toolset | None = None
    limits: Limits = STANDARD_LIMITS
    admission: Admission = _always
    recorder: Callable[[], Recorder] = Trace
    max_concurrent: int = 64
    shares_prompt_cache: bool = False

    def register(self) -> Callable[[], None]:
        """Offer the capabilities. Calling what is returned withdraws them."""
        has = {"model": ["", *self.models], "tools_supported": True, "max_tools_per_call": MOST_TOOLS, "modalities": ["text"]}
        chat = Descriptor(
            NAME,
            request_schema=REQUEST_SCHEMA,
            response_schema=RESPONSE_SCHEMA,
            stream_schema=STREAM_SCHEMA,
            description="Ask a model, which may call tools",
            params=has,
            max_concurrent=self.max_concurrent,
            timeout_seconds=CHAT_SECONDS,
        )
        tools_call = Descriptor(
            TOOLS_CALL,
            request_schema=TOOLS_CALL_SCHEMA,
            description="Call a capability as a tool would",
            timeout_seconds=CHAT_SECONDS,
            max_concurrent=self.max_concurrent,
        )
        with ExitStack() as withdrawals:  # all of them, or none
            for version in VERSIONS:
                withdrawals.callback(self.bus.register(replace(chat, version=version), self.handle_chat, _has_model))
            withdrawals.callback(self.bus.register(tools_call, self.handle_tools_call))
            return withdrawals.pop_all().close

    async def handle_tools_call(self, call: CapabilityCall) -> Answer:
        """Call the target capability with the target body, on the caller's authority; the answer is the target's."""
        name, version = read_target(call.input)
        return await self.bus.call(name, version, call.input["target_body"], session_id=call.session_id, authority=call.authority)

    async def handle_chat(self, call: CapabilityCall) -> AsyncIterator[Frame]:
        """Answer a chat. A call that is not streamed gets the same answer in one piece, as its last frame."""
        chat = self._for_caller(call, read_chat(dict(call.body)))
        name = chat.model or next(iter(self.models), "")
        if name not in self.models:
            raise BusError("not_found", str(UnknownName("model", name, self.models)))
        began = time.monotonic()
        answer = _ChatAnswer(self.bus, call, chat, self.limits, name, self.recorder())
        async with (
            self.admission(call),
            in_use(self.models[name]) as model,
            closing(_with_signs_of_life(answer.frames(model, self.tools))) as frames,
        ):
            async for frame in frames:
                if call.stream:
                    yield frame
        milliseconds = round((time.monotonic() - began) * 1000)
        if call.stream:
            yield answer.writer.end(name, answer.reason, milliseconds)
        else:
            yield Frame("done", answer.writer.answer(name, answer.reason, milliseconds))

    def _for_caller(self, call: CapabilityCall, chat: ChatBody) -> ChatBody:
        """What is asked, with who asks it: callers share an engine, and nothing of each other's prompts."""
        authority = call.authority
        caller = "/".join((*authority.via, authority.subject))
        salt = "" if self.shares_prompt_cache else cache_salt(caller, chat.request.origin.cache_salt)
        origin = Origin(call.session_id, salt, chat.request.origin.affinity, caller)
        return replace(chat, request=replace(chat.request, origin=origin))


async def _with_signs_of_life(frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    """The frames, with one of progress between them whenever there was none for long: a guard may withhold what a model says."""
    coming: asyncio.Future[Frame | None] | None = None
    async with closing(frames):
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(frames, None))  # pyright: ignore[reportArgumentType]
                await asyncio.wait((coming,), timeout=SIGN_OF_LIFE_SECONDS)
                if not coming.done():
                    yield Frame("progress", {"stage": "generating"})
                    continue
                frame, coming = coming.result(), None
                if frame is None:
                    return
                yield frame
        finally:
            if coming is not None:  # what is still at work cannot be closed, and has a place until it has ended
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


def _has_model(offered: Mapping[str, Json], requested: Mapping[str, Json]) -> bool:
    return requested.get("model", "") in offered["model"]


@dataclass(slots=True)
class _ChatAnswer:
    """The answer to one chat, over all of its rounds."""

    bus: CapabilityBus
    call: CapabilityCall
    chat: ChatBody
    limits: Limits
    model: str
    recorder: Recorder
    reason: StopReason = "stop"
    writer: ChatFrameWriter = field(default_factory=ChatFrameWriter)
    _rounds: int = 0
    _has_open_calls: bool = False

    async def frames(self, model: Model, own: Toolset | None) -> AsyncIterator[Frame]:
        """The frames, without the last one. What the caller runs is waited for as long as the caller can send it."""
        request, authority = self.chat.request, self.call.authority
        self.writer = ChatFrameWriter(f"tc_{self.call.request_id[:12]}")
        deferred = [tool for tool in request.tools if tool.binding is None]
        bound = [tool for tool in request.tools if tool.binding is not None]
        toolset = Confirmed(CapabilityTools(self.bus, bound)) if bound else None if request.tools else own
        context = Context(
            conversation=self.call.session_id,
            subject=authority.subject,
            depth=authority.depth,
            max_depth=authority.max_depth,
            authority=authority,
        )
        journal = Journal(Saved(self.call.session_id, request.messages, decisions=self.chat.decisions), limits=self.limits)
        run = PausableRun(
            _WithIds(model, self.writer), toolset, journal, deferred, self.limits, answer_pause=self._receive_answer
        )
        info = TurnInfo(self.model, request.tools, request.choice)
        with recording(self.recorder, info) as turn:
            async with closing(run.events(request, context)) as events:
                async for event in events:
                    turn.see(event)
                    for frame in self.writer.write(event):
                        yield frame
                    if isinstance(event, TurnEnded):
                        self.reason = "calls" if self._has_open_calls else event.reason

    async def _receive_answer(self, questions: Questions, calls: tuple[Call, ...]) -> PauseAnswer | None:
        """The results of calls that the caller runs, and decisions on calls that need one; None if none will come."""
        self._has_open_calls = bool(calls)
        open_calls, to_decide = {call.id: call for call in calls}, {question.call.id: question.call for question in questions}
        results: dict[str, Result] = {}
        decisions: dict[str, Decision] = {}
        while len(results) < len(open_calls) or len(decisions) < len(to_decide):
            message = await self.call.receive()
            if message is None:
                return None
            reply = read_reply(message, open_calls, to_decide)
            if isinstance(reply, Result):
                results[reply.call_id] = reply
            else:
                decisions[reply_id(message)] = reply
        self._has_open_calls = False
        self._rounds += 1
        self.writer.begin_turn()
        may_call = self._rounds < self.limits.iterations
        note = "" if may_call else f"\n({LIMIT_TEXT})"
        in_order = [replace(results[id], content=f"{results[id].text}{note}") if note else results[id] for id in open_calls]
        return PauseAnswer(in_order, decisions, may_call=may_call)


class _WithIds:
    """A model whose calls have ids from their first event on: a caller answers them by these."""

    def __init__(self, model: Model, writer: ChatFrameWriter) -> None:
        self._model = model
        self._writer = writer
        self.info = model_info(model)

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        ids: dict[int, str] = {}
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case CallStarted(index, id=id):
                        ids[index] = id or self._writer.new_id(index)
                        yield replace(event, id=ids[index])
                    case CallReady(index, call):
                        yield replace(event, call=replace(call, id=ids.get(index) or call.id or self._writer.new_id(index)))
                    case _:
                        yield event
