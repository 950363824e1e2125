"""A model that says what it was told and a toolset of handlers, for trying the runtime."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from callsmith.core.events import CallReady, ModelEvent, RunEvent, Stopped, Text, ToolFinished, ToolProgress, TurnEnded
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Request, Result, Tool, Usage
from callsmith.runtime.loop import run

ASKED = Request((Message.user("go"),))


class Told:
    """A model that gives the answers it was told, the last one for ever, and remembers what it was asked."""

    def __init__(self, *answers: Sequence[ModelEvent]) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.asked.append(request)
        try:
            for event in self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]:
                await asyncio.sleep(0)
                yield event
        finally:
            self.closed += 1


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


def calls(*made: Call, text: str = "") -> list[ModelEvent]:
    said: list[ModelEvent] = [Text(text)] if text else []
    return [*said, *(CallReady(index, call) for index, call in enumerate(made)), Stopped("calls", Usage(10, 5, 2, 1))]


def says(text: str) -> list[ModelEvent]:
    return [Text(text), Stopped("stop", Usage(20, 3))]


async def everything(model: Told, toolset: Any, request: Request = ASKED, **options: Any) -> list[RunEvent]:
    return [event async for event in run(model, toolset, request, **options)]


def finished(events: list[RunEvent]) -> list[Result]:
    return [event.result for event in events if isinstance(event, ToolFinished)]


def ended(events: list[RunEvent]) -> TurnEnded:
    last = events[-1]
    assert isinstance(last, TurnEnded)
    assert sum(isinstance(event, TurnEnded) for event in events) == 1
    return last
