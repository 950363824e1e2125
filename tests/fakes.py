"""Fakes that the tests share: models that give prepared answers, and toolsets that remember what they were asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from callsmith.core.events import (
    CallReady,
    ConfirmationNeeded,
    ModelEvent,
    Report,
    RunEvent,
    Started,
    Stopped,
    Text,
    ToolFinished,
    ToolProgress,
    TurnEnded,
)
from callsmith.core.ports import Context, Model, ModelInfo, model_info
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Message, Request, Result, Tool, Usage
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions

ASKED = Request((Message.user("go"),))


class FakeModel:
    """A model that gives prepared answers in turn, the last one for ever, and remembers what it was asked.

    An exception among the events is raised there, and a float is a pause of so many seconds. An answer may also be an exception.
    """

    def __init__(self, *answers: Sequence[ModelEvent | Exception | float] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.open = 0
        self.closed = 0

    def next_answer(self) -> Sequence[ModelEvent | Exception | float] | Exception:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.asked.append(request)
        self.open += 1
        try:
            answer = self.next_answer()
            for event in [answer] if isinstance(answer, Exception) else answer:
                if isinstance(event, Exception):
                    raise event
                await asyncio.sleep(event if isinstance(event, float) else 0)
                if not isinstance(event, float):
                    yield event
        finally:
            self.open -= 1
            self.closed += 1


class StrictFakeModel(FakeModel):
    """The same, but each answer is given once: who asks more often gets an IndexError."""

    def next_answer(self) -> Sequence[ModelEvent | Exception | float] | Exception:
        return self.answers.pop(0)


class Letters:
    """A tokenizer for which every letter is a token."""

    def encode(self, text: str, *, bos: bool = True, specials: bool = True) -> list[int]:
        return [1_000 + ord(letter) for letter in text]

    def encode_request(self, request: Request) -> list[int]:
        return [token for message in request.messages for token in self.encode(message.content)]

    def decode(self, tokens: Sequence[int]) -> list[bytes]:
        return [chr(token - 1_000).encode() for token in tokens]

    def around(self, model: Model, seconds: float = 0.0) -> "Described":
        """The model with this tokenizer, which takes so many seconds to count."""

        async def count(request: Request) -> int:
            await asyncio.sleep(seconds)
            return len(self.encode_request(request))

        return Described(model, replace(model_info(model), tokenizer=self, count=count))


@dataclass(frozen=True)
class Described:
    """A model of which something else is known."""

    model: Model
    info: ModelInfo

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        return self.model.stream(request)


class Handlers:
    """A toolset of coroutine functions that take the call and return content, or of generator functions."""

    def __init__(self, *tools: Tool, **handlers: Callable[[Call], Any]) -> None:
        self._tools = tools or tuple(Tool(name) for name in handlers)
        self._handlers = handlers

    async def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        await context.starting()
        yield Result("somebody else's", "wrong", await self._handlers[call.name](call))


async def hello(call: Call) -> str:
    return f"hello {call.arguments.get('to', '')}".strip()


def calls(*tool_calls: Call, text: str = "") -> list[ModelEvent]:
    text_events: list[ModelEvent] = [Text(text)] if text else []
    return [
        *text_events,
        *(CallReady(index, call) for index, call in enumerate(tool_calls)),
        Stopped("calls", Usage(10, 5, 2, 1)),
    ]


def says(*pieces: str) -> list[ModelEvent]:
    return [*map(Text, pieces), Stopped("stop", Usage(20, 3))]


def decided(text: str, decision: CallDecision, *, at_start: bool = True, tool_calls: Sequence[Call] = ()) -> list[ModelEvent]:
    """An answer before which it was decided whether to call: its end tells, and its beginning where it has one."""
    begun: list[ModelEvent] = [Started(Usage(7), decision)] if at_start else []
    text_events: list[ModelEvent] = [Text(text)] if text else []
    reason = "calls" if tool_calls else "stop"
    return [
        *begun,
        *text_events,
        *starmap(CallReady, enumerate(tool_calls)),
        Stopped(reason, Usage(7, 3), Report(decision=decision)),
    ]


async def everything(model: FakeModel, toolset: Any, request: Request = ASKED, **options: Any) -> list[RunEvent]:
    return [event async for event in run(model, toolset, request, **options)]


def finished(events: list[RunEvent]) -> list[Result]:
    return [event.result for event in events if isinstance(event, ToolFinished)]


def ended(events: list[RunEvent]) -> TurnEnded:
    last = events[-1]
    assert isinstance(last, TurnEnded)
    assert sum(isinstance(event, TurnEnded) for event in events) == 1
    return last


class Sourced:
    """Functions, with a source of their own."""

    def __init__(self, source: str, *functions: Any) -> None:
        self._functions = Functions(*functions)
        self._source = source

    async def tools(self) -> Sequence[Tool]:
        return [replace(tool, source=self._source) for tool in await self._functions.tools()]

    def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
        return self._functions.call(call, context)


class Recording:
    """A toolset that runs one coroutine for every call, remembers calls and contexts, and counts how often it was closed."""

    def __init__(self, *tools: Tool, run: Any = None) -> None:
        self._tools = tools
        self._run = run
        self.calls: list[Call] = []
        self.contexts: list[Context] = []
        self.closed = 0

    async def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        self.calls.append(call)
        self.contexts.append(context)
        try:
            yield ToolProgress(call.id, "working")
            content = await self._run(call) if self._run else f"{call.name} done"
            yield content if isinstance(content, Result) else Result(call.id, call.name, content)
        finally:
            self.closed += 1
